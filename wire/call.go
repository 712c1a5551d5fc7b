package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Call is one call, seen from either end. Sending and receiving may go on at the same time; there is one
// sender of DATA and one receiver.
type Call struct {
	stream *stream

	// The HEAD, on the server.
	method       string
	params       json.RawMessage
	op           uint64
	acknowledged uint64

	readable chan struct{} // holds a token when there may be something to receive
	credited chan struct{} // holds a token when there may be more credit

	mu        sync.Mutex
	queue     []Event // received; from first on not yet taken
	first     int
	queued    int64 // payload bytes in queue
	cut       error
	cancel    context.CancelCauseFunc // of the server's handler
	client    bool
	headSent  bool
	endSent   bool
	endRead   bool
	discarded bool // nobody takes DATA any more

	// DATA that this end sends: what was sent, what the peer's code took, how much may be between.
	sent, taken counter
	credit      int64
	// DATA that this end receives: what was taken, and what of it has been told.
	used, told counter
	toldAt     time.Time
}

// counter counts DATA of one direction: payload bytes and frames.
type counter struct {
	bytes, frames int64
}

// cost is what lies between two counters, in bytes on the stream.
func (c counter) cost(since counter) int64 {
	return c.bytes - since.bytes + HeaderSize*(c.frames-since.frames)
}

// EventKind tells what was received.
type EventKind uint8

// What can be received.
const (
	ReplyEvent   EventKind = iota + 1 // the HEAD of a server's answer
	DataEvent                         // bytes on a channel
	ControlEvent                      // a CONTROL message
	EndEvent                          // the END: nothing follows
)

// Event is one thing received in a call.
type Event struct {
	Kind    EventKind
	Channel Channel
	Data    []byte // the bytes, or JSON. Those of a DataEvent are given back with Took.
}

func newCall(s *stream) *Call {
	return &Call{
		stream:   s,
		readable: make(chan struct{}, 1),
		credited: make(chan struct{}, 1),
		credit:   initialCredit,
	}
}

// Request names a method and its parameters.
type Request struct {
	Method string
	Params any
	// Op is the operation id of a call that must not run twice, and Acked the mark below which the results of
	// operations may be forgotten. Zero for calls that may be repeated.
	Op, Acked uint64
}

// Open starts a call with a body. The caller Closes it.
func (c *Conn) Open(request Request) (*Call, error) { return c.open(request, false) }

// Do makes a call without a body and decodes its result into result, unless that is nil. When ctx ends the
// call is cut, which the server's handler sees. A write that the network has stalled returns when the
// connection ends.
func (c *Conn) Do(ctx context.Context, request Request, result any) error {
	call, err := c.open(request, true)
	if err != nil {
		return err
	}
	return call.result(ctx, request.Method, result)
}

// result receives the END of a call without a body, and closes it.
func (c *Call) result(ctx context.Context, method string, result any) error {
	defer c.Close()
	for {
		event, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		switch event.Kind {
		case DataEvent:
			c.Took(event)
		case EndEvent:
			if result == nil {
				return nil
			}
			if err := json.Unmarshal(event.Data, result); err != nil {
				return fmt.Errorf("result of %s: %w", method, err)
			}
			return nil
		}
	}
}

// Hello makes the first call of a connection; answer waits for what the server says to it. Calls may be opened
// behind it at once: the server holds them until it has accepted, and fails them when it refuses.
func (c *Conn) Hello(hello Hello) (answer func(context.Context) (Welcome, error), err error) {
	hello.MinVersion, hello.MaxVersion = MinVersion, MaxVersion
	call, err := c.open(Request{Method: helloMethod, Params: hello}, true)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (Welcome, error) {
		var welcome Welcome
		err := call.result(ctx, helloMethod, &welcome)
		return welcome, err
	}, nil
}

