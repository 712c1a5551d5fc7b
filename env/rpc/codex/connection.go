package codex

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"waldo/env"
	"waldo/wire"
	"waldo/wire/jsonrpc"
)

// maxCalls is how many calls of a connection may be under way.
const maxCalls = 4096

// endWithin bounds how long the calls of a connection that has ended are waited for.
const endWithin = 5 * time.Second

// stage is how far a connection has come.
type stage int

const (
	fresh   stage = iota
	greeted       // initialize was answered
	ready         // the client has said initialized
)

// connection is one connection. Handle is called by one goroutine; the calls, which it starts, end with ctx.
type connection struct {
	door    *Door
	options ServeOptions
	peer    *jsonrpc.Peer
	ctx     context.Context // of the calls
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	stage   stage
	calls   int
	tasks   sync.WaitGroup // added to under mu, and only while over is nil
	over    error          // why no call begins any more
	session *session
	detach  func()
	handles map[string]*handle
	streams map[string]bool // request ids of bodies that are being streamed
	watch   *missingWatch

	transport *http.Transport // of http/request; nil until the first
}

// Handle implements [jsonrpc.Handler].
func (c *connection) Handle(_ context.Context, r *jsonrpc.Request) error {
	if r.ID.IsZero() {
		return c.notified(r)
	}
	if r.Method == "initialize" {
		result, err := c.initialize(r)
		c.count(r.Method, err)
		if err != nil {
			return c.peer.ReplyError(r.ID, answerOf(err))
		}
		if err := c.peer.Reply(r.ID, result); err != nil {
			return err
		}
		c.session.attach(c)
		return nil
	}
	m, known := methods[r.Method]
	if !known {
		return c.peer.ReplyError(r.ID, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "exec-server stub does not implement `%s` yet", r.Method))
	}
	params, err := m.decode(r.Params)
	if err == nil {
		err = c.admit(m.family)
	}
	var run call
	if err == nil {
		run, err = m.prepare(c, params)
	}
	if err == nil {
		err = c.begin(r, run)
	}
	if err != nil {
		c.count(r.Method, err)
		return c.peer.ReplyError(r.ID, answerOf(err))
	}
	return nil
}

// notified takes a notification. One that is none of the protocol ends the connection, as it does in Codex.
func (c *connection) notified(r *jsonrpc.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Method != "initialized":
		return fmt.Errorf("unexpected notification %q", r.Method)
	case c.stage == fresh:
		return errors.New("initialized came before initialize")
	}
	c.stage = ready
	return nil
}

// admit tells why a call may not be made now.
func (c *connection) admit(family string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.stage {
	case fresh:
		return invalidRequest("client must call initialize before using %s methods", family)
	case greeted:
		return invalidRequest("client must send initialized before using %s methods", family)
	}
	return c.over
}

// begin serves a call in a goroutine of its own.
func (c *connection) begin(r *jsonrpc.Request, run call) error {
	c.mu.Lock()
	if c.calls >= maxCalls {
		c.mu.Unlock()
		run.refused()
		return internal("%d calls of this connection are under way already", maxCalls)
	}
	c.calls++
	c.mu.Unlock()
	err := c.task(func() {
		result, err := run.do(c.ctx)
		c.mu.Lock()
		c.calls--
		over := c.over
		c.mu.Unlock()
		if err != nil && over != nil {
			err = over
		}
		c.count(r.Method, err)
		if err != nil {
			err = c.peer.ReplyError(r.ID, answerOf(err))
		} else {
			err = c.peer.Reply(r.ID, result)
		}
		if run.then != nil {
			run.then(c.ctx)
		}
		if err != nil {
			c.door.options.Log.Debug("an answer was not sent", "remote", c.options.Remote, "error", err)
		}
	})
	if err != nil {
		run.refused()
	}
	return err
}

// task makes a goroutine of the connection, unless that is over.
func (c *connection) task(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over != nil {
		return c.over
	}
	c.tasks.Go(f)
	return nil
}

type initializeParams struct {
	ClientName      string  `json:"clientName"`
	ResumeSessionID *string `json:"resumeSessionId"`
	LeaseSec        *int64  `json:"leaseSec"` // an extension: how long the session outlives the connection
}

type initializeResult struct {
	SessionID       string          `json:"sessionId"`
	EnvironmentInfo environmentInfo `json:"environmentInfo"`
}

// initialize opens or takes over the session that the client asks for.
func (c *connection) initialize(r *jsonrpc.Request) (*initializeResult, error) {
	if c.session != nil {
		return nil, invalidRequest("initialize may only be sent once per connection")
	}
	var params initializeParams
	if err := decode(r.Params, &params); err != nil {
		return nil, err
	}
	lease := defaultLease
	if params.LeaseSec != nil {
		if *params.LeaseSec < 1 || *params.LeaseSec > int64(time.Duration(1<<63-1)/time.Second) {
			return nil, invalidParams("leaseSec must be a positive number of seconds")
		}
		lease = time.Duration(*params.LeaseSec) * time.Second
	}
	var s *session
	if params.ResumeSessionID != nil {
		if s = c.door.find(*params.ResumeSessionID); s == nil {
			return nil, invalidRequest("unknown session id %s", *params.ResumeSessionID)
		}
	} else {
		opened, err := c.door.open(c.options.Origin)
		if err != nil {
			return nil, err
		}
		s = opened
	}
	detach, err := s.rpc.Take(c.ctx, c.taken, lease)
	switch {
	case errors.Is(err, env.ErrExpired):
		return nil, invalidRequest("unknown session id %s", s.id)
	case err != nil:
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.granted(lease)
	c.session, c.detach, c.stage = s, detach, greeted
	return &initializeResult{s.id, c.about()}, nil
}

// taken is told that another connection speaks for the session now, or that the server closes. The client may still
// ask, and is told so.
func (c *connection) taken(why error) error {
	over := why
	if errors.Is(why, wire.Fenced) {
		over = invalidRequest("session has been resumed by another connection")
	}
	err := c.stop(over)
	if !errors.Is(why, wire.Fenced) {
		c.peer.Close(why)
	}
	return err
}

// stop ends the calls, and waits for them, but not for ever.
func (c *connection) stop(why error) error {
	c.mu.Lock()
	if c.over == nil {
		c.over = why
	}
	c.mu.Unlock()
	c.cancel(why)
	ended := make(chan struct{})
	go func() { // ends with the last call
		c.tasks.Wait()
		c.mu.Lock()
		handles, transport := c.handles, c.transport
		c.handles, c.transport = nil, nil
		c.mu.Unlock()
		if transport != nil {
			transport.CloseIdleConnections()
		}
		for _, h := range handles {
			h.close() //nolint:errcheck // nobody is there to be told
		}
		close(ended)
	}()
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: calls still run %v after their connection was given up", wire.Deadline, endWithin)
	}
}

// end is the end of a connection.
func (c *connection) end(why error) {
	if why == nil {
		why = errGone
	}
	if err := c.stop(why); err != nil {
		c.door.options.Log.Warn("a connection ends slowly", "remote", c.options.Remote, "error", err)
	}
	c.mu.Lock()
	session, detach := c.session, c.detach
	c.mu.Unlock()
	if session == nil {
		return
	}
	if c.options.Last {
		session.rpc.End()
	}
	detach()
}
