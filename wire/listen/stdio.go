package listen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Stdio makes one connection of a stream to read and a stream to write: a process's own standard input and output, or
// a child's. Deadlines work as far as the streams have them. Close closes both; a Read that waits on a stream which
// cannot be interrupted, as a terminal or an inherited pipe, stays until its process ends or input comes.
func Stdio(in io.ReadCloser, out io.WriteCloser) net.Conn {
	return &stdioConn{in: in, out: out}
}

type stdioConn struct {
	in   io.ReadCloser
	out  io.WriteCloser
	once sync.Once
	err  error
}

func (c *stdioConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *stdioConn) Write(p []byte) (int, error) { return c.out.Write(p) }

func (c *stdioConn) Close() error {
	c.once.Do(func() { c.err = errors.Join(c.out.Close(), c.in.Close()) })
	return c.err
}

func (c *stdioConn) LocalAddr() net.Addr  { return stdioAddr{} }
func (c *stdioConn) RemoteAddr() net.Addr { return stdioAddr{} }

func (c *stdioConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *stdioConn) SetReadDeadline(t time.Time) error {
	if d, ok := c.in.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return os.ErrNoDeadline
}

func (c *stdioConn) SetWriteDeadline(t time.Time) error {
	if d, ok := c.out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return d.SetWriteDeadline(t)
	}
	return os.ErrNoDeadline
}

// stdioAddr is the address of both ends.
type stdioAddr struct{}

func (stdioAddr) Network() string { return "stdio" }
func (stdioAddr) String() string  { return "stdio" }

// ServeStdio serves the one connection of stdio: it skips blanks and then leads to Doors.Native at a zero byte and to
// Doors.Lines at a brace. The other end started this process, so it is trusted, and there is no hurry for its first
// byte. When ctx ends, the door has two seconds until the connection is closed. ServeStdio returns when the door has; a
// clean end before the first byte is nil.
func ServeStdio(ctx context.Context, c net.Conn, d Doors) error {
	defer c.Close()
	peer := &Peer{Remote: "stdio", Trusted: true}

	type looked struct {
		c   *peeked
		err error
	}
	first := make(chan looked, 1)
	go func() {
		for {
			p, err := peek(c, peer)
			if err == nil && bytes.IndexByte([]byte(" \t\r\n"), p.first) >= 0 {
				continue
			}
			first <- looked{p, err}
			return
		}
	}()
	var l looked
	select {
	case l = <-first:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer context.AfterFunc(ctx, func() { time.AfterFunc(defaultLimits.grace, func() { c.Close() }) })()
	switch {
	case errors.Is(l.err, io.EOF):
		return nil
	case l.err != nil:
		return fmt.Errorf("stdio: %w", l.err)
	case l.c.first == byteNative && d.Native != nil:
		d.Native(ctx, l.c, peer)
	case l.c.first == byteLines && d.Lines != nil:
		d.Lines(ctx, l.c, peer)
	case l.c.first == byteLines:
		io.WriteString(c, refuseLines)
		return errors.New("stdio: JSON-RPC lines came, and they are not spoken here")
	default:
		return fmt.Errorf("stdio: no protocol that is spoken here starts with byte %#02x", l.c.first)
	}
	return nil
}
