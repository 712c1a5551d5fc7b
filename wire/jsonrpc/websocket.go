package jsonrpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	// fragmentAbove is how long a message in one frame may be. Codex's client refuses frames over 16 MiB, and pings and
	// pongs get in between frames only.
	fragmentAbove = 1 << 20
	fragment      = 256 << 10

	pingEvery     = 30 * time.Second
	pingsMissed   = 2 // in a row, and the connection ends
	goodbyeWithin = 250 * time.Millisecond
)

var errSilent = errors.New("the other end has been silent and has not answered pings")

// webSocket is the transport of a WebSocket. The library shakes hands, reads and answers pings; frames are written here
// (see socket), so that a peer that reads slowly cannot make an answer to its ping fail, which would end the connection.
type webSocket struct {
	conn   *websocket.Conn
	socket *socket
	box    inbox

	reading atomic.Bool // a Read waits for the other end
	once    sync.Once
	err     error         // of Close
	over    chan struct{} // closed when Read has failed
	closing chan struct{}
	pings   sync.WaitGroup

	mu    sync.Mutex
	cause error // why it was closed here, if not by Close
}

func newWebSocket(conn *websocket.Conn, s *socket, o Options) *webSocket {
	conn.SetReadLimit(-1) // the limit here does not end the connection
	w := &webSocket{conn: conn, socket: s, box: newInbox(o), over: make(chan struct{}), closing: make(chan struct{})}
	w.pings.Go(w.ping)
	return w
}

// Accept makes a transport of a request for a WebSocket. On an error it has answered the request. Origin and Host are
// not looked at: wire/listen has done that.
func Accept(w http.ResponseWriter, r *http.Request, o Options) (Transport, error) {
	h := &hijacker{ResponseWriter: w}
	conn, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true,
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	return newWebSocket(conn, h.socket, o), nil
}

// DialOptions say how to dial.
type DialOptions struct {
	Options
	Client *http.Client // nil: the default one
	Header http.Header  // further headers
}

// Dial makes a transport of a new WebSocket at a ws, wss, http or https URL.
func Dial(ctx context.Context, url string, o DialOptions) (Transport, error) {
	client := http.Client{}
	if o.Client != nil {
		client = *o.Client
	}
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	u := &upgrader{RoundTripper: client.Transport}
	client.Transport = u
	conn, answer, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPClient:      &client,
		HTTPHeader:      o.Header,
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		// What the server says is worth more than that it was not 101.
		if answer != nil && answer.Body != nil && answer.StatusCode != http.StatusSwitchingProtocols {
			said, _ := io.ReadAll(answer.Body) // of which the library has kept a little
			return nil, &RefusedError{Status: answer.StatusCode, Said: cut(string(said), 300)}
		}
		return nil, err
	}
	return newWebSocket(conn, u.socket, o.Options), nil
}

// RefusedError is a server's answer that is no WebSocket.
type RefusedError struct {
	Status int
	Said   string // the beginning of what came with it
}

// Error tells the status and what came with it.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the server answers %d %s: %q", e.Status, http.StatusText(e.Status), e.Said)
}

// Read returns the next message, of text or of binary frames.
func (w *webSocket) Read() ([]byte, error) {
	message, err := w.read()
	var tooLong *TooLongError
	if err == nil || errors.As(err, &tooLong) {
		return message, err
	}
	select {
	case <-w.over:
	default:
		close(w.over)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch status := websocket.CloseStatus(err); {
	case w.cause != nil:
		return nil, w.cause
	case status == websocket.StatusNormalClosure || status == websocket.StatusGoingAway || status == websocket.StatusNoStatusRcvd:
		return nil, io.EOF
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF // io.EOF is for those who say good-bye
	}
	return nil, err
}

func (w *webSocket) read() ([]byte, error) {
	w.reading.Store(true)
	defer w.reading.Store(false)
	_, r, err := w.conn.Reader(context.Background()) // Close ends it
	if err != nil {
		return nil, err
	}
	w.box.begin()
	for {
		n, err := r.Read(w.box.room())
		w.box.grown(n)
		if errors.Is(err, io.EOF) {
			return w.box.message()
		}
		if err != nil {
			return nil, err
		}
	}
}

// Write sends each message in a text frame, or in several.
func (w *webSocket) Write(messages ...[]byte) error { return w.socket.writeText(messages) }

// ping sends pings and ends the connection when nothing at all comes any more, though we do read.
func (w *webSocket) ping() {
	ticks := time.NewTicker(pingEvery)
	defer ticks.Stop()
	missed, last := 0, int64(-1)
	for {
		select {
		case <-ticks.C:
		case <-w.closing:
			return
		case <-w.over:
			return
		}
		received := w.socket.received.Load()
		if received != last || !w.reading.Load() {
			missed, last = 0, received
		} else if missed++; missed == pingsMissed {
			w.mu.Lock()
			w.cause = errSilent
			w.mu.Unlock()
			w.socket.Close() //nolint:errcheck // Read tells why
			return
		}
		w.socket.control(opPing, nil)
	}
}

// Close sends a close frame with the reason, waits a moment for the other end's, and closes.
func (w *webSocket) Close(reason string) error {
	w.once.Do(func() {
		close(w.closing)
		w.pings.Wait()
		patience := time.NewTimer(goodbyeWithin)
		defer patience.Stop()
		code := websocket.StatusNormalClosure
		if !w.socket.mask {
			code = websocket.StatusGoingAway
		}
		payload := append([]byte{byte(code >> 8), byte(code)}, cut(reason, maxControl-2)...)
		if sent := w.socket.control(opClose, payload); sent != nil {
			select {
			case <-sent:
				select {
				case <-w.over:
				case <-patience.C:
				}
			case <-w.over:
			case <-patience.C:
			}
		}
		w.err = w.conn.CloseNow()
		w.socket.settle()
		if errors.Is(w.err, net.ErrClosed) {
			w.err = nil
		}
	})
	return w.err
}

// hijacker puts a socket between the library and an accepted connection.
type hijacker struct {
	http.ResponseWriter
	socket *socket
}

// WriteHeader answers a request that is no WebSocket as Codex's server does.
func (h *hijacker) WriteHeader(status int) {
	if status == http.StatusUpgradeRequired {
		status = http.StatusBadRequest
	}
	h.ResponseWriter.WriteHeader(status)
}

// Hijack takes the connection from the HTTP server.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.socket = newSocket(c, false)
	return hijacked{c, h.socket}, bufio.NewReadWriter(rw.Reader, bufio.NewWriterSize(h.socket, 4*maxControl)), nil
}

// hijacked is the connection as the library sees it.
type hijacked struct {
	net.Conn
	socket *socket
}

func (h hijacked) Read(p []byte) (int, error)  { return h.socket.Read(p) }
func (h hijacked) Write(p []byte) (int, error) { return h.socket.Write(p) }
func (h hijacked) Close() error                { return h.socket.Close() }

// upgrader puts a socket between the library and a dialed connection.
type upgrader struct {
	http.RoundTripper
	socket *socket
}

// RoundTrip sends one request.
func (u *upgrader) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := u.RoundTripper.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		return answer, err
	}
	if stream, ok := answer.Body.(io.ReadWriteCloser); ok {
		u.socket = newSocket(stream, true)
		answer.Body = u.socket
	}
	return answer, nil
}
