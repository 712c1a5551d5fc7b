package jsonrpc

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	opText  = 0x1
	opClose = 0x8
	opPing  = 0x9
	final   = 0x80

	maxControl = 125 // bytes in a control frame
	// maxWaiting is how much of control frames may wait. Pongs beyond it are left out: there is no need to answer every
	// ping.
	maxWaiting = 16 << 10
)

// socket is the byte stream below a WebSocket. Data frames are written by writeText, and control frames get in between
// them; Write, which the library uses for control frames alone, each in one call, never waits.
type socket struct {
	stream   io.ReadWriteCloser
	writer   io.Writer // the stream, or what takes several buffers at once
	mask     bool      // a client's frames are masked
	received atomic.Int64
	scratch  []byte // of whoever writes

	mu      sync.Mutex
	idle    sync.Cond       // for busy
	busy    bool            // somebody writes, and takes what waits along
	waiting []byte          // whole control frames
	marks   []chan struct{} // closed when what waits is out
	closed  bool            // a close frame is out or waits
	err     error           // of writing; final
}

func newSocket(stream io.ReadWriteCloser, mask bool) *socket {
	s := &socket{stream: stream, writer: stream, mask: mask}
	s.idle.L = &s.mu
	if v, ok := stream.(interface{ VectoredConn() net.Conn }); ok {
		if c := v.VectoredConn(); c != nil {
			s.writer = c
		}
	}
	return s
}

// Read reads from the stream.
func (s *socket) Read(p []byte) (int, error) {
	n, err := s.stream.Read(p)
	s.received.Add(int64(n))
	return n, err
}

// Close lets go out what waits, for a moment, and closes the stream.
func (s *socket) Close() error {
	s.mu.Lock()
	var out <-chan struct{}
	if s.err == nil && (s.busy || len(s.waiting) > 0) {
		out = s.mark()
	}
	s.mu.Unlock()
	if out != nil {
		patience := time.NewTimer(goodbyeWithin)
		defer patience.Stop()
		select {
		case <-out:
		case <-patience.C:
		}
	}
	return s.stream.Close()
}

// settle waits until nobody writes any more. The stream has been closed.
func (s *socket) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.busy {
		s.idle.Wait()
	}
}

// Write takes one or more whole control frames.
func (s *socket) Write(frames []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isClose := frames[0]&0xf == opClose
	switch {
	case s.err != nil:
		return 0, s.err
	case isClose && s.closed, !isClose && len(s.waiting)+len(frames) > maxWaiting:
		return len(frames), nil
	}
	s.closed = s.closed || isClose
	s.waiting = append(s.waiting, frames...)
	s.flushLater()
	return len(frames), nil
}

// control sends a control frame. The channel, nil if nothing can be sent any more, is closed when it is out, or never
// will be.
func (s *socket) control(op byte, payload []byte) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.closed {
		return nil
	}
	s.closed = op == opClose
	s.waiting = s.appendFrame(s.waiting, op|final, payload)
	return s.mark()
}

// mark makes a channel that is closed when all that waits now has been written. It is called with the lock.
func (s *socket) mark() <-chan struct{} {
	out := make(chan struct{})
	s.marks = append(s.marks, out)
	s.flushLater()
	return out
}

// flushLater makes sure that somebody writes what waits. It is called with the lock.
func (s *socket) flushLater() {
	if s.busy {
		return
	}
	s.busy = true
	go s.finish() // settle waits for it
}

// finish writes what waits and gives up being the one who writes.
func (s *socket) finish() {
	for {
		s.mu.Lock()
		if s.err != nil || len(s.waiting) == 0 && len(s.marks) == 0 {
			for _, m := range s.marks {
				close(m)
			}
			s.marks = nil
			s.busy = false
			s.idle.Broadcast()
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		s.flush(nil) //nolint:errcheck // it stays in s.err
	}
}

// flush writes the scratch buffer, a payload, and control frames behind them. The caller is the one who writes.
func (s *socket) flush(payload []byte) error {
	s.mu.Lock()
	control, marks := s.waiting, s.marks
	s.waiting, s.marks = nil, nil
	s.mu.Unlock()
	var buffers net.Buffers
	for _, b := range [][]byte{s.scratch, payload, control} {
		if len(b) > 0 {
			buffers = append(buffers, b)
		}
	}
	_, err := buffers.WriteTo(s.writer)
	s.scratch = s.scratch[:0]
	if err != nil {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	for _, m := range marks {
		close(m)
	}
	return err
}

// writeText sends messages as text.
func (s *socket) writeText(messages [][]byte) error {
	s.mu.Lock()
	for s.busy {
		s.idle.Wait()
	}
	if s.err != nil {
		s.mu.Unlock()
		return s.err
	}
	s.busy = true
	s.mu.Unlock()
	defer s.finish()
	for _, m := range messages {
		if err := s.message(m); err != nil {
			return err
		}
	}
	if len(s.scratch) > 0 {
		return s.flush(nil)
	}
	return nil
}

// message writes one message, or keeps it in the scratch buffer.
func (s *socket) message(m []byte) error {
	op, size := byte(opText), len(m)
	if size > fragmentAbove {
		size = fragment
	}
	for {
		part := m[:min(size, len(m))]
		m = m[len(part):]
		if len(m) == 0 {
			op |= final
		}
		if err := s.frame(op, part); err != nil {
			return err
		}
		if len(m) == 0 {
			return nil
		}
		op = 0 // continuation
	}
}

// frame writes one frame. Small ones are gathered, the payload of large ones is not copied unless it has to be masked.
func (s *socket) frame(op byte, payload []byte) error {
	const gather = 16 << 10
	if len(payload) <= gather || s.mask {
		s.scratch = s.appendFrame(s.scratch, op, payload)
		if len(s.scratch) < maxBatch {
			return nil
		}
		return s.flush(nil)
	}
	s.scratch = s.appendHeader(s.scratch, op, len(payload))
	return s.flush(payload)
}

// appendFrame appends a frame, masked if it is a client's.
func (s *socket) appendFrame(b []byte, op byte, payload []byte) []byte {
	b = s.appendHeader(b, op, len(payload))
	if !s.mask {
		return append(b, payload...)
	}
	var key [4 << 10]byte
	rand.Read(key[:4])
	b = append(b, key[:4]...)
	for n := 4; n < min(len(key), len(payload)); n *= 2 {
		copy(key[n:], key[:n])
	}
	start := len(b)
	b = append(b, payload...)
	for masked := b[start:]; len(masked) > 0; masked = masked[min(len(key), len(masked)):] {
		subtle.XORBytes(masked, masked[:min(len(key), len(masked))], key[:])
	}
	return b
}

// appendHeader appends a frame's header, as far as the mask.
func (s *socket) appendHeader(b []byte, op byte, size int) []byte {
	var mask byte
	if s.mask {
		mask = 0x80
	}
	switch {
	case size <= maxControl:
		return append(b, op, mask|byte(size))
	case size <= 0xffff:
		return binary.BigEndian.AppendUint16(append(b, op, mask|126), uint16(size))
	default:
		return binary.BigEndian.AppendUint64(append(b, op, mask|127), uint64(size))
	}
}
