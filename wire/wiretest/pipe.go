package wiretest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// PipeBuffer is how many bytes each direction of a [Pipe] holds before Write waits.
const PipeBuffer = 64 << 10

// Pipe returns the two ends of a connection in memory. Unlike those of [net.Pipe], its writes do not wait for a
// reader until PipeBuffer bytes are under way. What was written before a Close can still be read. It waits on
// nothing but channels, so it may be used inside a testing/synctest bubble.
func Pipe() (net.Conn, net.Conn) {
	ab, ba := newHalf(), newHalf()
	return &pipeEnd{in: ba, out: ab}, &pipeEnd{in: ab, out: ba}
}

type pipeEnd struct {
	in, out *half
}

func (p *pipeEnd) Read(b []byte) (int, error)  { return p.in.read(b) }
func (p *pipeEnd) Write(b []byte) (int, error) { return p.out.write(b) }

// CloseWrite lets the other end read EOF; this end goes on reading.
func (p *pipeEnd) CloseWrite() error {
	p.out.closeWriter()
	return nil
}

func (p *pipeEnd) Close() error {
	p.out.closeWriter()
	p.in.closeReader()
	return nil
}

func (p *pipeEnd) LocalAddr() net.Addr  { return pipeAddr{} }
func (p *pipeEnd) RemoteAddr() net.Addr { return pipeAddr{} }

func (p *pipeEnd) SetDeadline(t time.Time) error {
	p.in.reader.set(t)
	p.out.writer.set(t)
	return nil
}

func (p *pipeEnd) SetReadDeadline(t time.Time) error {
	p.in.reader.set(t)
	return nil
}

func (p *pipeEnd) SetWriteDeadline(t time.Time) error {
	p.out.writer.set(t)
	return nil
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// half is one direction.
type half struct {
	reader, writer deadline

	mu           sync.Mutex
	buffer       []byte
	writerClosed bool
	readerClosed bool
	changed      chan struct{} // closed and replaced whenever something above changes
}

func newHalf() *half {
	return &half{changed: make(chan struct{}), reader: newDeadline(), writer: newDeadline()}
}

// change wakes whoever waits. h.mu is held.
func (h *half) change() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *half) read(b []byte) (int, error) {
	for {
		expired, moved := h.reader.state()
		select {
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		default:
		}
		h.mu.Lock()
		switch {
		case h.readerClosed:
			h.mu.Unlock()
			return 0, net.ErrClosed
		case len(h.buffer) > 0 || len(b) == 0:
			n := copy(b, h.buffer)
			h.buffer = append(h.buffer[:0], h.buffer[n:]...)
			h.change()
			h.mu.Unlock()
			return n, nil
		case h.writerClosed:
			h.mu.Unlock()
			return 0, io.EOF
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-expired:
		case <-moved:
		}
	}
}

func (h *half) write(b []byte) (written int, err error) {
	for {
		expired, moved := h.writer.state()
		select {
		case <-expired:
			return written, os.ErrDeadlineExceeded
		default:
		}
		h.mu.Lock()
		switch {
		case h.writerClosed:
			h.mu.Unlock()
			return written, net.ErrClosed
		case h.readerClosed:
			h.mu.Unlock()
			return written, io.ErrClosedPipe
		}
		if n := min(len(b), PipeBuffer-len(h.buffer)); n > 0 {
			h.buffer = append(h.buffer, b[:n]...)
			b, written = b[n:], written+n
			h.change()
		}
		changed := h.changed
		h.mu.Unlock()
		if len(b) == 0 {
			return written, nil
		}
		select {
		case <-changed:
		case <-expired:
		case <-moved:
		}
	}
}

func (h *half) closeWriter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writerClosed = true
	h.change()
}

func (h *half) closeReader() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readerClosed = true
	h.buffer = nil
	h.change()
}

// deadline is a point in time that can be moved while others wait for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	ended chan struct{} // closed when the time has come
	moved chan struct{} // closed when it was set anew
}

func newDeadline() deadline {
	return deadline{ended: make(chan struct{}), moved: make(chan struct{})}
}

func (d *deadline) state() (ended, moved <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended, d.moved
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	ended := make(chan struct{})
	d.ended = ended
	close(d.moved)
	d.moved = make(chan struct{})
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		close(ended)
	default:
		d.timer = time.AfterFunc(left, func() { close(ended) })
	}
}
