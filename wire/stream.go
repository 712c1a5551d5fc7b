package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// stream carries calls one after another. Its reader goroutine, which owns it, never waits for a consumer:
// what a call may queue is bounded by the credit it gave.
type stream struct {
	conn *Conn
	y    *yamux.Stream
	d    *decoder

	wmu sync.Mutex // one frame at a time; whoever waits for it is freed when the stream is cut

	mu   sync.Mutex
	call *Call // the current one, nil between calls
	dead error // why the stream can carry no more
}

func newStream(c *Conn, y *yamux.Stream) *stream {
	return &stream{conn: c, y: y, d: newDecoder(drained{y})}
}

// drained reads a yamux stream to what has come. A Read that waits may end with its deadline though bytes came at
// the same moment; the next one finds them.
type drained struct{ y *yamux.Stream }

func (d drained) Read(b []byte) (int, error) {
	n, err := d.y.Read(b)
	if errors.Is(err, yamux.ErrTimeout) {
		n, err = d.y.Read(b)
	}
	return n, err
}

// read is the reader goroutine: it ends when the stream does, and is the one that closes it.
func (s *stream) read() {
	err := s.frames()
	s.cut(err)
	s.conn.forget(s)
	s.y.Close()
}

func (s *stream) frames() error {
	for {
		f, err := s.d.next()
		if err != nil {
			if errors.Is(err, errProtocol) {
				return fmt.Errorf("%w: %w", ErrCut, err)
			}
			return ErrCut
		}
		if err := s.frame(f); err != nil {
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
	}
}

// frame handles one frame of the peer.
func (s *stream) frame(f frame) error {
	s.mu.Lock()
	call, dead := s.call, s.dead
	s.mu.Unlock()
	// yamux looks at its deadline only when it has nothing to read. What came before the connection was lost still
	// counts; what a call gets that this end has given up does not.
	if dead != nil && !errors.Is(dead, ErrCut) {
		return dead
	}
	if f.kind == kindHead && s.conn.handler != nil {
		if s.conn.Err() != nil {
			return ErrCut
		}
		if call != nil && !call.over() {
			return fmt.Errorf("%w: HEAD in the middle of a call", errProtocol)
		}
		return s.incoming(f.payload)
	}
	if call == nil {
		if f.kind == kindData {
			putBuffer(f.payload)
		}
		return fmt.Errorf("%w: a frame outside of a call", errProtocol)
	}
	return call.receive(f)
}

// head is a call's HEAD, as the caller sends it.
type head struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
	Op     uint64          `json:"op,omitempty"`
	Acked  uint64          `json:"acked,omitempty"`
}

// encode is the JSON of a HEAD. json.Marshal would go through Params once more.
func (h head) encode() ([]byte, error) {
	method, err := json.Marshal(h.Method)
	if err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, len(method)+len(h.Params)+64), `{"method":`...)
	b = append(b, method...)
	if h.Params != nil {
		b = append(append(b, `,"params":`...), h.Params...)
	}
	if h.Op != 0 {
		b = strconv.AppendUint(append(b, `,"op":`...), h.Op, 10)
	}
	if h.Acked != 0 {
		b = strconv.AppendUint(append(b, `,"acked":`...), h.Acked, 10)
	}
	return append(b, '}'), nil
}

// incoming starts serving a call.
func (s *stream) incoming(payload []byte) error {
	var h head
	if err := json.Unmarshal(payload, &h); err != nil {
		return fmt.Errorf("%w: HEAD: %w", errProtocol, err)
	}
	call := newCall(s)
	call.method, call.params, call.op, call.acknowledged = h.Method, h.Params, h.Op, h.Acked
	s.mu.Lock()
	s.call = call
	s.mu.Unlock()
	s.conn.serveCall(call)
	return nil
}

// serve runs one call on the server.
func (s *stream) serve(call *Call) {
	ctx, cancel := context.WithCancelCause(s.conn.ctx)
	defer cancel(nil)
	call.onCut(cancel)
	err := s.conn.dispatch(ctx, call)
	bulk := call.discard()
	if err != nil {
		call.fail(err) //nolint:errcheck // it returns err
	} else {
		call.End(nil) //nolint:errcheck // a cut is the caller's to notice
	}
	if bulk { // last: it waits while a frame of this stream is under way
		s.y.Shrink()
	}
}

// begin makes call the stream's current one, unless the stream has died.
func (s *stream) begin(call *Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead != nil {
		return s.dead
	}
	s.call = call
	return nil
}

// cut makes the stream carry nothing more and tells its call. The reader goroutine closes it.
func (s *stream) cut(err error) {
	s.mu.Lock()
	if s.dead != nil {
		s.mu.Unlock()
		return
	}
	s.dead = err
	call := s.call
	s.mu.Unlock()
	s.wake()
	if call != nil {
		if lost := s.conn.lost(); lost != nil && errors.Is(err, ErrCut) {
			err = lost
		}
		call.cutBy(err)
	}
}

// wake ends what waits inside yamux: a read once it has nothing more to read, a write. It does not wait itself.
func (s *stream) wake() {
	s.y.SetWriteDeadline(time.Unix(1, 0)) //nolint:errcheck // never fails
	s.y.SetReadDeadline(time.Unix(1, 0))  //nolint:errcheck // never fails
}

// write sends whole frames. Any error is final for the stream.
func (s *stream) write(b []byte) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	return s.writeLocked(b)
}

func (s *stream) writeLocked(b []byte) error {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead != nil {
		return dead
	}
	// What a handler makes of its connection's end must not reach the peer as the END of the call.
	if err := s.conn.lost(); err != nil {
		s.cut(err)
		return err
	}
	if _, err := s.y.Write(b); err != nil {
		err = fmt.Errorf("%w: %w", ErrCut, err)
		s.cut(err)
		return err
	}
	return nil
}
