package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"waldo/env"
	"waldo/env/rpc"
	"waldo/wire"
	"waldo/wire/listen"
)

// Environment is an open environment.
type Environment struct {
	*rpc.Client
	spec   Spec
	server string // path of the exec-server, for the local environment

	settled chan struct{}  // closed when a program's output has ended once
	tasks   sync.WaitGroup // what bounds the first answer
	mu      sync.Mutex
	failed  error    // the last thing that went wrong with a program's output, or with the first answer
	first   net.Conn // the first connection
}

const settleWithin = 3 * time.Second // a program may take this long to end

// Open connects to an environment. Whether the server accepts us is told by Ready or the first call; what
// they say should go through Explain.
func Open(ctx context.Context, spec Spec) (*Environment, error) {
	e := &Environment{spec: spec, settled: make(chan struct{})}
	options := rpc.ClientOptions{
		Name: spec.Client, Session: spec.Session, Lease: spec.Lease, Log: spec.Log, Status: spec.Status,
	}
	dial, err := e.dialer()
	if err != nil {
		return nil, err
	}
	options.Dial = func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err == nil {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.first == nil {
				e.first = conn
			}
		}
		return conn, err
	}
	if spec.hasAddress() {
		options.FindToken = func() (string, error) { return listen.FindToken(spec.Address, spec.Access) }
	}
	client, err := rpc.Dial(ctx, options)
	if err != nil {
		return nil, e.Explain(err)
	}
	e.Client = client
	if bound := e.bound(); bound > 0 {
		e.tasks.Go(func() { e.awaitFirst(bound) })
	}
	return e, nil
}

// dialer is how connections are made.
func (e *Environment) dialer() (dial func(context.Context) (net.Conn, error), err error) {
	spec := e.spec
	if spec.hasAddress() {
		return func(ctx context.Context) (net.Conn, error) {
			if bound := within(spec.ConnectWithin, connectWithin); bound > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, bound, fmt.Errorf("dial %s: not connected within %v: %w", spec.Address, bound, context.DeadlineExceeded))
				defer cancel()
			}
			conn, err := listen.Dial(ctx, spec.Address, spec.Access)
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return conn, err
		}, nil
	}
	if err := noAccess(spec); err != nil {
		return nil, err
	}
	shown, program := spec.Program, Program{Argv: spec.Program, Environ: spec.Environ, Directory: spec.Directory}
	switch {
	case spec.SSH != SSH{}:
		shown = spec.SSH.shown()
	case spec.IsLocal():
		if e.server, err = FindServer(); err != nil {
			return nil, err
		}
		program.Argv = []string{e.server, "--listen", "stdio"}
		shown = program.Argv
	}
	asked := false // by the link's one dialling goroutine
	return func(ctx context.Context) (net.Conn, error) {
		if spec.SSH != (SSH{}) { // once it is connected, what runs there may have the terminal
			program.Ask = spec.MayAsk && !asked
			program.Argv = spec.SSH.command(serveScript, program.Ask)
			asked = true
		}
		conn, err := spec.Spawn(ctx, program)
		if err != nil {
			return nil, fmt.Errorf("environment %s: start %s: %w", spec, quoteProgram(shown), err)
		}
		return &programConn{Child: conn, program: shown, ssh: spec.SSH, settled: e.settle}, nil
	}, nil
}

// bound is how long the first answer may take; 0: as long as it likes.
func (e *Environment) bound() time.Duration {
	otherwise := initializeWithin
	switch {
	case e.spec.SSH != SSH{} && e.spec.MayAsk:
		otherwise = 0 // a person may have to find a passphrase
	case e.spec.SSH != SSH{}:
		otherwise = sshWithin
	case !e.spec.hasAddress():
		otherwise = programWithin
	}
	return within(e.spec.InitializeWithin, otherwise)
}

// awaitFirst ends a connection on which no first answer comes.
func (e *Environment) awaitFirst(bound time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if e.Client.Ready(ctx); ctx.Err() == nil { //nolint:errcheck // who asks is told
		return
	}
	e.settle(&lateError{bound})
	e.mu.Lock()
	first := e.first
	e.mu.Unlock()
	first.Close() //nolint:errcheck // it is given up
}

// lateError says that no first answer came.
type lateError struct{ within time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("connected, but the server has not answered within %v", e.within)
}

// Close ends the connection; see rpc.Client.
func (e *Environment) Close() error {
	err := e.Client.Close()
	e.tasks.Wait()
	return err
}

// noAccess refuses what says how to come to an address when there is none.
func noAccess(spec Spec) error {
	a := spec.Access
	if a.Token != "" || a.TokenFile != "" || a.TLSPin != "" || a.TLSCA != "" || a.ClientCert != "" || a.ClientKey != "" {
		return fmt.Errorf("a token, TLS pin, CA or client certificate goes with a URL, not with the environment %s", spec)
	}
	return nil
}

// Spec is what was opened.
func (e *Environment) Spec() Spec { return e.spec }

func (e *Environment) settle(failed error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var late *lateError // says it all: what came of giving up says less
	if failed != nil && !errors.As(e.failed, &late) {
		e.failed = failed
	}
	select {
	case <-e.settled:
	default:
		close(e.settled)
	}
}

// failure is what went wrong with the program behind a connection that was lost.
func (e *Environment) failure() error {
	if !e.spec.hasAddress() { // it may have noticed after whoever wrote to it
		timer := time.NewTimer(settleWithin)
		defer timer.Stop()
		select {
		case <-e.settled:
		case <-timer.C:
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failed
}

// Explain adds to an error of a call what is known of the way to the server: what a program said instead of
// the protocol, and which two programs do not fit together.
func (e *Environment) Explain(err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, wire.ErrCut), errors.Is(err, env.ErrExpired):
		failed := e.failure()
		var missing *NoServerError
		var late *lateError
		switch {
		case errors.As(failed, &missing):
			return failed
		case errors.As(failed, &late):
			return fmt.Errorf("environment %s: %w", e.spec, failed)
		}
		if failed != nil && !strings.Contains(err.Error(), failed.Error()) {
			return fmt.Errorf("environment %s: %w: %w", e.spec, err, failed)
		}
		return fmt.Errorf("environment %s: %w", e.spec, err)
	case e.Client == nil && noListener(err):
		return fmt.Errorf("%w; no exec-server listens there", err)
	case errors.Is(err, wire.Unauthenticated):
		return fmt.Errorf("environment %s: %w", e.spec, err)
	case errors.Is(err, wire.Unsupported) && e.server != "" && e.Client != nil && errors.Is(e.refusal(), wire.Unsupported):
		self, _ := os.Executable() //nolint:errcheck // "" is shown as such
		return fmt.Errorf("%s and %s are of versions that do not fit together: %w", strconv.Quote(self), strconv.Quote(e.server), err)
	}
	return err
}

// noListener tells whether the machine is there, and nothing that listens.
func noListener(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial" &&
		(errors.Is(failed, refused) || failed.Net == "unix" && errors.Is(failed, fs.ErrNotExist))
}

// refusal is why the server has not accepted us, if that is known.
func (e *Environment) refusal() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return e.Ready(ctx)
}
