package listen

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/coder/websocket"
)

// The native protocol in a WebSocket: the bytes of the stream, cut into binary messages anywhere, none longer than
// maxMessage. Writers keep to writeMessage.
const (
	maxMessage   = 1 << 20
	writeMessage = 256 << 10
)

// muxConn is the byte stream inside a WebSocket.
type muxConn struct {
	net.Conn
	ws    *websocket.Conn
	below net.Conn
	stop  context.CancelFunc
}

// newMuxConn makes a stream of a WebSocket on a connection.
func newMuxConn(ws *websocket.Conn, below net.Conn) *muxConn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &muxConn{Conn: websocket.NetConn(ctx, ws, websocket.MessageBinary), ws: ws, below: below, stop: cancel}
	ws.SetReadLimit(maxMessage)
	return c
}

// NetConn is the connection that carries the WebSocket.
func (c *muxConn) NetConn() net.Conn { return c.below }

// LocalAddr is this end's address.
func (c *muxConn) LocalAddr() net.Addr { return c.below.LocalAddr() }

// RemoteAddr is the other end's address.
func (c *muxConn) RemoteAddr() net.Addr { return c.below.RemoteAddr() }

// Read gives a cut as the end of the stream, as a TCP connection would.
func (c *muxConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = io.EOF
	}
	return n, err
}

// Write sends messages that the other end takes.
func (c *muxConn) Write(p []byte) (written int, err error) {
	for {
		n, err := c.Conn.Write(p[:min(len(p), writeMessage)])
		written += n
		p = p[n:]
		if err != nil || len(p) == 0 {
			return written, err
		}
	}
}

// Close cuts the connection. The protocol inside says its own good-bye, and waiting for the WebSocket's closing
// handshake would only take time.
func (c *muxConn) Close() error {
	c.stop()
	c.ws.CloseNow() // which may be the second to close below
	if err := c.below.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
