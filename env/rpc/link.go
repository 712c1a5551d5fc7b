package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"

	"waldo/env"
	"waldo/wire"
)

// The times of a link.
const (
	attemptWithin = 3 * time.Second // one attempt to connect, dial to HELLO, at the least
	firstBackoff  = 50 * time.Millisecond
	lastBackoff   = 2 * time.Second
	probeAfter    = 1500 * time.Millisecond // of silence while a call waits: ask for a sign of life
	suspectAfter  = 3500 * time.Millisecond // of silence while a call waits: dial beside
	checkEvery    = 500 * time.Millisecond
	clockJump     = 2 * time.Second // wall clock past the monotonic one: the machine slept
)

// link is one session's connection, made anew when it is lost. Its keeper goroutine is the only one that
// greets, judges and replaces.
type link struct {
	options ClientOptions
	holder  string          // names this client among those that speak for the session, one after another
	ctx     context.Context // of the link: ends, with the cause, when it can never connect again
	cancel  context.CancelCauseFunc
	tasks   sync.WaitGroup // the keeper, and every call that is being made
	greeted chan struct{}  // the first HELLO has been answered

	mu      sync.Mutex
	conn    *wire.Conn    // nil while there is none
	changed chan struct{} // closed and made anew when conn changes
	welcome wire.Welcome
	trip    time.Duration // of the HELLO
	waiting int           // calls in flight
	closed  bool
}

