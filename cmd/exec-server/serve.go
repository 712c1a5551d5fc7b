package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"waldo/env/host"
	"waldo/env/host/tree"
	"waldo/env/rpc"
	"waldo/wire/listen"
)

const defaultMaxLease = 7 * 24 * time.Hour

// shutdownWithin bounds the end of a server whose processes do not go.
const shutdownWithin = 15 * time.Second

// tellEndsWithin bounds the telling of clients that their processes have ended.
const tellEndsWithin = 2 * time.Second

// settings are the flags.
type settings struct {
	listen    []string
	oneShot   bool
	detached  bool // nobody reads standard output once the URLs are there
	exitIdle  time.Duration
	maxLease  time.Duration
	logFormat string
	logLevel  string
	access    listen.Options
	codex     codexAccess
	host      host.Options
	stdin     io.Reader // what is to be read of it, if not all
}

// bufferedInput is an input of which something has been looked at.
type bufferedInput struct {
	io.Reader
	io.Closer
}

// speaksLines looks whether what comes is JSON, which is served by this process alone: when its pipe ends, so does what
// was begun through it.
func speaksLines(in *bufio.Reader) bool {
	for {
		next, err := in.Peek(1)
		switch {
		case err != nil:
			return false
		case bytes.IndexByte([]byte(" \t\r\n"), next[0]) < 0:
			return next[0] == '{'
		}
		in.Discard(1) //nolint:errcheck // it was seen
	}
}

func serveCommand() *cobra.Command { return serveCommandOf(new(settings)) }

// serveCommandOf makes the command that fills s.
func serveCommandOf(s *settings) *cobra.Command {
	c := &cobra.Command{
		Use:   programName,
		Short: "Offer this machine's processes, terminals and files to clients elsewhere",
		Long: `Offer this machine's processes, terminals and files to clients elsewhere.

Each listener's URL is printed on standard output, a line each, as soon as it accepts. Everything else goes to
standard error. A TCP listener always wants a token: without --token-file one is made and kept in the state
directory, where clients of the same user on the same machine find it by themselves.`,
		Example: `  exec-server                                          # on loopback, for this user
  exec-server --listen tls://0.0.0.0:7777              # for other machines; prints the pin of its certificate
  exec-server --listen tls://0.0.0.0:7777 --client-ca ca.pem
                                                       # for whoever has a certificate of that authority
  exec-server --listen unix:///run/user/1000/box.sock
  ssh box exec-server --listen stdio                   # what app-server does behind your back`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return s.serve(c.Context()) },
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringArrayVar(&s.listen, "listen", nil, "where to listen: tcp://, tls://, ws://, wss://HOST:PORT, unix://PATH or stdio; may be repeated (default tcp://127.0.0.1:7777)")
	f.StringVar(&s.access.TokenFile, "token-file", "", "file that holds the token; made if it is not there")
	f.BoolVar(&s.access.NoAuth, "no-auth", false, "let everybody on this machine in; loopback only")
	f.StringVar(&s.access.TLSCert, "tls-cert", "", "PEM file of the certificate (default: one is made in the state directory)")
	f.StringVar(&s.access.TLSKey, "tls-key", "", "PEM file of its key")
	f.StringVar(&s.access.ClientCA, "client-ca", "", "PEM file of authorities whose client certificates let in over TLS; without --token-file nothing else does")
	f.StringArrayVar(&s.access.AllowOrigins, "allow-origin", nil, "value of the Origin header to let in; may be repeated")
	s.codex.register(f)
	f.StringVar(&s.access.StateDir, "state-dir", "", "directory of this server's own files (default $WALDO_HOME/exec-server, else ~/.waldo/exec-server)")
	f.DurationVar(&s.maxLease, "max-lease", defaultMaxLease, "the longest that processes may outlive their client's connection")
	f.DurationVar(&s.exitIdle, "exit-idle", 0, "end after this time without a client and without a process (0: never)")
	f.BoolVar(&s.oneShot, "one-shot", false, "with --listen stdio: serve this pipe alone and end with it, instead of joining the user's daemon")
	f.Int64Var(&s.host.Processes.MemoryBudget, "retain-memory", 256<<20, "bytes of output kept in memory, all processes together")
	f.Int64Var(&s.host.Processes.SpillBudget, "retain-spill", 4<<30, "bytes of output kept on disk while nobody reads, all processes together")
	f.IntVar(&s.host.Processes.MaxProcesses, "max-processes", 10000, "processes at a time")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
	f.StringVar(&s.logLevel, "log-level", "warn", "debug, info, warn or error")
	return c
}

// logger makes the log that the flags ask for.
func (s *settings) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", s.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", s.logFormat)
}

// stateDir is the directory of the server's own files.
func stateDir(flag string) (string, error) {
	if flag != "" {
		return filepath.Abs(flag)
	}
	home := os.Getenv("WALDO_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("state directory: %w; set WALDO_HOME or --state-dir", err)
		}
		home = filepath.Join(user, ".waldo")
	}
	return filepath.Abs(filepath.Join(home, "exec-server"))
}

