package wire

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	yamuxHeader = 12 // version(1) type(1) flags(2) stream(4) length(4)

	// unauthenticatedBytes is how much of a connection the server reads before HELLO is accepted.
	unauthenticatedBytes = 256 << 10

	// joinedBytes is the length up to which a body is copied behind its header: that is cheaper than writev.
	joinedBytes = 4 << 10
)

// transport is the byte stream below yamux. It sends a yamux header and its body in one write (yamux makes
// two), notes when bytes last came, and bounds what an unauthenticated peer may send.
type transport struct {
	net.Conn
	vectored net.Conn // where several buffers can be written with one system call; nil: nowhere
	held     [yamuxHeader]byte
	holds    bool
	joined   []byte
	buffers  net.Buffers
	pair     [2][]byte

	received atomic.Int64 // time of the last received byte, UnixNano
	// The bytes that may still be read until admitted is closed; used by yamux's one reading goroutine alone.
	guarded  bool
	budget   int64
	admitted chan struct{}

	failed  func(error) // told why reading or writing has ended, before yamux is
	closing sync.Once
	closed  chan struct{}
}

func newTransport(c net.Conn, failed func(error)) *transport {
	t := &transport{Conn: c, failed: failed, vectored: vectored(c), admitted: make(chan struct{}), closed: make(chan struct{})}
	t.received.Store(time.Now().UnixNano())
	return t
}

// vectored is the connection that can write several buffers with one system call: c itself, or the one that c
// says it writes to unchanged.
func vectored(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *net.TCPConn, *net.UnixConn:
		return c
	case interface{ VectoredConn() net.Conn }:
		return c.VectoredConn()
	}
	return nil
}

// guard lets only unauthenticatedBytes be read until admit is called: the rest waits in the network.
func (t *transport) guard() {
	t.guarded, t.budget = true, unauthenticatedBytes
}

func (t *transport) admit() { close(t.admitted) }

func (t *transport) Read(b []byte) (int, error) {
	if t.guarded {
		if t.budget == 0 {
			select {
			case <-t.admitted:
			case <-t.closed:
				return 0, net.ErrClosed
			}
		}
		select {
		case <-t.admitted:
			t.guarded = false
		default:
			b = b[:min(int64(len(b)), t.budget)]
		}
	}
	n, err := t.Conn.Read(b)
	if n > 0 {
		t.received.Store(time.Now().UnixNano())
		t.budget -= int64(n)
	}
	if err == io.EOF {
		t.failed(ErrCut)
	} else if err != nil {
		t.failed(fmt.Errorf("%w: %v", ErrCut, err))
	}
	return n, err
}

// Write is called by yamux's one sending goroutine: a header, then its body if it has one.
func (t *transport) Write(b []byte) (int, error) {
	n, err := t.write(b)
	if err != nil {
		t.failed(fmt.Errorf("%w: %v", ErrCut, err))
	}
	return n, err
}

func (t *transport) write(b []byte) (int, error) {
	if !t.holds {
		const data = 0
		if len(b) == yamuxHeader && b[1] == data && binary.BigEndian.Uint32(b[8:]) > 0 {
			copy(t.held[:], b)
			t.holds = true
			return len(b), nil
		}
		return t.Conn.Write(b)
	}
	t.holds = false
	if t.vectored != nil && len(b) > joinedBytes {
		t.pair[0], t.pair[1] = t.held[:], b
		t.buffers = t.pair[:]
		n, err := t.buffers.WriteTo(t.vectored)
		return max(0, int(n)-yamuxHeader), err
	}
	t.joined = append(append(t.joined[:0], t.held[:]...), b...)
	n, err := t.Conn.Write(t.joined)
	return max(0, n-yamuxHeader), err
}

// Close closes at once: being polite would wait for a peer that no longer reads, and the END rule makes the
// politeness needless.
func (t *transport) Close() (err error) {
	t.closing.Do(func() {
		close(t.closed)
		switch c := t.Conn.(type) {
		case *tls.Conn:
			err = c.NetConn().Close()
		default:
			err = c.Close()
		}
	})
	return err
}

func (t *transport) lastReceived() time.Time { return time.Unix(0, t.received.Load()) }

// tune sets the socket options and returns the window that suits the connection.
func tune(c net.Conn) uint32 {
	for {
		inner, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = inner.NetConn()
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return minWindow
	}
	tcp.SetNoDelay(true) //nolint:errcheck // it is Go's default, and only slower without
	raw, err := tcp.SyscallConn()
	if err != nil {
		return minWindow
	}
	return windowFor(tuneSocket(raw))
}

// The receive window of a stream.
const (
	minWindow = 1 << 20
	maxWindow = 16 << 20
	// reserve is the part of the window that DATA never fills, so that CONTROL and END always fit.
	reserve = 192 << 10
	// initialCredit is the credit of every direction until an ack raises it.
	initialCredit = minWindow - reserve
)

// windowFor is twice what a path of 1 Gbit/s and this round trip holds, within bounds.
func windowFor(roundTrip time.Duration) uint32 {
	const bytesPerSecond = 125e6
	return uint32(min(max(2*roundTrip.Seconds()*bytesPerSecond, minWindow), maxWindow))
}

var _ io.ReadWriteCloser = (*transport)(nil)