// newLink connects, once. The answer to HELLO is not waited for, so that the first calls go out behind it.
func newLink(ctx context.Context, options ClientOptions) (*link, error) {
	l := &link{options: options, holder: uuid.NewString(), changed: make(chan struct{}), greeted: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	conn, answer, err := l.connect(ctx)
	if err != nil {
		l.cancel(err)
		return nil, err
	}
	l.conn = conn
	l.tasks.Go(func() {
		err := answer(l.ctx)
		if errors.Is(err, errHeard) { // and lost: calls may have been answered already
			conn.Close() //nolint:errcheck // a client's connection has no handlers to wait for
			if conn, err = l.attempt(l.ctx); err == nil {
				l.publish(conn)
			}
		}
		if err != nil {
			l.cancel(err)
		}
		close(l.greeted)
		l.keep()
	})
	return l, nil
}

// connect makes a connection and says HELLO; answer waits for what the server says to that.
func (l *link) connect(ctx context.Context) (conn *wire.Conn, answer func(context.Context) error, err error) {
	nc, err := l.options.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	token := l.options.Token
	if l.options.FindToken != nil {
		if token, err = l.options.FindToken(); err != nil {
			nc.Close()
			return nil, nil, err
		}
	}
	if conn, err = wire.Client(nc); err != nil {
		return nil, nil, err
	}
	quiet := conn.LastReceived()
	stop := context.AfterFunc(ctx, func() { nc.Close() }) // frees a write that the network has stalled
	defer stop()
	l.mu.Lock()
	expect := l.welcome.Instance
	l.mu.Unlock()
	began := time.Now()
	hello, err := conn.Hello(wire.Hello{
		Token:   token,
		Client:  l.options.Name,
		Session: l.options.Session,
		Holder:  l.holder,
		Lease:   l.options.Lease.Milliseconds(),
		Expect:  expect,
	})
	if err != nil {
		conn.Close() //nolint:errcheck // returns nil
		return nil, nil, err
	}
	return conn, func(ctx context.Context) error {
		welcome, err := hello(ctx)
		if errors.Is(err, wire.ErrCut) && conn.LastReceived() != quiet {
			return fmt.Errorf("%w: %w", errHeard, err)
		}
		if err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.welcome, l.trip = welcome, time.Since(began)
		return nil
	}, nil
}

// errHeard says of a connection that was cut before HELLO was answered that the other end had spoken.
var errHeard = errors.New("cut while greeting")

// ready waits for the answer to the first HELLO.
func (l *link) ready(ctx context.Context) error {
	select {
	case <-l.greeted:
		return context.Cause(l.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// final tells whether an error of HELLO cannot be cured by trying again.
func final(err error) bool {
	for _, code := range []wire.Code{wire.Unauthenticated, wire.Restarted, wire.Expired, wire.Fenced, wire.Invalid, wire.Unsupported} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// keep is the keeper goroutine: it watches the connection and replaces it.
func (l *link) keep() {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	last := time.Now()
	var known *wire.Conn
	var since time.Time
	for {
		conn, waiting := l.current()
		if conn != known {
			known, since = conn, time.Now()
		}
		if l.ctx.Err() != nil {
			if conn != nil {
				conn.CloseWith(context.Cause(l.ctx)) //nolint:errcheck // returns nil
			}
			return
		}
		slept := false
		select {
		case <-l.ctx.Done():
			continue
		case <-conn.Done():
			l.replace(conn, time.Since(since), conn.Err())
			last = time.Now()
			continue
		case <-ticker.C:
			now := time.Now()
			slept = now.Round(0).Sub(last.Round(0))-now.Sub(last) > clockJump
			last = now
		}
		silence := conn.Silence()
		switch {
		case slept, waiting && silence > suspectAfter:
			l.beside(conn)
			last = time.Now()
		case waiting && silence > probeAfter:
			conn.Ping()
		}
	}
}

func (l *link) current() (conn *wire.Conn, waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn, l.waiting > 0
}

// publish makes conn the one that calls use; nil while there is none.
func (l *link) publish(conn *wire.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	close(l.changed)
	l.changed = make(chan struct{})
}

// replace connects again after a loss, until the lease has ended. A server that ends what it has just accepted is not
// besieged.
func (l *link) replace(lost *wire.Conn, lived time.Duration, why error) {
	l.publish(nil)
	lost.Close() //nolint:errcheck // returns nil
	l.options.Log.Info("connection lost", "error", why)
	if l.options.Status != nil {
		l.options.Status(why)
	}
	if lived < firstBackoff {
		select {
		case <-time.After(firstBackoff):
		case <-l.ctx.Done():
		}
	}
	deadline := time.NewTimer(l.lease())
	defer deadline.Stop()
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		conn, err := l.attempt(l.ctx)
		if err == nil {
			l.publish(conn)
			l.options.Log.Info("connection is back")
			if l.options.Status != nil {
				l.options.Status(nil)
			}
			return
		}
		if final(err) {
			l.cancel(err)
			return
		}
		why = err
		pause := time.NewTimer(backoff/2 + rand.N(backoff))
		select {
		case <-pause.C:
		case <-deadline.C:
			pause.Stop()
			l.cancel(fmt.Errorf("%w: not connected for %v: %w", env.ErrExpired, l.lease(), why))
			return
		case <-l.ctx.Done():
			pause.Stop()
			l.cancel(context.Cause(l.ctx))
			return
		}
	}
}

var errSpoke = errors.New("the old connection speaks again")

// beside dials while a connection that has gone silent is still there, and takes over; if the old one speaks
// first it is kept.
func (l *link) beside(old *wire.Conn) {
	ctx, cancel := context.WithCancelCause(l.ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		ticker := time.NewTicker(checkEvery / 5)
		defer ticker.Stop()
		for silent := old.LastReceived(); ; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if old.LastReceived() != silent {
					cancel(errSpoke)
					return
				}
			}
		}
	})
	old.Ping()
	conn, err := l.attempt(ctx)
	spoke := errors.Is(context.Cause(ctx), errSpoke)
	cancel(nil)
	listening.Wait()
	switch {
	case err == nil: // the server has fenced the old one by now
		l.publish(conn)
		old.CloseWith(fmt.Errorf("%w: replaced after %v of silence", wire.ErrCut, old.Silence().Round(time.Millisecond))) //nolint:errcheck // returns nil
	case !spoke && final(err):
		l.cancel(err)
	}
	// Otherwise the keeper looks again.
}

// attempt connects and greets, once and within bounds.
func (l *link) attempt(ctx context.Context) (*wire.Conn, error) {
	l.mu.Lock()
	within := max(attemptWithin, 8*l.trip)
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, answer, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := answer(ctx); err != nil {
		conn.Close() //nolint:errcheck // returns nil
		return nil, err
	}
	return conn, nil
}

// get waits for a connection.
func (l *link) get(ctx context.Context) (*wire.Conn, error) {
	for {
		l.mu.Lock()
		conn, changed := l.conn, l.changed
		l.mu.Unlock()
		if conn != nil && conn.Err() == nil {
			return conn, nil
		}
		select {
		case <-changed: // by the keeper, which sees the end of a connection too
		case <-l.ctx.Done():
			return nil, context.Cause(l.ctx)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// begin and end count the calls that wait for the server: while there is one, silence is suspect.
func (l *link) begin() {
	l.mu.Lock()
	l.waiting++
	l.mu.Unlock()
}

func (l *link) end() {
	l.mu.Lock()
	l.waiting--
	l.mu.Unlock()
}

// connectionLost tells whether err is a cut that came with the end of the connection, so that the next one may
// do better. A stream may notice that a moment before its connection does.
func connectionLost(conn *wire.Conn, err error) bool {
	if !errors.Is(err, wire.ErrCut) {
		return false
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-conn.Done():
		return true
	case <-timer.C:
		return false
	}
}

// task makes a goroutine of the link, unless that is closed.
func (l *link) task(f func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return context.Cause(l.ctx)
	}
	l.tasks.Go(f)
	return nil
}

// do makes a call, and makes it again on the next connection when it was cut. It returns when ctx ends even
// if the network has stalled a write.
func do[R any](ctx context.Context, l *link, request wire.Request, attempt func(context.Context, *wire.Conn) (R, error)) (result R, err error) {
	l.begin()
	defer l.end()
	type outcome struct {
		result R
		err    error
	}
	for tried := false; ; tried = true {
		if ctx.Err() != nil {
			return result, fmt.Errorf("%s: %w", request.Method, context.Cause(ctx))
		}
		conn, err := l.get(ctx)
		if err != nil {
			return result, failed(request, tried, err)
		}
		done := make(chan outcome)
		err = l.task(func() { // it ends with the connection at the latest
			result, err := attempt(ctx, conn)
			select {
			case done <- outcome{result, err}:
			case <-ctx.Done(): // nobody waits
				if c, ok := any(result).(io.Closer); ok && err == nil {
					c.Close() //nolint:errcheck // nobody wants it
				}
			}
		})
		if err != nil {
			return result, failed(request, tried, err)
		}
		select {
		case o := <-done:
			if !errors.Is(o.err, wire.ErrCut) {
				return o.result, o.err
			}
			if !connectionLost(conn, o.err) {
				return result, failed(request, true, o.err)
			}
		case <-ctx.Done():
		}
	}
}

// failed is the error of a call that gets no answer any more; tried says that it was sent.
func failed(request wire.Request, tried bool, err error) error {
	if request.Op != 0 && tried {
		err = fmt.Errorf("%w: %w", env.ErrUnknownOutcome, err)
	}
	return fmt.Errorf("%s: %w", request.Method, err)
}

// close ends the link and waits for the keeper and for the calls.
func (l *link) close() {
	l.cancel(fmt.Errorf("environment: %w", net.ErrClosed)) // first: it is what a closed link says
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.tasks.Wait()
}

// greeting is what the server said last, and how long that took.
func (l *link) greeting() (wire.Welcome, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.welcome, l.trip
}

func (l *link) lease() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.welcome.Lease) * time.Millisecond
}
