package rpc

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"waldo/env"
	"waldo/wire"
)

// Session is a client as a second door sees it: one connection after another may speak for it, and what it has started
// lives on in between, for as long as its lease says. It is in the same table as the sessions of the native door, under
// the same rules.
type Session struct{ session *session }

// OpenSession makes a session, whose processes start from origin. Nobody speaks for it until Take.
func (s *Server) OpenSession(origin Origin) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%w: server is shutting down", wire.Restarted)
	}
	return &Session{s.begin(uuid.NewString(), origin)}, nil
}

// ID names the session.
func (s *Session) ID() string { return s.session.id }

// AfterEnd has f called, in a goroutine of its own, once the session has ended.
func (s *Session) AfterEnd(f func()) { context.AfterFunc(s.session.ctx, f) }

// Take makes the caller's connection the one that speaks for the session, with this lease from when it is gone; 0 is the
// server's default. The connection that did so before is fenced; Take returns when nothing is done for it any more.
//
// end ends the caller's connection, because another one takes over (wire.Fenced) or the server closes, and returns
// when nothing is done for it. detach says that the connection is gone by itself; after a fence it does nothing.
func (s *Session) Take(ctx context.Context, end func(why error) error, lease time.Duration) (detach func(), err error) {
	conn := &doorConnection{end}
	alone := make(chan struct{})
	session, server := s.session, s.session.server
	if lease > 0 {
		lease = server.grant(lease.Milliseconds())
	} else {
		lease = server.options.DefaultLease
	}
	server.mu.Lock()
	if session.ended || server.closed {
		server.mu.Unlock()
		return nil, session.expired()
	}
	server.connections[conn] = struct{}{}
	server.changed()
	session.take(conn, alone, lease)
	server.mu.Unlock()
	detach = func() {
		server.disconnected(conn)
		session.disconnected(conn)
	}
	select {
	case <-alone:
		return detach, nil
	case <-ctx.Done():
		detach()
		return nil, context.Cause(ctx)
	}
}

// doorConnection is a connection of another door.
type doorConnection struct{ end func(why error) error }

func (c *doorConnection) CloseWith(why error) error { return c.end(why) }

// End ends the session and its processes.
func (s *Session) End() {
	server := s.session.server
	server.mu.Lock()
	ids := s.session.endLocked()
	server.mu.Unlock()
	server.terminate(ids, "client is gone")
}

// Hold counts something that keeps resources of the machine, together with what clients of the other door keep;
// release is called once it does no more.
func (s *Session) Hold(what string) (release func(), err error) { return s.session.server.hold(what) }

// Env is the environment as the session sees it: a process belongs to the session and lives under its lease, and its id
// is the session's own. Closing it does nothing.
func (s *Session) Env() env.Env { return sessionEnv{s.session.server.env, s.session} }

type sessionEnv struct {
	env.Env
	session *session
}

// Start implements [env.Runner].
func (e sessionEnv) Start(ctx context.Context, command env.Command) (env.Process, error) {
	if command.ID == "" {
		command.ID = uuid.NewString()
	}
	p, err := e.session.start(ctx, command)
	if err != nil {
		return nil, err
	}
	return e.session.held(p), nil
}

// Attach implements [env.Runner].
func (e sessionEnv) Attach(ctx context.Context, id string, how env.Attach) (env.Process, error) {
	p, err := e.session.attach(ctx, id, how)
	if err != nil {
		return nil, err
	}
	return e.session.held(p), nil
}

// Processes implements [env.Runner].
func (e sessionEnv) Processes(ctx context.Context) ([]env.ProcessInfo, error) {
	processes, err := e.session.processes(ctx)
	for i := range processes {
		processes[i].ID = e.session.own(processes[i].ID)
	}
	return processes, err
}

// Signal implements [env.Runner].
func (e sessionEnv) Signal(ctx context.Context, id string, sig env.Signal) error {
	_, err := serveSignal(ctx, e.session, signalParams{wire.Text(id), sig})
	return err
}

// Terminate implements [env.Runner].
func (e sessionEnv) Terminate(ctx context.Context, id string, grace time.Duration) error {
	_, err := find(e.session, id, func(id string) (none, error) {
		return none{}, e.Env.Terminate(ctx, id, grace)
	})
	return err
}

// Close implements [env.Env].
func (e sessionEnv) Close() error { return nil }

// own is the session's own id of a process, SESSION/ID of another's.
func (s *session) own(id string) string { return strings.TrimPrefix(id, s.id+"/") }

// heldProcess is an attachment of the session's.
type heldProcess struct {
	env.Process
	session *session
	detach  sync.Once
}

func (s *session) held(p env.Process) *heldProcess {
	s.server.relaying(+1)
	return &heldProcess{Process: p, session: s}
}

// ID implements [env.Process].
func (p *heldProcess) ID() string { return p.session.own(p.Process.ID()) }

// Output implements [env.Process].
func (p *heldProcess) Output(ctx context.Context) iter.Seq2[env.Chunk, error] {
	return func(yield func(env.Chunk, error) bool) {
		for chunk, err := range p.Process.Output(ctx) {
			if !yield(chunk, err) || err != nil {
				return
			}
		}
		p.session.server.release(p.Process.ID())
	}
}

// Close implements [env.Process].
func (p *heldProcess) Close() error {
	err := p.Process.Close()
	p.detach.Do(func() { p.session.server.relaying(-1) })
	return err
}
