package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
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

	mu        sync.Mutex
	readable  chan struct{} // holds a token when there may be something to receive; made when first waited on
	credited  chan struct{} // holds a token when there may be more credit; likewise
	queue     []Event       // received; from first on not yet taken
	first     int
	inline    [3]Event // what queue begins as: enough for most calls
	messages  int      // bytes of the CONTROL messages in queue
	end       error
	cut       error
	cancel    context.CancelCauseFunc // of the server's handler
	client    bool
	headSent  bool
	headRead  bool
	endSent   bool
	endRead   bool
	discarded bool // nobody takes DATA any more
	ackNews   bool // an AckEvent is to be received

	// DATA that this end sends: what was sent, what the peer's code took, how much may be between.
	sent, taken counter
	credit      int64
	// DATA that this end receives: what came, what of it was taken, what of that has been told.
	came, used, told counter
	toldCredit       int64
	flush            *time.Timer // tells the rest
	telling          bool        // flush fires at once
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
	AckEvent                          // the peer has taken more, see Taken; several acks may be one event
	EndEvent                          // the END: nothing follows
)

// Event is one thing received in a call.
type Event struct {
	Kind    EventKind
	Channel Channel
	Data    []byte // the bytes, or JSON. Those of a DataEvent are given back with Took.
}

func newCall(s *stream) *Call {
	c := &Call{stream: s, credit: initialCredit, toldCredit: initialCredit}
	c.queue = c.inline[:0]
	return c
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
			if err := decode(event.Data, result); err != nil {
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
		if err := call.result(ctx, helloMethod, &welcome); err != nil {
			return Welcome{}, err
		}
		// A server that breaks the rules must not be believed.
		if _, err := negotiate([2]int{MinVersion, MaxVersion}, [2]int{welcome.Version, welcome.Version}); err != nil {
			return Welcome{}, err
		}
		c.Ping() // tells how far the peer is
		return welcome, nil
	}, nil
}

func (c *Conn) open(request Request, final bool) (*Call, error) {
	h := head{Method: request.Method, Op: request.Op, Acked: request.Acked}
	if request.Params != nil {
		params, err := json.Marshal(request.Params)
		if err != nil {
			return nil, fmt.Errorf("%w: parameters of %s: %w", Invalid, request.Method, err)
		}
		h.Params = params
	}
	payload, err := h.encode()
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(payload)+3*HeaderSize)
	b, err = appendMessage(b, kindHead, payload)
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

// Conn is the connection that the call is on.
func (c *Call) Conn() *Conn { return c.stream.conn }

// Method is the method called.
func (c *Call) Method() string { return c.method }

// Op is the operation id, 0 for none, and the mark below which results may be forgotten.
func (c *Call) Op() (op, acked uint64) { return c.op, c.acknowledged }

// Params decodes the parameters into v. What it cannot decode is Invalid.
func (c *Call) Params(v any) error {
	if len(c.params) == 0 {
		return nil
	}
	if err := decode(c.params, v); err != nil {
		return fmt.Errorf("%w: parameters of %s: %w", Invalid, c.method, err)
	}
	return nil
}

// RawParams are the parameters as they came.
func (c *Call) RawParams() json.RawMessage { return c.params }

// Reply sends the HEAD of the answer, once and before anything else; whoever sends something else first has sent
// an empty one.
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
		return fmt.Errorf("%w: a reply that is not the first of an answer", Internal)
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

// write sends frames that come after the HEAD, unless this direction has ended.
func (c *Call) write(b []byte) error {
	c.stream.wmu.Lock()
	defer c.stream.wmu.Unlock()
	c.mu.Lock()
	ended, headSent := c.endSent, c.headSent
	c.headSent = true
	c.mu.Unlock()
	if ended {
		return ErrEnded
	}
	if !headSent {
		if err := c.stream.writeLocked(emptyHead); err != nil {
			return err
		}
	}
	return c.stream.writeLocked(b)
}

// Send sends bytes on a channel, waiting for credit. Concurrent calls of Send are not allowed.
func (c *Call) Send(ctx context.Context, channel Channel, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), c.stream.conn.dataSize())
		framed := getBuffer(HeaderSize + n)
		PutDataHeader(framed, channel, n)
		copy(framed[HeaderSize:], p[:n])
		err := c.sendFrame(ctx, framed)
		putBuffer(framed)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// SendFramed is Send for one whole DATA frame, its header in front (see PutDataHeader). It saves a copy where the
// frame may go as it is.
func (c *Call) SendFramed(ctx context.Context, framed []byte) error {
	if !isData(framed) {
		return fmt.Errorf("%w: %d bytes that are not one DATA frame", Internal, len(framed))
	}
	if len(framed)-HeaderSize > c.stream.conn.dataSize() {
		return c.Send(ctx, Channel(framed[0]&0x0f), framed[HeaderSize:])
	}
	return c.sendFrame(ctx, framed)
}