func (c *Conn) open(request Request, final bool) (*Call, error) {
	params, err := json.Marshal(request.Params)
	if err != nil {
		return nil, fmt.Errorf("%w: parameters of %s: %w", Invalid, request.Method, err)
	}
	payload, err := json.Marshal(head{Method: request.Method, Params: params, Op: request.Op, Acked: request.Acked})
	if err != nil {
		return nil, err
	}
	b, err := appendMessage(nil, kindHead, payload)
	if err != nil {
		return nil, fmt.Errorf("parameters of %s: %w", request.Method, err)
	}
	if final {
		b, _ = appendMessage(b, kindEnd, []byte("{}"))
	}
	for {
		s, err := c.stream()
		if err != nil {
			return nil, err
		}
		call := newCall(s)
		call.client, call.headSent, call.endSent = true, true, final
		if s.begin(call) != nil {
			continue // an idle stream that has died in the meantime
		}
		if err := s.write(b); err != nil {
			return nil, err
		}
		return call, nil
	}
}

// Method is the method called.
func (c *Call) Method() string { return c.method }

// Op is the operation id, 0 for none, and the mark below which results may be forgotten.
func (c *Call) Op() (op, acked uint64) { return c.op, c.acknowledged }

// Params decodes the parameters into v. What it cannot decode is Invalid.
func (c *Call) Params(v any) error {
	if len(c.params) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.params, v); err != nil {
		return fmt.Errorf("%w: parameters of %s: %w", Invalid, c.method, err)
	}
	return nil
}

// RawParams are the parameters as they came.
func (c *Call) RawParams() json.RawMessage { return c.params }

// Reply sends the HEAD of the answer, once; without it END sends an empty one.
func (c *Call) Reply(v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b, err := appendMessage(nil, kindHead, payload)
	if err != nil {
		return err
	}
	c.stream.wmu.Lock()
	defer c.stream.wmu.Unlock()
	c.mu.Lock()
	again := c.headSent
	c.headSent = true
	c.mu.Unlock()
	if again {
		return fmt.Errorf("%w: a second reply", Internal)
	}
	return c.stream.writeLocked(b)
}

// Control sends a CONTROL message. It never waits for the peer's code.
func (c *Call) Control(v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b, err := appendMessage(nil, kindControl, payload)
	if err != nil {
		return err
	}
	return c.write(b)
}

// write sends frames, unless this direction has ended.
func (c *Call) write(b []byte) error {
	c.stream.wmu.Lock()
	defer c.stream.wmu.Unlock()
	c.mu.Lock()
	ended := c.endSent
	c.mu.Unlock()
	if ended {
		return ErrEnded
	}
	return c.stream.writeLocked(b)
}

// Send sends bytes on a channel, waiting for credit. Concurrent calls of Send are not allowed.
func (c *Call) Send(ctx context.Context, channel Channel, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), MaxData)
		framed := getBuffer(HeaderSize + n)
		PutDataHeader(framed, channel, n)
		copy(framed[HeaderSize:], p[:n])
		err := c.SendFramed(ctx, framed)
		putBuffer(framed)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// SendFramed is Send for one whole DATA frame, its header in front (see PutDataHeader).
