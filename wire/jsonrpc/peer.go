package jsonrpc

import "context"

// Handler takes what the other end asks.
type Handler interface {
	// Handle is called for each request and notification, one after another in the order they came. It must not wait
	// long: work is done by other goroutines, which answer in any order, each request once, with Reply or ReplyError.
	// ctx ends with the connection. An error ends the connection; notifications are never answered.
	Handle(ctx context.Context, r *Request) error
}

// Peer is one end of a connection.
type Peer struct{}

// NewPeer makes a peer, which closes the transport. Serve must be called.
func NewPeer(t Transport) *Peer { panic("not yet") }

// Serve reads until the connection, or ctx, ends or Close is called, and waits for the writer, but not for what the
// handler has begun. It returns nil if the other end closed properly, else why the connection ended.
func (p *Peer) Serve(ctx context.Context, h Handler) error { panic("not yet") }

// Done is closed when the connection has ended.
func (p *Peer) Done() <-chan struct{} { panic("not yet") }

// Close ends the connection, telling the other end why, and does not wait. What is queued is sent if the connection
// takes it within a second.
func (p *Peer) Close(cause error) { panic("not yet") }

// Reply answers a request. A result over 16 KiB waits for room, a smaller one only if thousands wait. It fails when the
// connection has ended; a result that cannot be encoded is answered with CodeInternal.
func (p *Peer) Reply(id ID, result any) error { panic("not yet") }

// ReplyError answers a request with an error: an *Error in its chain, else CodeInternal and its text.
func (p *Peer) ReplyError(id ID, err error) error { panic("not yet") }

// Notify sends a notification. It waits for room. Notifications and replies over 16 KiB keep their order.
func (p *Peer) Notify(ctx context.Context, method string, params any) error { panic("not yet") }

// Call asks the other end and decodes the result, as Decode does; result may be nil. An answer that is an error comes
// back as an *Error.
func (p *Peer) Call(ctx context.Context, method string, params, result any) error { panic("not yet") }