func (c *Call) sendFrame(ctx context.Context, framed []byte) error {
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
			look := c.sent.frames%lookEvery == 0
			c.mu.Unlock()
			if look && c.stream.conn.dataSize() == farData {
				c.stream.conn.Ping()
			}
			return c.write(framed)
		}
		hopeless := c.endRead
		if c.credited == nil {
			c.credited = make(chan struct{}, 1)
		}
		credited := c.credited
		c.mu.Unlock()
		if hopeless { // what has ended its side acknowledges nothing more
			return fmt.Errorf("%w: %d bytes are not acknowledged and never will be", ErrEnded, open)
		}
		select {
		case <-credited:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ErrEnded says that the peer, or this end, has ended its side of the call, so that nothing more can be sent.
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

// Sent is how many payload bytes were sent.
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
		encoded, err := json.Marshal(result)
		if err != nil {
			return c.fail(fmt.Errorf("%w: result of %s: %w", Internal, c.method, err))
		}
		payload = append(append(append(make([]byte, 0, len(resultPrefix)+len(encoded)+1), resultPrefix...), encoded...), '}')
	}
	return c.sendEnd(payload)
}

// fail ends this direction of the call with an error, which it returns.
func (c *Call) fail(err error) error {
	crossed := FromError(err)
	for n := maxMessage; ; n /= 2 {
		payload, merr := json.Marshal(end{Error: crossed})
		if merr == nil && len(payload) <= maxMessage {
			c.sendEnd(payload) //nolint:errcheck // a cut is the caller's to notice
			return err
		}
		crossed = crossed.Shortened(n)
	}
}

// end is an END, of either direction.
type end struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
}

const resultPrefix = `{"result":`

// decodeEnd returns the result of an END, or its error.
func decodeEnd(payload []byte) (json.RawMessage, *Error, error) {
	if string(payload) == "{}" {
		return json.RawMessage("null"), nil, nil
	}
	if result, ok := bytes.CutPrefix(payload, []byte(resultPrefix)); ok {
		if result, ok = bytes.CutSuffix(result, []byte("}")); ok && json.Valid(result) {
			return result, nil, nil
		}
	}
	var e end
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, nil, fmt.Errorf("%w: END: %w", errProtocol, err)
	}
	if e.Error != nil {
		return nil, e.Error, nil
	}
	if e.Result == nil {
		e.Result = json.RawMessage("null")
	}
	return e.Result, nil, nil
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
	b := make([]byte, 0, len(emptyHead)+len(payload)+2*HeaderSize)
	if !headSent {
		b = append(b, emptyHead...)
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
	bulk := c.discard()
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
		if bulk {
			s.y.Shrink()
		}
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
func (c *Call) Readable() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readable == nil {
		c.readable = make(chan struct{}, 1)
		c.readable <- struct{}{}
	}
	return c.readable
}

