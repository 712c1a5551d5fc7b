package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"waldo/env"
	"waldo/wire"
)

// session is a client as the server remembers it across connections.
type session struct {
	server *Server
	id     string
	origin Origin
	ctx    context.Context // of what the session has under way: ends with it
	cancel context.CancelCauseFunc

	// Guarded by server.mu.
	holder  string        // the client that speaks for it
	journal *journal      // of that client's operations
	conn    connection    // the current one, nil while detached
	alone   chan struct{} // of the newest peer
	lease   time.Duration
	timer   *time.Timer // ends the session, while detached
	until   time.Time   // when the timer fires
	ended   bool
}

// connection is what speaks for a session, through either door.
type connection interface {
	// CloseWith ends the connection and returns when nothing is done for it any more, or it has waited long enough.
	CloseWith(why error) error
}

// peer is one connection and the session it speaks for.
type peer struct {
	server  *Server
	conn    *wire.Conn
	origin  Origin
	session *session
	alone   chan struct{} // closed when every connection of the session before it has ended
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
	p.server.CountCall(NativeDoor, call.Method(), outcome(err))
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
		lease = s.grant(hello.Lease)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return wire.Welcome{}, fmt.Errorf("%w: server is shutting down", wire.Restarted)
	}
	known := s.sessions[hello.Session]
	resumed := known != nil
	switch {
	case hello.Expect == "":
	case !resumed:
		return wire.Welcome{}, fmt.Errorf("%w: session %s is gone", wire.Expired, hello.Session)
	case known.holder != hello.Holder:
		return wire.Welcome{}, fmt.Errorf("%w: another client has taken session %s over", wire.Fenced, hello.Session)
	}
	if !resumed {
		id := hello.Session
		if id == "" {
			id = uuid.NewString()
		}
		known = s.begin(id, p.origin)
	}
	if known.journal == nil || known.holder != hello.Holder {
		// Operation ids are the client's: another one's begin anew.
		if old := known.journal; old != nil {
			old.abandon(fmt.Errorf("%w: another client has taken session %s over", wire.Fenced, known.id))
			before, ended := known.alone, make(chan struct{})
			known.alone = ended
			s.tasks.Go(func() {
				defer close(ended)
				<-before
				old.await()
			})
		}
		known.holder, known.journal = hello.Holder, new(journal)
	}
	known.take(p.conn, p.alone, lease)
	p.session = known
	return wire.Welcome{
		Instance:    s.instance,
		Server:      s.options.Name,
		Resumed:     resumed,
		Lease:       lease.Milliseconds(),
		Environment: s.info,
	}, nil
}

// grant is what is given to a client that asks for a lease of so many milliseconds.
func (s *Server) grant(lease int64) time.Duration {
	return time.Duration(min(lease, s.options.MaxLease.Milliseconds())) * time.Millisecond
}

// begin makes a session. s.mu is held.
func (s *Server) begin(id string, origin Origin) *session {
	begun := &session{server: s, id: id, origin: origin}
	begun.ctx, begun.cancel = context.WithCancelCause(s.ctx)
	s.sessions[id] = begun
	return begun
}

// take makes conn the session's connection. The one before is fenced; alone is closed when nothing is done for it, nor
// for those before it, any more. server.mu is held.
func (s *session) take(conn connection, alone chan struct{}, lease time.Duration) {
	old, before := s.conn, s.alone
	s.alone = alone
	s.server.tasks.Go(func() {
		if old != nil {
			old.CloseWith(fmt.Errorf("%w: another connection of the session", wire.Fenced)) //nolint:errcheck // it has waited as long as may be
		}
		if before != nil { // who was fenced may itself have waited for another one
			<-before
		}
		close(alone)
	})
	s.conn, s.lease = conn, lease
	s.server.stats.taken(conn, before != nil)
	s.stopTimer()
}

// stopTimer ends the detached state. server.mu is held.
func (s *session) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer, s.until = nil, time.Time{}
}

// disconnected starts the lease, unless another connection has taken over.
func (s *session) disconnected(conn connection) {
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
	s.cancel(s.expired())
	if s.server.sessions[s.id] == s {
		delete(s.server.sessions, s.id)
	}
	for id, held := range s.server.holdings {
		if held.session == s {
			delete(s.server.holdings, id)
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
	var ending sync.WaitGroup
	for _, id := range ids {
		ending.Go(func() {
			err := s.env.Terminate(s.ctx, id, s.options.Grace)
			if err != nil && !errors.Is(err, env.ErrUnknownProcess) {
				s.options.Log.Warn("cannot end a process", "process", id, "why", why, "error", err)
			}
		})
	}
	ending.Wait()
}

// holding is what the server knows of a process beside its environment.
type holding struct {
	session *session // whose lease it lives under
	pid     int
	input   inputKind
	ends    int64 // end-of-files that its standard input has taken
}

// hold puts a process under the session's lease, and fails when that has ended.
func (s *session) hold(id string) (undo func(), err error) {
	server := s.server
	server.mu.Lock()
	defer server.mu.Unlock()
	if s.ended {
		return nil, s.expired()
	}
	before := server.holdings[id]
	held := new(holding)
	if before != nil {
		*held = *before
	}
	held.session = s
	server.holdings[id] = held
	return func() {
		server.mu.Lock()
		defer server.mu.Unlock()
		switch {
		case server.holdings[id] != held:
		case before != nil:
			server.holdings[id] = before
		default:
			delete(server.holdings, id)
		}
	}, nil
}

func (s *session) expired() error { return fmt.Errorf("%w: session %s", wire.Expired, s.id) }

// started notes what a process that was held is like, and ends it when the session has ended meanwhile.
func (s *session) started(p env.Process, input inputKind) error {
	server := s.server
	server.mu.Lock()
	held := server.holdings[p.ID()]
	if held != nil && held.pid != p.Pid() {
		held.pid, held.input, held.ends = p.Pid(), input, 0
	}
	server.mu.Unlock()
	if held == nil {
		server.terminate([]string{p.ID()}, "session ended")
		return s.expired()
	}
	return nil
}

// inputOf tells what is known of a process's standard input.
func (s *Server) inputOf(id string) (kind inputKind, ends int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.holdings[id]; held != nil {
		return held.input, held.ends
	}
	return "", 0
}

// inputEnded counts an end-of-file that a process's standard input has taken.
func (s *Server) inputEnded(id string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.holdings[id]
	if held == nil {
		return 0
	}
	held.ends++
	return held.ends
}

// release forgets a process whose output has closed: nothing of it is left to be ended.
func (s *Server) release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holdings, id)
}

// leaseLeft is the time that process id has left while its client is away; 0 while that is connected.
func (s *Server) leaseLeft(id string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.holdings[id]; held != nil && held.session.conn == nil {
		return time.Until(held.session.until)
	}
	return 0
}

// qualify makes the server-wide id of one of the session's processes.
func (s *session) qualify(id string) string { return s.id + "/" + id }

// enter finds the operation that call is about in the journal of its client, or makes it; first tells which.
func (s *session) enter(call *wire.Call) (entry *operation, first bool, err error) {
	s.server.mu.Lock()
	journal, fenced := s.journal, s.conn != connection(call.Conn())
	s.server.mu.Unlock()
	if fenced { // the journal may be another client's by now
		return nil, false, fmt.Errorf("%w: another connection of the session", wire.Fenced)
	}
	return journal.enter(s.ctx, call)
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
