package registry

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// State says how an environment of a registry stands.
type State string

// The states.
const (
	Pending      State = "pending"      // nobody has wanted it yet
	Connecting   State = "connecting"   // for the first time, or after it had failed
	Connected    State = "connected"    // the server has accepted us
	Disconnected State = "disconnected" // the connection is lost; it connects again by itself
	Failed       State = "failed"       // not connected, and not tried again before somebody wants it
)

// Status is a state and what is known with it.
type Status struct {
	State   State
	Err     error         // why, of Disconnected and Failed
	Latency time.Duration // of Connected and Disconnected: from greeting the server to its answer
	Server  string        // name and version
	Since   time.Time
}

// Handle is an environment of a registry: connected to when it is first wanted, and shared by all who want it.
type Handle struct {
	id   string
	spec func() (Spec, error)

	ctx    context.Context
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex
	status  Status
	changed chan struct{} // closed and made anew when status changes
	attempt *attempt      // the newest one
	closed  bool
}

// attempt is one connecting, and the environment that it came to.
type attempt struct {
	done        chan struct{} // closed when environment or err is there
	environment *Environment
	err         error
	gone        bool // the environment can never connect again
}

func newHandle(id string, spec func() (Spec, error)) *Handle {
	h := &Handle{id: id, spec: spec, status: Status{State: Pending, Since: time.Now()}, changed: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h
}

// ID is the environment's id.
func (h *Handle) ID() string { return h.id }

// Status is how it stands now; changed is closed when that is no longer so.
func (h *Handle) Status() (status Status, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status, h.changed
}

// Start begins to connect, if that has not begun.
func (h *Handle) Start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begin() //nolint:errcheck // Open tells
}

// begin makes the attempt that a user of the environment waits for. h.mu is held.
func (h *Handle) begin() (*attempt, error) {
	if h.closed {
		return nil, fmt.Errorf("environment %s: %w", h.id, net.ErrClosed)
	}
	if a := h.attempt; a != nil && !a.gone {
		return a, nil
	}
	a := &attempt{done: make(chan struct{})}
	h.attempt = a
	h.set(Status{State: Connecting})
	h.tasks.Go(func() { h.connect(a) })
	return a, nil
}

// set changes the status. h.mu is held.
func (h *Handle) set(s Status) {
	s.Since = time.Now()
	h.status = s
	close(h.changed)
	h.changed = make(chan struct{})
}

// Open is the environment, once its server has accepted us. It is shared, so nobody but the registry closes it. If
// connecting failed before, it is tried again.
func (h *Handle) Open(ctx context.Context) (*Environment, error) {
	h.mu.Lock()
	a, err := h.begin()
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
		return a.environment, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// connect is the life of an attempt, until its environment is gone.
func (h *Handle) connect(a *attempt) {
	e, err := h.greet(a)
	h.mu.Lock()
	a.environment, a.err = e, err
	if err != nil {
		a.gone = true
		h.set(Status{State: Failed, Err: err})
	} else {
		h.set(Status{State: Connected, Latency: e.Connection().Latency, Server: e.Connection().Server})
	}
	close(a.done)
	h.mu.Unlock()
	if err != nil {
		return
	}
	var why error
	select {
	case <-e.Gone():
		why = e.Explain(e.Ready(context.Background()))
	case <-h.ctx.Done():
		why = context.Cause(h.ctx)
	}
	e.Close() //nolint:errcheck // returns nil
	h.mu.Lock()
	defer h.mu.Unlock()
	a.gone = true
	h.set(Status{State: Failed, Err: why})
}

// greet connects and waits until the server has accepted us.
func (h *Handle) greet(a *attempt) (*Environment, error) {
	spec, err := h.spec()
	if err != nil {
		return nil, err
	}
	spec.Status = func(lost error) { h.lost(a, lost) }
	e, err := Open(h.ctx, spec)
	if err == nil {
		if err = e.Ready(h.ctx); err == nil {
			return e, nil
		}
		if h.ctx.Err() == nil {
			err = e.Explain(err)
		}
		e.Close() //nolint:errcheck // returns nil
	}
	if h.ctx.Err() != nil {
		err = context.Cause(h.ctx)
	}
	return nil, err
}

// lost is told of the loss of a connection, and with nil of its return.
func (h *Handle) lost(a *attempt, lost error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.attempt != a || a.environment == nil || a.gone {
		return
	}
	s := h.status
	s.State, s.Err = Connected, nil
	if lost != nil {
		s.State, s.Err = Disconnected, lost
	}
	h.set(s)
}

// close ends the connection, and every attempt to make one.
func (h *Handle) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel(fmt.Errorf("environment %s: %w", h.id, net.ErrClosed))
	h.tasks.Wait()
}
