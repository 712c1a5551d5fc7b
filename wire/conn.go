// Package wire is the native protocol: one call is one exchange on a yamux stream, HEAD, bytes, END.
//
// PROTOCOL.md describes it for a second implementer. A [Conn] carries calls both of whose directions end with
// END; a connection that ends without it is [ErrCut], never a short success. Streams, flow control and
// back pressure per call come from yamux and an application credit above it.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// The times of a connection.
const (
	helloWithin    = 10 * time.Second // an unauthenticated connection lives this long
	pingAfter      = 15 * time.Second // of silence
	deadAfter      = 45 * time.Second // of silence
	maxIdleStreams = 64               // kept for reuse by a client
	maxWaiting     = 8                // goroutines kept for the next calls by a server
	maxCalls       = 4096             // in flight on one connection
	maxEarly       = 64               // streams accepted before HELLO is
	closeWithin    = 10 * time.Second // for the handlers of a connection that was closed
)

// Handler serves the calls of a connection's peer. What it returns becomes the END of the call unless it has
// sent one. ctx ends when the call is cut. Each call has its own goroutine.
type Handler func(ctx context.Context, call *Call) error

// Conn is one connection. A client opens calls on it, a server serves them. It is safe for concurrent use.
type Conn struct {
	transport *transport
	session   *yamux.Session
	window    uint32

	ctx    context.Context // ends, with the cause, when the connection does
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // every goroutine of the connection
	ended  chan struct{}  // closed when they have all ended
	ping   chan struct{}
	trip   atomic.Int64 // the shortest round trip of a ping, in ns; 0 while none has come back

	// Server.
	handler Handler
	accept  func(context.Context, Hello) (Welcome, error)
	greeted chan struct{} // closed when HELLO was answered
	refused error         // why HELLO was refused; read after greeted

	work      chan *Call   // to goroutines that wait for a call
	waiting   atomic.Int64 // how many do
	calls     atomic.Int64 // of the peer, in flight
	helloSeen atomic.Bool

	mu      sync.Mutex
	streams map[*stream]struct{} // those that are read
	idle    []*stream            // of a client, last used last
	closed  bool
}

// Client makes a connection that opens calls on c, which it closes in the end. The first call has to be Hello.
// c's Close must free whoever reads or writes, and not wait for the peer.
func Client(c net.Conn) (*Conn, error) { return new(Conn).start(c) }

// Server makes a connection that serves the calls of the peer on c, which it closes in the end. accept
// answers the HELLO, which has to be the peer's first call; until it has accepted, other calls wait.
func Server(c net.Conn, accept func(context.Context, Hello) (Welcome, error), handler Handler) (*Conn, error) {
	s := &Conn{accept: accept, handler: handler, greeted: make(chan struct{}), work: make(chan *Call)}
	return s.start(c)
}

func (c *Conn) start(nc net.Conn) (*Conn, error) {
	c.window = tune(nc)
	c.transport = newTransport(nc, c.end)
	c.ping, c.ended = make(chan struct{}, 1), make(chan struct{})
	c.streams = map[*stream]struct{}{}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	open := yamux.Client
	if c.handler != nil {
		open = yamux.Server
		c.transport.guard()
	}
	c.mu.Lock() // nothing ends before all has begun
	defer c.mu.Unlock()
	var err error
	if c.session, err = open(c.transport, sessionConfig(c.window)); err != nil {
		nc.Close()
		return nil, fmt.Errorf("start multiplexing: %w", err)
	}
	c.tasks.Go(c.watch)
	c.tasks.Go(c.pinger)
	if c.handler != nil {
		c.tasks.Go(c.serve)
		c.tasks.Go(c.awaitHello)
	}
	return c, nil
}

func sessionConfig(window uint32) *yamux.Config {
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.ConnectionWriteTimeout = 5 * time.Minute
	config.StreamOpenTimeout = 0
	config.StreamCloseTimeout = 30 * time.Second
	config.MaxStreamWindowSize = window
	config.LogOutput, config.Logger = nil, log.New(io.Discard, "", 0)
	return config
}

