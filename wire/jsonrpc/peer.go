package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// Handler takes what the other end asks.
type Handler interface {
	// Handle is called for each request and notification, one after another in the order they came. It must not wait
	// long: work is done by other goroutines, which answer in any order, each request once, with Reply or ReplyError.
	// ctx ends with the connection. An error ends the connection, and the other end is told it; notifications are never
	// answered.
	Handle(ctx context.Context, r *Request) error
}

// drainWithin bounds how long a connection that is to end may take for what is queued.
const drainWithin = time.Second

// Peer is one end of a connection.
type Peer struct {
	transport Transport
	out       outbox
	ended     chan struct{}

	mu         sync.Mutex
	cause      error // why it has ended
	patience   *time.Timer
	unanswered int // requests of the other end
	answered   chan struct{}
	calls      map[int64]chan<- message
	lastCall   int64
}

// NewPeer makes a peer, which closes the transport. Serve must be called.
func NewPeer(t Transport) *Peer {
	p := &Peer{
		transport: t,
		ended:     make(chan struct{}),
		answered:  make(chan struct{}, 1),
		calls:     make(map[int64]chan<- message),
	}
	p.out.init(p.ended)
	return p
}

// Serve reads until the connection, or ctx, ends or Close is called, and waits for the writer, but not for what the
// handler has begun. It returns nil if the other end closed properly, else why the connection ended.
func (p *Peer) Serve(ctx context.Context, h Handler) error {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ctx, func() { p.Close(context.Cause(ctx)) })
	var writer sync.WaitGroup
	writer.Go(p.write)
	err := p.read(ctx, h)
	for err == nil { // so that the transport can say good-bye
		_, err = p.transport.Read()
		if tooLong := (*TooLongError)(nil); errors.As(err, &tooLong) {
			err = nil
		}
	}
	stop()
	cancel(p.why())
	writer.Wait()
	p.mu.Lock()
	p.patience.Stop()
	p.mu.Unlock()
	if err := p.why(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// read hands out what comes until the connection ends. An error is the transport's.
func (p *Peer) read(ctx context.Context, h Handler) error {
	for {
		data, err := p.transport.Read()
		select {
		case <-p.ended:
			return err
		default:
		}
		var tooLong *TooLongError
		if errors.As(err, &tooLong) {
			p.malformed(salvageID(tooLong.Start), err)
			continue
		}
		if err != nil {
			if _, ok := p.transport.(*lines); ok && errors.Is(err, io.EOF) {
				p.awaitAnswers() // who has sent all it has may still listen
				p.Close(err)
				return err
			}
			p.end(err)
			return err
		}
		m, err := parse(data)
		switch {
		case err != nil:
			p.malformed(m.ID, err)
		case m.result != nil || m.err != nil:
			if err := p.take(m); err != nil {
				p.Close(err)
				return nil
			}
		default:
			if !m.ID.IsZero() {
				p.expect(1)
			}
			if err := h.Handle(ctx, &m.Request); err != nil {
				p.Close(err)
				return nil
			}
		}
	}
}

// malformed answers what is no message.
func (p *Peer) malformed(id ID, err error) {
	p.out.urgent.add(context.Background(), appendError(nil, id, Errorf(CodeInvalidRequest, "failed to parse JSON-RPC message: %v", err))) //nolint:errcheck // the connection has ended
}

// expect counts requests that wait for their answers.
func (p *Peer) expect(delta int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unanswered += delta
	if p.unanswered == 0 {
		select {
		case p.answered <- struct{}{}:
		default:
		}
	}
}

// awaitAnswers waits for a while until all requests are answered.
func (p *Peer) awaitAnswers() {
	patience := time.NewTimer(drainWithin)
	defer patience.Stop()
	for {
		p.mu.Lock()
		done := p.unanswered <= 0
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-p.answered:
		case <-p.ended:
			return
		case <-patience.C:
			return
		}
	}
}

