package listen

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// limits are what a connection may use up before it has authenticated, and how long an end may take.
type limits struct {
	unauthenticated int           // connections at a time
	bytes           int           // read of one connection
	time            time.Duration // from accept to authentication
	grace           time.Duration // from the end of Serve's context until connections are cut
	stuck           time.Duration // until doors that do not return are given up
}

var defaultLimits = limits{
	unauthenticated: 64,
	bytes:           256 << 10,
	time:            10 * time.Second,
	grace:           2 * time.Second,
	stuck:           10 * time.Second,
}

var (
	errTooSlow = errors.New("it did not authenticate in time")
	errCrowded = errors.New("too many connections that have not authenticated")
)

// Peer is what is known of the other end of a connection.
type Peer struct {
	// Remote is its address, for people to read.
	Remote string
	// Trusted says that it needs no token: it is known to be the server's own user.
	Trusted bool
	// Note is what the process of this user that passed the connection on has said of it, see SendNote.
	Note []byte

	auth Auth
	gate *gate
	log  *slog.Logger // gets refusals; may be nil
}

// Authenticate lets a connection in: if the peer is trusted or the token is right, the limits that hold before
// authentication end. The native door calls it with the token of HELLO, before it answers. On an error, which is an
// ErrUnauthenticated unless the connection has been dropped, the door answers and closes.
func (p *Peer) Authenticate(token string) error {
	if !p.Trusted {
		if p.auth == nil {
			return noToken{}.Check(token)
		}
		if err := p.auth.Check(token); err != nil {
			if !errors.Is(err, ErrUnauthenticated) {
				err = fmt.Errorf("%w: %w", ErrUnauthenticated, err)
			}
			if p.log != nil {
				p.log.Warn("refused a client", "remote", p.Remote, "reason", err)
			}
			return err
		}
	}
	if p.gate != nil {
		return p.gate.admit()
	}
	return nil
}

// gate is the raw end of an accepted connection. It holds the limits before authentication, and knows when the
// connection has ended and everything that used it has returned.
type gate struct {
	net.Conn
	limits limits
	leave  func(*gate) // takes it out of the list of those that wait, when it is admitted or closed

	open     atomic.Bool   // admitted
	admitted chan struct{} // closed when open
	closed   chan struct{}
	left     int // bytes that may still be read before admission; the reader's own

	mu    sync.Mutex
	timer *time.Timer
	cause error // why the gate itself dropped the connection
	done  bool
	uses  int
	idle  chan struct{} // closed when done and no longer used
}

func newGate(c net.Conn, l limits, leave func(*gate)) *gate {
	g := &gate{
		Conn:     c,
		limits:   l,
		leave:    leave,
		admitted: make(chan struct{}),
		closed:   make(chan struct{}),
		left:     l.bytes,
		idle:     make(chan struct{}),
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(l.time, func() { g.drop(errTooSlow) })
	return g
}

// NetConn is the connection itself, for socket options.
func (g *gate) NetConn() net.Conn { return g.Conn }

// VectoredConn is where a write of several buffers may go instead of to Write, with the same effect.
func (g *gate) VectoredConn() net.Conn { return g.Conn }

// CloseWrite ends the sending direction, where the connection has such a thing.
func (g *gate) CloseWrite() error { return closeWrite(g.Conn) }

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return errors.ErrUnsupported
}

// farewell sends a refusal. Closing with unread input would make the system throw the refusal away, so what the other
// end has sent is read for a moment.
func farewell(c net.Conn, text string) {
	c.SetDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := io.WriteString(c, text); err == nil && closeWrite(c) == nil {
		io.Copy(io.Discard, c)
	}
}

// Read waits, once what may be read before authentication is used up, until the connection is admitted or closed. The
// first calls that a client sends behind its HELLO are so held back and not lost.
func (g *gate) Read(p []byte) (int, error) {
	if g.open.Load() {
		return g.Conn.Read(p)
	}
	if g.left == 0 {
		select {
		case <-g.admitted:
			return g.Conn.Read(p)
		case <-g.closed:
			return 0, g.why(net.ErrClosed)
		}
	}
	if len(p) > g.left {
		p = p[:g.left]
	}
	n, err := g.Conn.Read(p)
	g.left -= n
	if err != nil {
		err = g.why(err)
	}
	return n, err
}

// why is the reason the gate had to drop the connection, or err.
func (g *gate) why(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		return g.cause
	}
	return err
}

// admit ends the limits.
func (g *gate) admit() error {
	g.mu.Lock()
	if g.done {
		cause := g.cause
		g.mu.Unlock()
		if cause == nil {
			cause = net.ErrClosed
		}
		return cause
	}
	if g.open.Load() {
		g.mu.Unlock()
		return nil
	}
	g.timer.Stop()
	g.open.Store(true)
	close(g.admitted)
	g.mu.Unlock()
	g.leave(g)
	return nil
}

// drop closes the connection for a reason, unless it has been admitted.
func (g *gate) drop(cause error) {
	g.mu.Lock()
	if g.done || g.open.Load() {
		g.mu.Unlock()
		return
	}
	g.cause = cause
	g.mu.Unlock()
	g.Close()
}

// Close closes the connection. It may be called more than once.
func (g *gate) Close() error {
	g.mu.Lock()
	if g.done {
		g.mu.Unlock()
		return nil
	}
	g.done = true
	g.timer.Stop()
	close(g.closed)
	if g.uses == 0 {
		close(g.idle)
	}
	g.mu.Unlock()
	err := g.Conn.Close()
	g.leave(g)
	return err
}

// begin counts one more user of the connection, unless it has been closed.
func (g *gate) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return false
	}
	g.uses++
	return true
}

// end undoes begin.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.uses--
	if g.done && g.uses == 0 {
		close(g.idle)
	}
}

// peeked is a connection whose first byte has been looked at and is read again.
type peeked struct {
	net.Conn
	first  byte
	unread bool
	peer   *Peer
}

// peek waits for the first byte.
func peek(c net.Conn, peer *Peer) (*peeked, error) {
	var b [1]byte
	for {
		n, err := c.Read(b[:])
		if n == 1 {
			return &peeked{Conn: c, first: b[0], unread: true, peer: peer}, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Read gives the first byte again, alone, and then what follows.
func (p *peeked) Read(b []byte) (int, error) {
	if p.unread && len(b) > 0 {
		b[0] = p.first
		p.unread = false
		return 1, nil
	}
	return p.Conn.Read(b)
}

// CloseWrite ends the sending direction, where the connection has such a thing.
func (p *peeked) CloseWrite() error { return closeWrite(p.Conn) }

// VectoredConn is where a write of several buffers may go instead of to Write; nil if there is no such thing.
func (p *peeked) VectoredConn() net.Conn {
	if g, ok := p.Conn.(*gate); ok {
		return g.VectoredConn()
	}
	return nil
}

// NetConn is the connection below; unwrapping on, a caller comes to a *net.TCPConn for socket options.
func (p *peeked) NetConn() net.Conn { return p.Conn }
