package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"waldo/env"
	"waldo/wire"
)

// session is a client as the server remembers it across connections.
type session struct {
	server  *Server
	id      string
	origin  Origin
	journal journal

	// Guarded by server.mu.
	conn  *wire.Conn // the current one, nil while detached
	lease time.Duration
	timer *time.Timer // ends the session, while detached
	until time.Time   // when the timer fires
	ended bool
}

// peer is one connection and the session it speaks for.
type peer struct {
	server  *Server
	conn    *wire.Conn
	origin  Origin
	session *session
	alone   chan struct{} // closed when the connection it took over from has ended
}

// serve serves one call; HELLO has been accepted.
func (p *peer) serve(ctx context.Context, call *wire.Call) error {
	select {
	case <-p.alone:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	serve := methods[call.Method()]
	if serve == nil {
		return fmt.Errorf("%w: unknown method %q", wire.Unsupported, call.Method())
	}
	err := serve(ctx, p.session, call)
	p.server.options.Log.Debug("call", "method", call.Method(), "session", p.session.id, "error", err)
	return err
}

// welcome opens or takes over the session that hello asks for.
func (s *Server) welcome(p *peer, hello wire.Hello) (wire.Welcome, error) {
	if hello.Expect != "" && hello.Expect != s.instance {
		return wire.Welcome{}, fmt.Errorf("%w: its processes are gone", wire.Restarted)
	}
	if strings.ContainsAny(hello.Session, "/\x00") || len(hello.Session) > 128 {
		return wire.Welcome{}, fmt.Errorf("%w: session id %q", wire.Invalid, hello.Session)
	}
	lease := s.options.DefaultLease
	if hello.Lease > 0 {
		lease = time.Duration(min(hello.Lease, s.options.MaxLease.Milliseconds())) * time.Millisecond
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return wire.Welcome{}, fmt.Errorf("%w: server is shutting down", wire.Restarted)
	}
	known := s.sessions[hello.Session]
	resumed := known != nil
	if !resumed {
		if hello.Expect != "" {
			return wire.Welcome{}, fmt.Errorf("%w: session %s is gone", wire.Expired, hello.Session)
		}
		id := hello.Session
		if id == "" {
			id = uuid.NewString()
		}
		known = &session{server: s, id: id, origin: p.origin}
		s.sessions[id] = known
	}
	if old := known.conn; old != nil {
		s.tasks.Go(func() {
			old.CloseWith(fmt.Errorf("%w: another connection of the session", wire.Fenced)) //nolint:errcheck // returns nil
			close(p.alone)
		})
	} else {
		close(p.alone)
	}
	known.conn, known.lease = p.conn, lease
	known.stopTimer()
	p.session = known
	return wire.Welcome{
		Instance:    s.instance,
		Server:      s.options.Name,
		Resumed:     resumed,
		Lease:       lease.Milliseconds(),
		Environment: s.info,
	}, nil
}

// stopTimer ends the detached state. server.mu is held.
func (s *session) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer, s.until = nil, time.Time{}
}

// disconnected starts the lease, unless another connection has taken over.
func (s *session) disconnected(conn *wire.Conn) {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.conn != conn || s.ended || s.server.closed {
		return
	}
	s.conn = nil
	s.until = time.Now().Add(s.lease)
	s.timer = time.AfterFunc(s.lease, s.expire)
}

// expire ends a session whose lease has run out.
func (s *session) expire() {
	server := s.server
	server.mu.Lock()
	if s.conn != nil || s.ended || server.closed || time.Now().Before(s.until) {
		server.mu.Unlock()
		return
	}
	ids := s.endLocked()
	server.tasks.Go(func() { server.terminate(ids, "lease ended") })
	server.mu.Unlock()
}

// endLocked takes the session out of the table and returns the processes that lived under its lease.
func (s *session) endLocked() (ids []string) {
	s.ended = true
	s.stopTimer()
	delete(s.server.sessions, s.id)
	for id, holder := range s.server.holders {
		if holder == s {
			delete(s.server.holders, id)
			ids = append(ids, id)
		}
	}
	return ids
}

// stop keeps the lease from ending. server.mu is held.
func (s *session) stop() {
	s.ended = true
	s.stopTimer()
}

// terminate ends processes side by side.
func (s *Server) terminate(ids []string, why string) {
	done := make(chan struct{})
	for _, id := range ids {
		go func() {
			defer func() { done <- struct{}{} }()
			err := s.env.Terminate(s.ctx, id, s.options.Grace)
			if err != nil && !errors.Is(err, env.ErrUnknownProcess) {
				s.options.Log.Warn("cannot end a process", "process", id, "why", why, "error", err)
			}
		}()
	}
	for range ids {
		<-done
	}
}

// hold puts a process under the session's lease, and fails when that has ended.
func (s *session) hold(id string) (undo func(), err error) {
	server := s.server
	server.mu.Lock()
	defer server.mu.Unlock()
	if s.ended {
		return nil, fmt.Errorf("%w: session %s", wire.Expired, s.id)
	}
	before, held := server.holders[id]
	server.holders[id] = s
	return func() {
		server.mu.Lock()
		defer server.mu.Unlock()
		if held {
			server.holders[id] = before
		} else {
			delete(server.holders, id)
		}
	}, nil
}

// leaseLeft is the time that process id has left while its client is away; 0 while that is connected.
func (s *Server) leaseLeft(id string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if holder := s.holders[id]; holder != nil && holder.conn == nil {
		return time.Until(holder.until)
	}
	return 0
}

// qualify makes the server-wide id of a process from one that a client used: its own are named without the
// session.
func (s *session) qualify(id string) string {
	if strings.Contains(id, "/") {
		return id
	}
	return s.id + "/" + id
}

// goodbyeParams end a session.
type goodbyeParams struct {
	Keep bool `json:"keep"` // leave the processes to the lease
}

// serveGoodbye is the last call: the client says what is to become of its processes.
func serveGoodbye(_ context.Context, s *session, params goodbyeParams) (none, error) {
	if params.Keep {
		return none{}, nil
	}
	s.server.mu.Lock()
	ids := s.endLocked()
	s.server.mu.Unlock()
	s.server.terminate(ids, "client said goodbye")
	return none{}, nil
}
