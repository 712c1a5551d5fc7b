package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"waldo/env/registry"
)

func forwardCommand(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "forward [flags] [LOCAL:]PORT | LOCAL:HOST:PORT ...",
		Short: "Lead local ports to ports in an environment",
		Long: `Lead local ports to ports in an environment, until an interrupt.

PORT is one that something listens on there, on localhost; LOCAL is the port here, on 127.0.0.1 (0: any; without
it the same). LOCAL:HOST:PORT leads on from there to another host. Each address here is printed on standard output,
a line each, as soon as it accepts.`,
		Example: `  app-server forward -e tcp://127.0.0.1:7777 8080
  app-server forward -e tls://box:7777 --tls-pin sha256:… --token-file t 0:8080 5433:db.internal:5432`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("no port given; see %s --help", command.CommandPath())
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			var ways []way
			for _, text := range args {
				w, err := parseWay(text)
				if err != nil {
					return err
				}
				ways = append(ways, w)
			}
			return forward(command.Context(), c, command.OutOrStdout(), ways)
		},
	}
}

// way leads from a port here to an address there.
type way struct {
	local  uint16
	remote string
}

// parseWay reads [LOCAL:]PORT or LOCAL:HOST:PORT; an IPv6 HOST is in brackets.
func parseWay(text string) (w way, err error) {
	local, rest, two := strings.Cut(text, ":")
	if !two {
		local, rest = text, text
	}
	if w.local, err = parsePort(local, two); err != nil {
		return w, fmt.Errorf("%q: %w; want [LOCAL:]PORT or LOCAL:HOST:PORT", text, err)
	}
	host, port := "localhost", rest
	if strings.Contains(rest, ":") {
		if host, port, err = net.SplitHostPort(rest); err != nil || host == "" {
			return w, fmt.Errorf("%q: want [LOCAL:]PORT or LOCAL:HOST:PORT, an IPv6 HOST in brackets", text)
		}
	}
	if _, err = parsePort(port, false); err != nil {
		return w, fmt.Errorf("%q: %w; want [LOCAL:]PORT or LOCAL:HOST:PORT", text, err)
	}
	w.remote = net.JoinHostPort(host, port)
	return w, nil
}

func parsePort(text string, zero bool) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 && !zero {
		return 0, fmt.Errorf("port %q is no number from 1 to 65535", text)
	}
	return uint16(n), nil
}

func forward(ctx context.Context, c *connection, out io.Writer, ways []way) error {
	s := newStage(c)
	defer s.end()
	e, err := s.open(ctx, opening{})
	if err != nil {
		return err
	}
	if _, err := untilSignal(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, e.Ready(ctx) }); err != nil {
		return e.Explain(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	f := &forwarder{environment: e, cancel: cancel}
	defer f.tasks.Wait()
	defer cancel(nil)
	var listeners []net.Listener
	for _, w := range ways {
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(w.local))))
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return fmt.Errorf("%w; choose the local port with LOCAL:PORT, 0 for any", err)
		}
		listeners = append(listeners, l)
	}
	for i, l := range listeners {
		context.AfterFunc(ctx, func() { l.Close() })
		f.tasks.Go(func() { f.accept(ctx, l, ways[i].remote) })
		fmt.Fprintln(out, l.Addr())
	}
	select {
	case sig := <-s.signals:
		if name, number := signalOf(sig); name != "INT" {
			return &exitError{code: codeSignalled + number}
		}
		return nil // that is how it ends
	case <-e.Gone():
		return e.Explain(e.Ready(ctx))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forwarder leads connections to where an environment gets.
type forwarder struct {
	environment *registry.Environment
	cancel      context.CancelCauseFunc
	tasks       sync.WaitGroup
}

func (f *forwarder) accept(ctx context.Context, l net.Listener, remote string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			f.cancel(fmt.Errorf("accept on %s: %w", l.Addr(), err))
			return
		}
		f.tasks.Go(func() { f.lead(ctx, conn.(*net.TCPConn), remote) })
	}
}

// lead joins a connection here to a new one there.
func (f *forwarder) lead(ctx context.Context, here *net.TCPConn, remote string) {
	defer here.Close()
	there, err := f.environment.Dial(ctx, "tcp", remote)
	if err != nil {
		here.SetLinger(0) //nolint:errcheck // a reset tells the client more than an end
		if gone := f.environment.Ready(ctx); gone != nil {
			f.cancel(f.environment.Explain(gone)) // for good; it connects again as long as it can
		} else {
			say("%v", err)
		}
		return
	}
	defer there.Close()
	stop := context.AfterFunc(ctx, func() {
		here.Close()
		there.Close()
	})
	defer stop()
	var tasks sync.WaitGroup
	tasks.Go(func() { pour(here, there) })
	pour(there, here)
	tasks.Wait()
}

// halfCloser can end what it sends and still receive.
type halfCloser interface{ CloseWrite() error }

// pour copies from to to, and its end after that. After an error neither is of use.
func pour(to, from net.Conn) {
	_, err := io.Copy(struct{ io.Writer }{to}, from)
	if err == nil {
		err = to.(halfCloser).CloseWrite()
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		to.Close()
		from.Close()
	}
}