func (c *Call) SendFramed(ctx context.Context, framed []byte) error {
	for {
		c.mu.Lock()
		if err := c.cannotSend(); err != nil {
			c.mu.Unlock()
			return err
		}
		open := c.sent.cost(c.taken)
		if open == 0 || open+int64(len(framed)) <= c.credit {
			c.sent.bytes += int64(len(framed) - HeaderSize)
			c.sent.frames++
			c.mu.Unlock()
			return c.write(framed)
		}
		c.mu.Unlock()
		select {
		case <-c.credited:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ErrEnded says that the peer has ended its side of the call, so that nothing can be sent to it.
var ErrEnded = errors.New("call has ended")

// cannotSend tells why DATA can no longer be sent. c.mu is held.
func (c *Call) cannotSend() error {
	switch {
	case c.cut != nil:
		return c.cut
	case c.client && c.endRead: // the answer is complete
		return ErrEnded
	case c.endSent:
		return ErrEnded
	}
	return nil
}

// Sent is how many payload bytes were sent, Taken how many of them the peer's code has taken.
func (c *Call) Sent() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.bytes
}

// Taken is how many of the bytes sent the peer's code has taken.
func (c *Call) Taken() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken.bytes
}

// End ends this direction of the call with a result. It is idempotent.
func (c *Call) End(result any) error {
	payload := []byte("{}")
	if result != nil {
		var err error
		if payload, err = json.Marshal(struct {
			Result any `json:"result"`
		}{result}); err != nil {
			return c.fail(fmt.Errorf("%w: result of %s: %w", Internal, c.method, err))
		}
	}
	return c.sendEnd(payload)
}

// fail ends this direction of the call with an error, which it returns.
func (c *Call) fail(err error) error {
	crossed := FromError(err)
	if len(crossed.Message) > maxMessage/4 { // JSON may double it and more
		cutShort := *crossed
		cutShort.Message = cutShort.Message[:maxMessage/4] + " …"
		crossed = &cutShort
	}
	payload, merr := json.Marshal(struct {
		Error *Error `json:"error"`
	}{crossed})
	if merr == nil {
		c.sendEnd(payload) //nolint:errcheck // a cut is the caller's to notice
	}
	return err
}

func (c *Call) sendEnd(payload []byte) error {
	c.stream.wmu.Lock()
	defer c.stream.wmu.Unlock()
	c.mu.Lock()
	sent, headSent := c.endSent, c.headSent
	c.endSent, c.headSent = true, true
	c.mu.Unlock()
	if sent {
		return nil
	}
	var b []byte
	if !headSent {
		b, _ = appendMessage(b, kindHead, []byte("{}"))
	}
	b, err := appendMessage(b, kindEnd, payload)
	if err != nil {
		b, _ = appendMessage(b, kindEnd, []byte(`{"error":{"code":"too_large","message":"the result does not fit an END message"}}`))
	}
	return c.stream.writeLocked(b)
}

// Close ends the use of a call by its client: a call both of whose sides have ended leaves its stream to the
// next one, any other is cut. It is idempotent.
func (c *Call) Close() error {
	c.mu.Lock()
	complete := c.endRead && c.cut == nil
	c.mu.Unlock()
	if complete {
		complete = c.sendEnd([]byte("{}")) == nil
	}
	c.discard()
	s := c.stream
	if !complete {
		s.cut(context.Canceled)
		return nil
	}
	s.mu.Lock()
	mine := s.call == c
	if mine {
		s.call = nil
	}
	s.mu.Unlock()
	if mine {
		s.conn.recycle(s)
	}
	return nil
}

// over tells whether both directions have ended.
func (c *Call) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endSent && c.endRead
}

// Readable holds a token when there may be something to receive, for use in a select with TryReceive.
func (c *Call) Readable() <-chan struct{} { return c.readable }

