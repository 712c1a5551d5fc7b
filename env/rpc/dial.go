package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"waldo/wire"
)

type dialParams struct {
	Network string    `json:"network"`
	Address wire.Text `json:"address"`
}

// forwardControl is a CONTROL message of a forwarded connection.
type forwardControl struct {
	EOF *none `json:"eof,omitempty"` // this end writes no more
}

// halfCloser is a connection that can be closed for writing alone.
type halfCloser interface {
	CloseWrite() error
}

func serveDial(ctx context.Context, s *session, call *wire.Call) error {
	var params dialParams
	if err := call.Params(&params); err != nil {
		return err
	}
	conn, err := s.server.env.Dial(ctx, params.Network, string(params.Address))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := call.Reply(none{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer conn.Close() // before waiting: it wakes the reader
	defer cancel(nil)
	fromConn := make(chan error, 1)
	tasks.Go(func() { fromConn <- sendAll(ctx, call, conn) })
	for toConn, closed := true, false; ; {
		event, ok, err := call.TryReceive()
		switch {
		case err != nil:
			return nil // the client is done with it, or gone
		case ok && event.Kind == wire.DataEvent:
			// Writing may wait for the far end. The client's END or a cut ends that too, through the context.
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			_, err := conn.Write(event.Data)
			stop()
			call.Took(event)
			call.Flush()
			if err != nil && toConn {
				toConn = false
				cancel(err)
				return err
			}
		case ok && event.Kind == wire.ControlEvent:
			if half, can := conn.(halfCloser); can && toConn {
				half.CloseWrite() //nolint:errcheck // a connection that is gone is noticed by its reader
			}
			toConn = false
		case ok && event.Kind == wire.EndEvent:
			return nil
		case ok:
		default:
			if !toConn && closed {
				return nil
			}
			select {
			case <-call.Readable():
			case err := <-fromConn:
				if err != nil {
					return err
				}
				if err := call.Control(forwardControl{EOF: &none{}}); err != nil {
					return err
				}
				closed, fromConn = true, nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// sendAll sends what r has until its end.
func sendAll(ctx context.Context, call *wire.Call, r io.Reader) error {
	framed := make([]byte, wire.HeaderSize+wire.MaxData)
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
	return do(ctx, c.link, request, func(ctx context.Context, conn *wire.Conn) (net.Conn, error) {
		call, err := conn.Open(request)
		if err != nil {
			return nil, err
		}
		if _, err := call.Receive(ctx); err != nil {
			call.Close() //nolint:errcheck // returns nil
			return nil, fmt.Errorf("dial %s %s: %w", network, address, err)
		}
		f := &forwarded{call: call, remote: forwardedAddr{network, address}}
		f.ctx, f.cancel = context.WithCancelCause(context.Background())
		f.reading.deadline, f.writing.deadline = make(chan struct{}), make(chan struct{})
		return f, nil
	})
}

// forwarded is the client's end of a connection that the server made.
type forwarded struct {
	call   *wire.Call
	remote forwardedAddr
	ctx    context.Context
	cancel context.CancelCauseFunc

	rmu   sync.Mutex // one reader
	event wire.Event // rest is what is left of it
	rest  []byte
	eof   bool

	wmu              sync.Mutex // one writer
	reading, writing deadline
}

// deadline is a deadline that can be moved while somebody waits.
type deadline struct {
	mu       sync.Mutex
	timer    *time.Timer
	deadline chan struct{} // closed when it has passed
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.deadline // it is about to be closed
	}
	d.timer = nil
	select {
	case <-d.deadline:
		d.deadline = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	passed := d.deadline
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() { close(passed) })
	} else {
		close(passed)
	}
}

// passed is closed when the deadline that is set now has passed.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.deadline
}

func (f *forwarded) Read(b []byte) (int, error) {
	f.rmu.Lock()
	defer f.rmu.Unlock()
	for len(f.rest) == 0 {
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
			case <-f.reading.passed():
				return 0, os.ErrDeadlineExceeded
			case <-f.ctx.Done():
				return 0, context.Cause(f.ctx)
			}
		}
		switch event.Kind {
		case wire.DataEvent:
			f.event, f.rest = event, event.Data
		case wire.ControlEvent:
			var c forwardControl
			if json.Unmarshal(event.Data, &c) == nil && c.EOF != nil {
				f.eof = true
			}
		case wire.EndEvent:
			f.eof = true
		}
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
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	passed := f.writing.passed()
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-passed:
			cancel(os.ErrDeadlineExceeded)
		case <-ctx.Done():
		}
	})
	sent := f.call.Sent()
	err := f.call.Send(ctx, 0, b)
	cancel(nil)
	watching.Wait()
	return int(f.call.Sent() - sent), err
}

// CloseWrite is a half-close: the far end reads end-of-file, and may still send.
func (f *forwarded) CloseWrite() error {
	f.wmu.Lock()
	defer f.wmu.Unlock()
	return f.call.Control(forwardControl{EOF: &none{}})
}

func (f *forwarded) Close() error {
	f.cancel(net.ErrClosed)
	return f.call.Close()
}

func (f *forwarded) LocalAddr() net.Addr  { return forwardedAddr{"waldo", ""} }
func (f *forwarded) RemoteAddr() net.Addr { return f.remote }

func (f *forwarded) SetDeadline(t time.Time) error {
	f.reading.set(t)
	f.writing.set(t)
	return nil
}

func (f *forwarded) SetReadDeadline(t time.Time) error {
	f.reading.set(t)
	return nil
}

func (f *forwarded) SetWriteDeadline(t time.Time) error {
	f.writing.set(t)
	return nil
}

type forwardedAddr struct {
	network, address string
}

func (a forwardedAddr) Network() string { return a.network }
func (a forwardedAddr) String() string  { return a.address }
