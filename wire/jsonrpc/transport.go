package jsonrpc

import (
	"context"
	"io"
	"net/http"
)

// Transport carries messages. Read is called by one goroutine and Write by another; Close may be called by any, ends
// both and is idempotent.
type Transport interface {
	// Read returns the next message, which is then the caller's. A *TooLongError, which is wrapped by nothing, is about
	// one message; any other error is the end: io.EOF if the other end closed properly.
	Read() ([]byte, error)
	// Write sends messages, in order. It does not keep them.
	Write(messages ...[]byte) error
	// Close says good-bye, if the connection takes it at once, with a reason of at most 123 bytes, and closes.
	Close(reason string) error
}

// TooLongError is about a message over the limit, of which the rest has been thrown away.
type TooLongError struct {
	Limit int
	Start []byte // of the message
}

// Error tells the limit.
func (e *TooLongError) Error() string { panic("not yet") }

// Options are those of every transport.
type Options struct {
	MaxMessage int // bytes of one incoming message; 0 means 64 MiB
}

// Accept makes a transport of a request for a WebSocket. On an error it has answered the request. Origin and Host are
// not looked at: wire/listen has done that.
func Accept(w http.ResponseWriter, r *http.Request, o Options) (Transport, error) { panic("not yet") }

// DialOptions say how to dial.
type DialOptions struct {
	Options
	Client *http.Client // nil: the default one
	Header http.Header  // further headers
}

// Dial makes a transport of a new WebSocket at a ws, wss, http or https URL.
func Dial(ctx context.Context, url string, o DialOptions) (Transport, error) { panic("not yet") }

// NewLines makes a transport of a stream: a message is a line. Blank lines are skipped.
func NewLines(rw io.ReadWriteCloser, o Options) Transport { panic("not yet") }