// Receive returns the next event. After the END, or when the END is an error, it returns that error, or io.EOF;
// when the call was cut, an error that is ErrCut (or the cause).
func (c *Call) Receive(ctx context.Context) (Event, error) {
	for {
		event, ok, err := c.TryReceive()
		if ok || err != nil {
			return event, err
		}
		select {
		case <-c.readable:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// TryReceive is Receive without waiting; ok says whether there was an event.
func (c *Call) TryReceive() (event Event, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == len(c.queue) {
		switch {
		case c.endRead:
			return Event{}, false, io.EOF
		case c.cut != nil:
			return Event{}, false, c.cut
		}
		return Event{}, false, nil
	}
	event, c.queue[c.first] = c.queue[c.first], Event{}
	if c.first++; c.first == len(c.queue) {
		c.queue, c.first = c.queue[:0], 0
	}
	if event.Kind == DataEvent {
		c.queued -= int64(len(event.Data))
	}
	if event.Kind != EndEvent {
		return event, true, nil
	}
	var end struct {
		Result json.RawMessage `json:"result"`
		Error  *Error          `json:"error"`
	}
	if err := json.Unmarshal(event.Data, &end); err != nil {
		return Event{}, false, fmt.Errorf("%w: END: %w", ErrCut, err)
	}
	if end.Error != nil {
		return Event{}, false, end.Error
	}
	if end.Result == nil {
		end.Result = json.RawMessage("null")
	}
	event.Data = end.Result
	return event, true, nil
}

// ackEvery is the time after which bytes that were taken are told even if they are few.
const ackEvery = 100 * time.Millisecond

// Took gives a DataEvent's bytes back and tells the peer, now and then, how much has been taken.
func (c *Call) Took(event Event) {
	n := len(event.Data)
	putBuffer(event.Data)
	c.mu.Lock()
	c.used.bytes += int64(n)
	c.used.frames++
	if c.used.cost(c.told) >= c.grant()/4 || time.Since(c.toldAt) >= ackEvery {
		c.tellLocked()
		return
	}
	c.mu.Unlock()
}

// Flush tells the peer at once what has been taken.
func (c *Call) Flush() {
	c.mu.Lock()
	if c.used == c.told {
		c.mu.Unlock()
		return
	}
	c.tellLocked()
}

// tellLocked sends an ack, and unlocks c.mu.
func (c *Call) tellLocked() {
	c.told, c.toldAt = c.used, time.Now()
	ack := controlAck{Ack: &ack{Offset: c.used.bytes, Frames: c.used.frames, Credit: c.grant()}}
	tell := !c.endRead && c.cut == nil && !c.endSent
	c.mu.Unlock()
	if tell {
		c.Control(ack) //nolint:errcheck // a cut is noticed by whoever receives
	}
}

// grant is the credit this end gives.
func (c *Call) grant() int64 { return int64(c.stream.conn.window) - reserve }

// controlAck is the one CONTROL message that is this package's own.
type controlAck struct {
	Ack *ack `json:"ack"`
}

type ack struct {
	Offset int64 `json:"offset"`
	Frames int64 `json:"frames"`
	Credit int64 `json:"credit"`
}

// receive takes a frame from the reader goroutine. It never waits.
func (c *Call) receive(f frame) error {
	event := Event{Channel: f.channel, Data: f.payload}
	switch f.kind {
	case kindHead:
		event.Kind = ReplyEvent
	case kindData:
		event.Kind = DataEvent
	case kindEnd:
		event.Kind = EndEvent
	case kindControl:
		event.Kind = ControlEvent
		if isAck(f.payload) {
			var control controlAck
			if err := json.Unmarshal(f.payload, &control); err != nil || control.Ack == nil {
				return fmt.Errorf("%w: ack %q", errProtocol, f.payload)
			}
			return c.acked(*control.Ack)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endRead {
		return fmt.Errorf("%w: a frame after END", errProtocol)
	}
	if event.Kind == DataEvent {
		if c.discarded {
			putBuffer(event.Data)
			return nil
		}
		// The credit that was given bounds the queue; a peer that ignores it is cut.
		if c.queued += int64(len(event.Data)); c.queued > int64(c.stream.conn.window) {
			return fmt.Errorf("%w: more DATA than credit", errProtocol)
		}
	}
	c.queue = append(c.queue, event)
	if event.Kind == EndEvent {
		c.endRead = true
		wake(c.credited)
	}
	wake(c.readable)
	return nil
}

func isAck(payload []byte) bool {
	const prefix = `{"ack":`
	return len(payload) > len(prefix) && string(payload[:len(prefix)]) == prefix
}

func (c *Call) acked(a ack) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Offset < c.taken.bytes || a.Offset > c.sent.bytes || a.Frames < c.taken.frames || a.Frames > c.sent.frames || a.Credit < 0 {
		return fmt.Errorf("%w: ack %+v of %+v sent", errProtocol, a, c.sent)
	}
	c.taken = counter{a.Offset, a.Frames}
	c.credit = min(a.Credit, maxWindow)
	wake(c.credited)
	wake(c.readable) // whoever waits for Taken to grow waits there
	return nil
}

// discard gives back what was queued and not taken, and all that still comes.
func (c *Call) discard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, event := range c.queue[c.first:] {
		if event.Kind == DataEvent {
			putBuffer(event.Data)
		}
	}
	c.queue, c.first, c.discarded = nil, 0, true
}

func (c *Call) onCut(cancel context.CancelCauseFunc) {
	c.mu.Lock()
	c.cancel = cancel
	cut := c.cut
	c.mu.Unlock()
	if cut != nil {
		cancel(cut)
	}
}

// cutBy ends the call without an END.
func (c *Call) cutBy(err error) {
	c.mu.Lock()
	if c.cut == nil {
		c.cut = err
	}
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(err)
	}
	wake(c.readable)
	wake(c.credited)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
