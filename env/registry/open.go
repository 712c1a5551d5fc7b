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

	settled chan struct{} // closed when a program's output has ended once
	mu      sync.Mutex
	failed  error // the last thing that went wrong with a program's output
}

const settleWithin = 3 * time.Second // a program may take this long to end

// Open connects to an environment. Whether the server accepts us is told by Ready or the first call; what
// they say should go through Explain.
func Open(ctx context.Context, spec Spec) (*Environment, error) {
	e := &Environment{spec: spec, settled: make(chan struct{})}
	options := rpc.ClientOptions{
		Name: spec.Client, Session: spec.Session, Lease: spec.Lease, Log: spec.Log, Status: spec.Status,
	}
	program := spec.Program
	switch {
	case spec.Address != listen.Address{}:
		options.Dial = func(ctx context.Context) (net.Conn, error) { return listen.Dial(ctx, spec.Address, spec.Access) }
		options.FindToken = func() (string, error) { return listen.FindToken(spec.Address, spec.Access) }
	default:
		if err := noAccess(spec); err != nil {
			return nil, err
		}
		if spec.IsLocal() {
			server, err := FindServer()
			if err != nil {
				return nil, err
			}
			e.server = server
			program = []string{server, "--listen", "stdio"}
		}
		options.Dial = func(ctx context.Context) (net.Conn, error) {
			conn, err := spec.Spawn(ctx, program)
			if err != nil {
				return nil, err
			}
			return &programConn{Child: conn, program: program, settled: e.settle}, nil
		}
	}
	client, err := rpc.Dial(ctx, options)
	if err != nil {
		return nil, e.Explain(err)
	}
	e.Client = client
	return e, nil
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
	if failed != nil {
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
	if e.spec.Address == (listen.Address{}) { // it may have noticed after whoever wrote to it
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
		if failed := e.failure(); failed != nil && !strings.Contains(err.Error(), failed.Error()) {
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