// Done is closed when the connection has ended; Err then tells why.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Err is nil while the connection lives.
func (c *Conn) Err() error { return context.Cause(c.ctx) }

// lost is Err as the calls show it: always an ErrCut.
func (c *Conn) lost() error {
	cause := c.Err()
	if cause == nil || errors.Is(cause, ErrCut) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrCut, cause)
}

// Silence is how long no byte has come.
func (c *Conn) Silence() time.Duration { return time.Since(c.transport.lastReceived()) }

// LastReceived is when a byte last came.
func (c *Conn) LastReceived() time.Time { return c.transport.lastReceived() }

// Ping asks the peer for a sign of life, which ends the silence; it does not wait.
func (c *Conn) Ping() {
	select {
	case c.ping <- struct{}{}:
	default:
	}
}

// Close ends the connection and every call on it, and waits for its goroutines, handlers among them, but not for
// ever. It is idempotent.
func (c *Conn) Close() error { return c.CloseWith(net.ErrClosed) }

// CloseWith is Close with a cause, which the calls that are cut show.
func (c *Conn) CloseWith(cause error) error {
	c.end(cause)
	timer := time.NewTimer(closeWithin)
	defer timer.Stop()
	select {
	case <-c.ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: handlers still run %v after their connection was closed", Deadline, closeWithin)
	}
}

// end ends the connection without waiting: whoever notices first.
func (c *Conn) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed, c.idle = true, nil
	c.cancel(cause)
	// Every stream before the session: a Read in yamux spins while its session is closing, unless a deadline ends it.
	// Their readers first take what has come.
	for s := range c.streams {
		s.wake()
	}
	c.tasks.Go(func() { c.session.Close() })
	go func() {
		c.tasks.Wait()
		close(c.ended)
	}()
}

// watch ends the connection when yamux does, or when the peer is silent for too long.
func (c *Conn) watch() {
	timer := time.NewTimer(pingAfter)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.session.CloseChan():
			c.end(ErrCut)
			return
		case <-timer.C:
			silence := c.Silence()
			switch {
			case silence >= deadAfter:
				c.end(fmt.Errorf("%w: no byte for %v", ErrCut, silence.Round(time.Second)))
				return
			case silence >= pingAfter:
				c.Ping()
				timer.Reset(min(pingAfter, deadAfter-silence))
			default:
				timer.Reset(pingAfter - silence)
			}
		}
	}
}

// pinger has the one goroutine that may wait for a ping to be sent and answered.
func (c *Conn) pinger() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.ping:
			// The answer counts as received bytes; the lack of one is silence.
			if trip, err := c.session.Ping(); err == nil {
				if shortest := c.trip.Load(); shortest == 0 || int64(trip) < shortest {
					c.trip.Store(int64(trip))
				}
			}
		}
	}
}

const (
	// farData is the payload of the DATA frames that are sent where the peer is far, or nobody knows how far. A
	// keystroke waits for the frame before it, so on a slow line that has to be short.
	farData = 32 << 10
	// near is the round trip below which a line is taken for fast: there a long frame costs a keystroke nothing to
	// speak of, and saves half of the work.
	near = 5 * time.Millisecond
	// lookEvery is the number of frames after which it is looked again whether a far peer is not near after all.
	lookEvery = 64
)

// dataSize is the payload that DATA frames are to have at the most.
func (c *Conn) dataSize() int {
	if trip := c.trip.Load(); trip > 0 && trip < int64(near) {
		return MaxData
	}
	return farData
}

func (c *Conn) serve() {
	for accepted := 0; ; accepted++ {
		if accepted == maxEarly { // the rest waits in the session until HELLO is accepted
			select {
			case <-c.greeted:
			case <-c.ctx.Done():
			}
		}
		y, err := c.session.AcceptStream()
		if err != nil {
			c.end(ErrCut)
			return
		}
		if _, err := c.begin(y); err != nil {
			return
		}
	}
}