// take hands an answer to whoever waits for it.
func (p *Peer) take(m message) error {
	n, err := strconv.ParseInt(m.ID.text, 10, 64)
	p.mu.Lock()
	defer p.mu.Unlock()
	// An answer to a call that has been given up is too late, and no fault.
	if err != nil || n < 1 || n > p.lastCall {
		return fmt.Errorf("an answer with the id %s, which no call has", shorten([]byte(m.ID.text)))
	}
	if waiting := p.calls[n]; waiting != nil {
		delete(p.calls, n)
		waiting <- m
	}
	return nil
}

// write sends what is queued until the connection has ended and, if it still takes it, all has been sent.
func (p *Peer) write() {
	for {
		batch, open := p.out.take()
		if len(batch) == 0 && !open {
			p.transport.Close(reason(p.why())) //nolint:errcheck // it is closed in any case
			return
		}
		if err := p.transport.Write(batch...); err != nil {
			p.end(fmt.Errorf("write: %w", err))
			return
		}
	}
}

// reason is what the other end is told.
func reason(cause error) string {
	if errors.Is(cause, io.EOF) {
		return ""
	}
	return cause.Error()
}

// end ends the connection without regard for what is queued.
func (p *Peer) end(cause error) {
	p.Close(cause)
	p.transport.Close(reason(cause)) //nolint:errcheck // it is closed in any case
}

func (p *Peer) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// Done is closed when the connection has ended.
func (p *Peer) Done() <-chan struct{} { return p.ended }

// Close ends the connection, telling the other end why, and does not wait. What is queued is sent if the connection
// takes it within a second.
func (p *Peer) Close(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause != nil {
		return
	}
	if cause == nil {
		cause = errors.New("closed")
	}
	p.cause = cause
	close(p.ended)
	p.patience = time.AfterFunc(drainWithin, func() { p.transport.Close(reason(cause)) }) //nolint:errcheck // it is closed in any case
	p.out.close()
}

// Reply answers a request. A result over 16 KiB waits for room, a smaller one only if thousands wait. It fails when the
// connection has ended; a result that cannot be encoded is answered with CodeInternal.
func (p *Peer) Reply(id ID, result any) error {
	b, err := appendReply(nil, id, result)
	if err != nil {
		return p.ReplyError(id, err)
	}
	return p.answer(b)
}

// ReplyError answers a request with an error: an *Error in its chain, else CodeInternal and its text.
func (p *Peer) ReplyError(id ID, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: CodeInternal, Message: err.Error()}
	}
	return p.answer(appendError(nil, id, e))
}

func (p *Peer) answer(b []byte) error {
	defer p.expect(-1)
	q := &p.out.urgent
	if len(b) > maxUrgent {
		q = &p.out.bulk
	}
	return p.failed(q.add(context.Background(), b))
}

// Notify sends a notification. It waits for room. Notifications and replies over 16 KiB keep their order.
func (p *Peer) Notify(ctx context.Context, method string, params any) error {
	b, err := appendRequest(nil, ID{}, method, params)
	if err != nil {
		return err
	}
	return p.failed(p.out.bulk.add(ctx, b))
}

// Call asks the other end and decodes the result, as Decode does; result may be nil. An answer that is an error comes
// back as an *Error.
func (p *Peer) Call(ctx context.Context, method string, params, result any) error {
	answer := make(chan message, 1)
	p.mu.Lock()
	p.lastCall++
	n := p.lastCall
	p.calls[n] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.calls, n)
	}()
	b, err := appendRequest(nil, IntegerID(n), method, params)
	if err != nil {
		return err
	}
	q := &p.out.urgent
	if len(b) > maxUrgent {
		q = &p.out.bulk
	}
	if err := q.add(ctx, b); err != nil {
		return p.failed(err)
	}
	select {
	case m := <-answer:
		switch {
		case m.err != nil:
			return m.err
		case result == nil:
			return nil
		}
		if err := Decode(m.result, result); err != nil {
			return fmt.Errorf("result of %s: %w", method, err)
		}
		return nil
	case <-p.ended:
		return p.failed(errEnded)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failed gives the reason of an end.
func (p *Peer) failed(err error) error {
	if !errors.Is(err, errEnded) {
		return err
	}
	return fmt.Errorf("%w: %w", errEnded, p.why())
}
