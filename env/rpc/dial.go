package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"waldo/wire"
)

// lingerWithin is how long a closed connection may go on delivering what was written to it.
const lingerWithin = 30 * time.Second

// forwardPiece is what is read of a forwarded connection at a time; there may be many of those.
const forwardPiece = 32 << 10

type dialParams struct {
	Network string    `json:"network"`
	Address wire.Text `json:"address"`
}

// dialed is the HEAD of the answer to dial.
type dialed struct {
	Connected bool `json:"connected"`
}

// forwardControl is a CONTROL message of a forwarded connection.
type forwardControl struct {
	EOF *none `json:"eof,omitempty"` // this end writes no more
}

// halfCloser is a connection that can be closed for writing alone.
type halfCloser interface {
	CloseWrite() error
}

// serveDial joins a call to a connection. Each direction has a goroutine of its own, so that neither waits for
// the other. The client's END closes the connection once all that came before is written.
func serveDial(ctx context.Context, s *session, call *wire.Call) error {
	var params dialParams
	if err := call.Params(&params); err != nil {
		return err
	}
	conn, err := s.server.env.Dial(ctx, params.Network, string(params.Address))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // there is nothing to be done about it
	if err := call.Reply(dialed{Connected: true}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	context.AfterFunc(ctx, func() { conn.Close() }) // frees who reads and who writes

	read := make(chan error, 1)
	tasks.Go(func() {
		err := sendAll(ctx, call, conn)
		if err == nil {
			err = call.Control(forwardControl{EOF: &none{}})
		}
		read <- err
	})
	wrote := make(chan error, 2)
	tasks.Go(func() { writeAll(ctx, call, conn, wrote) })
	var refused error // why conn takes no more; it may still have something to say
	for reading, writing := true, true; reading || writing; {
		select {
		case err := <-read:
			if err != nil {
				return err
			}
			reading = false
		case err := <-wrote:
			if err == errClosed {
				return nil
			}
			refused, writing = err, false
		}
	}
	return refused
}

var errClosed = errors.New("the client has closed the connection")

// writeAll writes to conn what the client sends. It tells once, when that can be no more, nil or why; and then
// errClosed, when the client has closed the connection or is gone.
func writeAll(ctx context.Context, call *wire.Call, conn net.Conn, told chan<- error) {
	defer func() { told <- errClosed }()
	for over := false; ; {
		event, err := call.Receive(ctx)
		if err != nil {
			return
		}
		switch event.Kind {
		case wire.DataEvent:
			if !over {
				if _, err := conn.Write(event.Data); err != nil {
					told <- err
					over = true
				}
			}
			call.Took(event)
		case wire.ControlEvent:
			if over {
				continue
			}
			if half, can := conn.(halfCloser); can {
				half.CloseWrite() //nolint:errcheck // a connection that is gone is noticed by its reader
			}
			told <- nil
			over = true
		case wire.EndEvent:
			return
		}
	}
}

// sendAll sends what r has until its end.
func sendAll(ctx context.Context, call *wire.Call, r io.Reader) error {
	framed := make([]byte, wire.HeaderSize+forwardPiece)
	for {
		n, err := r.Read(framed[wire.HeaderSize:])
		if n > 0 {
			wire.PutDataHeader(framed, 0, n)
			if err := call.SendFramed(ctx, framed[:wire.HeaderSize+n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// Dial implements [env.Dialer]. A connection does not outlive the loss of the one below it.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	request := wire.Request{Method: methodDial, Params: dialParams{network, wire.Text(address)}}
	begun, err := open(ctx, c.link, request, func(answer dialed) bool { return answer.Connected })
	if err != nil {
		return nil, err
	}
	return newForwarded(c.link, begun.Call, forwardedAddr{network, address}), nil
}

// forwarded is the client's end of a connection that the server made.
type forwarded struct {
	link   *link
	call   *wire.Call
	remote forwardedAddr

	reading, writing deadline // passed for ever once it is closed
	closing          sync.Once
	closed           chan struct{}

	rmu   sync.Mutex // one reader
	event wire.Event // rest is what is left of it
	rest  []byte
	eof   bool

	wmu  sync.Mutex // one writer
	done bool       // CloseWrite was called
}

func newForwarded(link *link, call *wire.Call, remote forwardedAddr) *forwarded {
	f := &forwarded{link: link, call: call, remote: remote, closed: make(chan struct{})}
	f.reading.over, f.writing.over = make(chan struct{}), make(chan struct{})
	return f
}

// failed is the error of this end's doing, if there is one.
func (f *forwarded) failed(d *deadline) error {
	select {
	case <-f.closed:
		return net.ErrClosed
	default:
		return d.Err()
	}
}

func (f *forwarded) Read(b []byte) (int, error) {
	f.rmu.Lock()
	defer f.rmu.Unlock()
	for len(f.rest) == 0 {
		if err := f.failed(&f.reading); err != nil {
			return 0, err
		}
		if f.eof {
			return 0, io.EOF
		}
		event, ok, err := f.call.TryReceive()
		if err != nil {
			return 0, err
		}
		if !ok {
			select {
			case <-f.call.Readable():
			case <-f.reading.Done():
			}
			continue
		}
		switch event.Kind {
		case wire.DataEvent:
			f.event, f.rest = event, event.Data
		case wire.ControlEvent:
			var c forwardControl
			f.eof = json.Unmarshal(event.Data, &c) == nil && c.EOF != nil
		case wire.EndEvent:
			f.eof = true
		}
	}
	if err := f.failed(&f.reading); err != nil {
		return 0, err
	}
	n := copy(b, f.rest)
	if f.rest = f.rest[n:]; len(f.rest) == 0 {
		f.call.Took(f.event)
	}
	return n, nil
}

func (f *forwarded) Write(b []byte) (int, error) {
	f.wmu.Lock()
	defer f.wmu.Unlock()
	if err := f.failed(&f.writing); err != nil {
		return 0, err
	}
	if f.done {
		return 0, fmt.Errorf("write after CloseWrite: %w", net.ErrClosed)
	}
	before := f.call.Sent()
	err := f.call.Send(&f.writing, 0, b)
	if cause := f.failed(&f.writing); err != nil && cause != nil {
		err = cause
	}
	return int(f.call.Sent() - before), err
}

// CloseWrite is a half-close: the far end reads end-of-file, and may still send.
func (f *forwarded) CloseWrite() error {
	f.wmu.Lock()
	defer f.wmu.Unlock()
	if err := f.failed(&f.writing); err == net.ErrClosed || f.done {
		return err
	}
	f.done = true
	return f.call.Control(forwardControl{EOF: &none{}})
}

// Close closes the connection, behind what was written.
func (f *forwarded) Close() error {
	f.closing.Do(func() {
		close(f.closed)
		f.reading.end()
		f.writing.end()
		if f.link.task(f.linger) != nil {
			f.call.Close() //nolint:errcheck // returns nil
		}
	})
	return nil
}

// linger ends the call once the far end has taken what was written.
func (f *forwarded) linger() {
	ctx, cancel := context.WithTimeout(f.link.ctx, lingerWithin)
	defer cancel()
	endCall(ctx, f.call)
}

// LocalAddr implements [net.Conn]; the address is not known.
func (f *forwarded) LocalAddr() net.Addr { return forwardedAddr{f.remote.network, ""} }

// RemoteAddr implements [net.Conn].
func (f *forwarded) RemoteAddr() net.Addr { return f.remote }

// SetDeadline implements [net.Conn].
func (f *forwarded) SetDeadline(t time.Time) error {
	return errors.Join(f.SetReadDeadline(t), f.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn].
func (f *forwarded) SetReadDeadline(t time.Time) error { return f.reading.set(t) }

// SetWriteDeadline implements [net.Conn]. It frees a Write that waits for the far end, not one that waits for a
// network that has stalled: that is freed when the connection is given up.
func (f *forwarded) SetWriteDeadline(t time.Time) error { return f.writing.set(t) }

type forwardedAddr struct {
	network, address string
}

func (a forwardedAddr) Network() string { return a.network }
func (a forwardedAddr) String() string  { return a.address }

// deadline is a deadline that can be moved while somebody waits. It is a context, of whoever begins to wait.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{} // closed when it has passed
	ended bool
}

func (d *deadline) set(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return net.ErrClosed
	}
	d.move(t)
	return nil
}

// end makes it have passed, for ever.
func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	d.move(time.Unix(1, 0))
}

// move sets it. d.mu is held.
func (d *deadline) move(t time.Time) {
	if d.timer != nil && !d.timer.Stop() {
		<-d.over // it is about to be closed
	}
	d.timer = nil
	select {
	case <-d.over:
		d.over = make(chan struct{})
	default:
	}
	over := d.over
	switch left := time.Until(t); {
	case t.IsZero():
	case left > 0:
		d.timer = time.AfterFunc(left, func() { close(over) })
	default:
		close(over)
	}
}

// Deadline implements [context.Context].
func (d *deadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements [context.Context].
func (d *deadline) Value(any) any { return nil }

// Done implements [context.Context].
func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// Err implements [context.Context].
func (d *deadline) Err() error {
	select {
	case <-d.Done():
		return os.ErrDeadlineExceeded
	default:
		return nil
	}
}