// Receive returns the next event. After the END, or when the END is an error, it returns that error, or io.EOF;
// when the call was cut, an error that is ErrCut (or the cause).
func (c *Call) Receive(ctx context.Context) (Event, error) {
	for {
		event, ok, err := c.TryReceive()
		if ok || err != nil {
			return event, err
		}
		select {
		case <-c.Readable():
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// TryReceive is Receive without waiting; ok says whether there was an event.
func (c *Call) TryReceive() (event Event, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ackNews {
		c.ackNews = false
		return Event{Kind: AckEvent}, true, nil
	}
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
	switch event.Kind {
	case ControlEvent:
		c.messages -= len(event.Data)
	case EndEvent:
		if c.end != nil {
			return Event{}, false, c.end
		}
	}
	return event, true, nil
}

// ackWithin is the time within which bytes that were taken are told even if they are few.
const ackWithin = 100 * time.Millisecond

// Took gives a DataEvent's bytes back and tells the peer, at once or soon, how much has been taken. Other events have
// nothing to give back.
func (c *Call) Took(event Event) {
	if event.Kind != DataEvent {
		return
	}
	n := len(event.Data)
	putBuffer(event.Data)
	c.mu.Lock()
	c.used.bytes += int64(n)
	c.used.frames++
	// The first one tells a peer that knows of a small credit only, that there is more.
	tell := c.toldCredit < c.grant() || c.used.cost(c.told) >= c.grant()/4
	// At once is not here: a write that the network has stalled must not hold up who takes.
	switch {
	case c.endRead || c.discarded:
	case tell && !c.telling:
		c.stopFlush()
		c.telling = true
		c.flush = time.AfterFunc(0, c.Flush)
	case c.flush == nil:
		c.flush = time.AfterFunc(ackWithin, c.Flush)
	}
	c.mu.Unlock()
}

// Flush tells the peer at once what has been taken.
func (c *Call) Flush() {
	// Under the lock of writing, so that acks leave in their order.
	c.stream.wmu.Lock()
	defer c.stream.wmu.Unlock()
	c.mu.Lock()
	c.stopFlush()
	c.telling = false
	tell := c.used != c.told && !c.endRead && c.cut == nil && !c.endSent
	a := ack{Offset: c.used.bytes, Frames: c.used.frames, Credit: c.grant()}
	c.told, c.toldCredit = c.used, a.Credit
	c.mu.Unlock()
	if tell {
		b, _ := appendMessage(nil, kindControl, a.append(nil))
		c.stream.writeLocked(b) //nolint:errcheck // a cut is noticed by whoever receives
	}
}

// stopFlush makes the timer forget. c.mu is held.
func (c *Call) stopFlush() {
	if c.flush != nil {
		c.flush.Stop()
		c.flush = nil
	}
}

// grant is the credit this end gives.
func (c *Call) grant() int64 { return int64(c.stream.conn.window) - reserve }

// ack is the one CONTROL message that is this package's own.
type ack struct {
	Offset int64 `json:"offset"`
	Frames int64 `json:"frames"`
	Credit int64 `json:"credit"`
}

const ackPrefix = `{"ack":`

// append appends the message.
func (a ack) append(b []byte) []byte {
	b = strconv.AppendInt(append(b, ackPrefix+`{"offset":`...), a.Offset, 10)
	b = strconv.AppendInt(append(b, `,"frames":`...), a.Frames, 10)
	b = strconv.AppendInt(append(b, `,"credit":`...), a.Credit, 10)
	return append(b, "}}"...)
}

// decodeAck returns the ack that a CONTROL message is, nil if it is another one.
func decodeAck(payload []byte) (*ack, error) {
	if !bytes.Contains(payload, []byte(`"ack"`)) {
		return nil, nil
	}
	var control struct {
		Ack *ack `json:"ack"`
	}
	if err := json.Unmarshal(payload, &control); err != nil {
		return nil, fmt.Errorf("%w: CONTROL: %w", errProtocol, err)
	}
	return control.Ack, nil
}

// receive takes a frame from the reader goroutine. It never waits.
func (c *Call) receive(f frame) error {
	event := Event{Channel: f.channel, Data: f.payload}
	var failed error
	switch f.kind {
	case kindHead:
		event.Kind = ReplyEvent
	case kindData:
		event.Kind = DataEvent
	case kindControl:
		event.Kind = ControlEvent
		a, err := decodeAck(f.payload)
		if err != nil {
			return err
		}
		if a != nil {
			return c.acked(*a)
		}
	case kindEnd:
		event.Kind = EndEvent
		result, refusal, err := decodeEnd(f.payload)
		if err != nil {
			return err
		}
		if event.Data = result; refusal != nil {
			failed = refusal
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.outOfPlace(event); err != nil {
		return err
	}
	c.headRead = true
	if c.discarded && event.Kind == DataEvent {
		putBuffer(event.Data)
		return nil
	}
	if !c.discarded || event.Kind == EndEvent {
		c.queue = append(c.queue, event)
	}
	if event.Kind == EndEvent {
		c.end, c.endRead = failed, true
		wake(c.credited)
	}
	wake(c.readable)
	return nil
}

// outOfPlace counts what came, and says what is wrong with it. c.mu is held.
func (c *Call) outOfPlace(event Event) error {
	switch {
	case c.endRead:
		return fmt.Errorf("%w: a frame after END", errProtocol)
	case c.client && c.headRead == (event.Kind == ReplyEvent):
		return fmt.Errorf("%w: HEAD is the first frame of an answer and no other", errProtocol)
	}
	if c.discarded {
		return nil
	}
	switch event.Kind {
	case DataEvent:
		c.came.bytes += int64(len(event.Data))
		c.came.frames++
		// The sender knows of no more than was taken, so this is the least strict it can be.
		if c.came.cost(c.used) > c.grant() {
			return fmt.Errorf("%w: more DATA than credit", errProtocol)
		}
	case ControlEvent:
		if c.messages += len(event.Data); c.messages > maxMessages {
			return fmt.Errorf("%w: over %d bytes of CONTROL wait", errProtocol, maxMessages)
		}
	}
	return nil
}

// maxMessages is how many bytes of CONTROL may wait for a call's receiver: credit does not count them.
const maxMessages = 1 << 20

func (c *Call) acked(a ack) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.Offset < c.taken.bytes || a.Offset > c.sent.bytes || a.Frames < c.taken.frames || a.Frames > c.sent.frames || a.Credit < 0 {
		return fmt.Errorf("%w: ack %+v of %+v sent", errProtocol, a, c.sent)
	}
	c.taken = counter{a.Offset, a.Frames}
	c.credit = min(a.Credit, maxWindow)
	wake(c.credited)
	c.ackNews = true
	wake(c.readable)
	return nil
}

// discard gives back what was queued and not taken, and all that still comes. It tells whether much came, so that
// the stream holds a large buffer.
func (c *Call) discard() (bulk bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopFlush()
	for _, event := range c.queue[c.first:] {
		if event.Kind == DataEvent {
			putBuffer(event.Data)
		}
	}
	c.queue, c.first, c.discarded = nil, 0, true
	return c.came.bytes > MaxData
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
	wake(c.readable)
	wake(c.credited)
	c.mu.Unlock()
	if cancel != nil {
		cancel(err)
	}
}

// wake leaves a token, unless there is one, or nobody has ever waited.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