// awaitHello closes a connection whose HELLO has not been accepted in time.
func (c *Conn) awaitHello() {
	timer := time.NewTimer(helloWithin)
	defer timer.Stop()
	select {
	case <-c.ctx.Done():
	case <-timer.C:
		c.end(fmt.Errorf("%w: no HELLO within %v", Unauthenticated, helloWithin))
	case <-c.greeted:
		if c.refused == nil {
			return
		}
		// The refusal is on its way; the client closes when it has read it.
		timer.Reset(time.Second)
		select {
		case <-c.ctx.Done():
		case <-timer.C:
			c.end(c.refused)
		}
	}
}

func (c *Conn) settleHello(refused error) {
	c.refused = refused
	close(c.greeted)
}

// serveCall runs a call in a goroutine that waits for one, or in a new one: each new goroutine would have to grow its
// stack first.
func (c *Conn) serveCall(call *Call) {
	select {
	case c.work <- call:
		return
	default:
	}
	c.tasks.Go(func() {
		for {
			call.stream.serve(call)
			call = nil
			if c.waiting.Add(1) > maxWaiting {
				c.waiting.Add(-1)
				return
			}
			select {
			case call = <-c.work:
				c.waiting.Add(-1)
			case <-c.ctx.Done():
				return
			}
		}
	})
}

// dispatch serves one call of the peer: HELLO first, everything else behind it.
func (c *Conn) dispatch(ctx context.Context, call *Call) error {
	if !c.admit() {
		return fmt.Errorf("%w: %d calls are in flight on this connection", Limit, maxCalls)
	}
	defer c.calls.Add(-1)
	if call.method == helloMethod {
		if c.helloSeen.Swap(true) {
			return fmt.Errorf("%w: a second HELLO on a connection", Invalid)
		}
		err := c.hello(ctx, call)
		if err != nil {
			err = call.fail(err) // before the other calls fail, so that it is the first answer
			c.settleHello(err)
		}
		return nil
	}
	select {
	case <-c.greeted:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.refused != nil {
		return c.refused
	}
	return c.handler(ctx, call)
}

// admit counts a call of the peer in, if the limit allows.
func (c *Conn) admit() bool {
	if c.calls.Add(1) <= maxCalls {
		return true
	}
	c.calls.Add(-1)
	return false
}

// stream returns a stream for the next call of a client: an idle one, or a new one.
func (c *Conn) stream() (*stream, error) {
	c.mu.Lock()
	if n := len(c.idle); n > 0 {
		s := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return s, nil
	}
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, c.Err()
	}
	y, err := c.session.OpenStream()
	if err != nil {
		if cause := c.Err(); cause != nil {
			err = cause
		}
		if errors.Is(err, yamux.ErrSessionShutdown) {
			err = ErrCut
		}
		return nil, err
	}
	return c.begin(y)
}

// begin starts reading a stream.
func (c *Conn) begin(y *yamux.Stream) (*stream, error) {
	s := newStream(c, y)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // tasks may be waited for already; the session closes y
		return nil, c.Err()
	}
	c.streams[s] = struct{}{}
	c.tasks.Go(s.read)
	return s, nil
}

// recycle keeps a stream for the next call.
func (c *Conn) recycle(s *stream) {
	c.mu.Lock()
	keep := !c.closed && len(c.idle) < maxIdleStreams
	if keep {
		c.idle = append(c.idle, s)
	}
	c.mu.Unlock()
	if !keep {
		s.cut(errIdle)
	}
}

// forget takes a stream that has ended out of the lists.
func (c *Conn) forget(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, s)
	if i := slices.Index(c.idle, s); i >= 0 {
		c.idle = slices.Delete(c.idle, i, i+1)
	}
}

var errIdle = errors.New("idle stream closed")