// serve runs the server until a signal, the end of stdio, or idleness ends it.
func (s *settings) serve(ctx context.Context) error {
	log, err := s.logger(os.Stderr)
	if err != nil {
		return err
	}
	if s.access.StateDir, err = stateDir(s.access.StateDir); err != nil {
		return err
	}
	addresses, stdio, err := s.addresses()
	if err != nil {
		return err
	}
	s.access.Log = log
	if err := s.codex.apply(&s.access, stdio, log); err != nil {
		return err
	}
	if stdio && !s.oneShot && daemonsWork {
		in := bufio.NewReader(os.Stdin)
		if !speaksLines(in) {
			return join(ctx, s.access.StateDir, in, os.Stdout)
		}
		s.stdin = in
	}
	return s.run(ctx, log, addresses, stdio)
}

// addresses parses --listen. stdio can only be the one address.
func (s *settings) addresses() (addresses []listen.Address, stdio bool, err error) {
	texts := s.listen
	if len(texts) == 0 {
		texts = []string{fmt.Sprintf("tcp://127.0.0.1:%d", listen.DefaultPort)}
	}
	for _, text := range texts {
		address, err := listen.ParseAddress(text)
		if err != nil {
			return nil, false, fmt.Errorf("--listen: %w", err)
		}
		stdio = stdio || address.Scheme == "stdio"
		addresses = append(addresses, address)
	}
	switch {
	case stdio && len(addresses) > 1:
		return nil, false, errors.New("--listen stdio cannot be combined with another address")
	case s.oneShot && !stdio:
		return nil, false, errors.New("--one-shot goes with --listen stdio")
	}
	return addresses, stdio, nil
}

// run serves on addresses, or on stdio alone.
func (s *settings) run(ctx context.Context, log *slog.Logger, addresses []listen.Address, stdio bool) (err error) {
	s.host.Version, s.host.Logger, s.host.Environ = version, log, os.Environ()
	stopReaper, err := tree.StartReaper(log)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // the machine has no orphans to take in
		stopReaper = func() {}
	case err != nil:
		return err
	}
	defer stopReaper()
	machine, err := host.New(s.host)
	if err != nil {
		return err
	}
	counted := metered{machine, new(traffic)}
	server, err := rpc.NewServer(ctx, counted, rpc.ServerOptions{
		Name:     programName + " " + version,
		MaxLease: s.maxLease,
		Log:      log,
	})
	if err != nil {
		machine.Close()
		return err
	}
	// The processes first, so that their clients hear of their ends before the connections go.
	ctx, end := withShutdown(ctx, log, func() {
		machine.Close() //nolint:errcheck // below it is told
		told, cancel := context.WithTimeout(context.Background(), tellEndsWithin)
		defer cancel()
		server.Drain(told) //nolint:errcheck // a client that takes nothing is not waited for
	})
	defer func() {
		end(nil)
		server.Close() //nolint:errcheck // returns nil
		err = errors.Join(err, machine.Close())
	}()
	ways, err := doors(ctx, server, counted, log)
	if err != nil {
		return err
	}
	if stdio {
		in := io.ReadCloser(os.Stdin)
		if s.stdin != nil {
			in = bufferedInput{s.stdin, os.Stdin}
		}
		return listen.ServeStdio(ctx, listen.Stdio(in, os.Stdout), ways)
	}
	var listeners []*listen.Listener
	encrypted := slices.ContainsFunc(addresses, listen.Address.TLS)
	for _, address := range addresses {
		access := s.access
		if encrypted && !address.TLS() {
			access.ClientCA = "" // it is for the other listeners
		}
		l, err := listen.Listen(ctx, address, access)
		if err != nil {
			for _, l := range listeners {
				l.Close() //nolint:errcheck // it serves nothing yet
			}
			if errors.Is(err, syscall.EADDRINUSE) && address.Scheme != "unix" {
				err = fmt.Errorf("%w, perhaps by another exec-server; choose a port with --listen, 0 for any", err)
			}
			return err
		}
		listeners = append(listeners, l)
	}
	for _, l := range listeners {
		if l.Pin() != "" {
			fmt.Fprintf(os.Stderr, "%s: %s has the pin %s\n", programName, l.URL(), l.Pin())
		}
		fmt.Println(l.URL())
	}
	if s.detached {
		os.Stdout.Close() // whoever started the daemon waits for this
	}
	var serving sync.WaitGroup
	outcome := make([]error, len(listeners))
	for i, l := range listeners {
		serving.Go(func() {
			outcome[i] = l.Serve(ctx, ways)
			end(nil) // one that fails ends the others
		})
	}
	if s.exitIdle > 0 {
		serving.Go(func() {
			if server.AwaitIdle(ctx, s.exitIdle) == nil {
				log.Info("idle", "for", s.exitIdle)
				end(nil)
			}
		})
	}
	serving.Wait()
	return errors.Join(outcome...)
}

// withShutdown makes a context that the usual signals end, once stop has returned. A second signal, or a shutdown
// that takes too long, ends the program at once.
func withShutdown(ctx context.Context, log *slog.Logger, stop func()) (context.Context, context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case sig := <-signals:
			log.Info("shutting down", "signal", sig)
			go func() { // ends with the program at the latest
				stop()
				end(fmt.Errorf("signal %v", sig))
			}()
		case <-ctx.Done():
		}
		// timeout(1) and some supervisors send the one signal to the process and to its group.
		patience := time.After(shutdownWithin)
		for began := time.Now(); ; {
			select {
			case <-signals:
				if time.Since(began) < time.Second {
					continue
				}
			case <-patience:
			}
			break
		}
		fmt.Fprintf(os.Stderr, "%s: ended without waiting for everything\n", programName)
		os.Exit(1)
	}()
	return ctx, end
}
