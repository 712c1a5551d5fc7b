package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sync"
	"time"

	"github.com/google/uuid"

	"waldo/env"
	"waldo/wire"
)

// detachWithin is how long Close waits for the server to have let go of the process.
const detachWithin = time.Second

// process is the client's attachment to a process. Its goroutines end with ctx: the pump receives, and attaches
// again when the connection was cut; the feeder, made by the first write, sends standard input; the teller,
// likewise, sends what waits for no credit.
type process struct {
	client   *Client
	id       string
	open     func(from int64) wire.Request // the call that starts it, or attaches first, at an output offset
	explicit bool                          // only Ack acknowledges

	ctx      context.Context
	cancel   context.CancelCauseFunc
	attached chan struct{} // closed when the first attempt was answered
	exited   chan struct{} // see Exited
	ended    chan struct{} // closed when the pump has ended
	arrived  chan struct{} // holds a token when the consumer of Output may go on

	// All state, changed by update or by who holds mu and calls tell.
	mu       sync.Mutex
	changed  chan struct{} // see news
	call     *wire.Call    // the current one, nil while there is none
	answered bool
	about    attached // the newest answer
	exit     *env.Exit
	failure  error // the attachment has ended for this reason
	closed   bool  // the output has ended

	queue []piece // received; from first on not handed out
	first int
	next  int64 // offset of what the consumer gets next
	acked int64 // by Ack; acks below are to be told
	told  int64 // of that

	input   input
	size    *env.Size // the last one asked for
	resized bool      // the current call was told
	telling bool
}

// piece is one step of output: bytes still in the event of the call they came with, or a loss.
type piece struct {
	call   *wire.Call
	event  wire.Event
	skip   int // bytes of the event that the consumer has had
	offset int64
	lost   int64
}

func (p piece) chunk() env.Chunk {
	if p.lost > 0 {
		return env.Chunk{Offset: p.offset, Lost: p.lost}
	}
	return env.Chunk{Offset: p.offset, Channel: env.Channel(p.event.Channel), Data: p.event.Data[p.skip:]}
}

// Start implements [env.Runner].
func (c *Client) Start(ctx context.Context, command env.Command) (env.Process, error) {
	if command.ID == "" {
		command.ID = uuid.NewString()
	}
	params := newStartParams(command)
	return c.attach(ctx, command.ID, command.From, command.ExplicitAck, func(from int64) wire.Request {
		params.From = from
		return wire.Request{Method: methodProcessStart, Params: params}
	})
}

// Attach implements [env.Runner].
func (c *Client) Attach(ctx context.Context, id string, attach env.Attach) (env.Process, error) {
	params := attachParams{ID: wire.Text(id), Watch: attach.Watch, Take: attach.Take, ExplicitAck: attach.ExplicitAck}
	return c.attach(ctx, id, attach.From, attach.ExplicitAck, func(from int64) wire.Request {
		params.From = from
		return wire.Request{Method: methodProcessAttach, Params: params}
	})
}

func (c *Client) attach(ctx context.Context, id string, from int64, explicit bool, open func(int64) wire.Request) (env.Process, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p := &process{
		client:   c,
		id:       id,
		open:     open,
		explicit: explicit,
		attached: make(chan struct{}),
		exited:   make(chan struct{}),
		ended:    make(chan struct{}),
		arrived:  make(chan struct{}, 1),
		next:     from,
		acked:    from,
		told:     from,
	}
	p.ctx, p.cancel = context.WithCancelCause(c.link.ctx)
	if err := c.link.task(p.pump); err != nil {
		return nil, err
	}
	select {
	case <-p.attached:
	case <-ctx.Done():
		p.cancel(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.answered {
		return nil, p.failure
	}
	return p, nil
}

// update changes the state, and alone decides what has been answered and what has ended.
func (p *process) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if p.failure != nil || p.answered {
		closeOnce(p.attached)
	}
	if p.failure != nil || p.exit != nil {
		closeOnce(p.exited)
	}
	wake(p.arrived)
	p.tell()
}

// news is closed at the next change. p.mu is held.
func (p *process) news() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// tell wakes whoever waits for news. p.mu is held.
func (p *process) tell() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// wake leaves a token, unless there is one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pump is the goroutine that receives.
func (p *process) pump() {
	defer close(p.ended)
	defer p.cancel(nil)
	link := p.client.link
	link.begin()
	defer link.end()
	for {
		conn, err := link.get(p.ctx)
		if err == nil {
			err = p.converse(conn)
		}
		switch {
		case err == nil:
			return
		case p.ctx.Err() != nil:
			err = context.Cause(p.ctx)
		case conn != nil && connectionLost(conn, err):
			continue
		}
		p.update(func() {
			if p.failure = err; p.answered {
				p.failure = fmt.Errorf("process %q: %w", p.id, err)
			}
		})
		return
	}
}

// converse attaches on conn and receives until the output has closed (nil), or the call has failed.
func (p *process) converse(conn *wire.Conn) error {
	request, from, wanted := p.request()
	call, err := conn.Open(request)
	if err != nil {
		return err
	}
	err = p.receive(call, request.Method, from, wanted)
	if err != nil {
		// What was received and not handed out comes again: the queue stays bounded by the credit of one call.
		p.update(func() { p.call, p.queue, p.first = nil, nil, 0 })
	}
	detach(call)
	return err
}

// receive receives until the output has closed. The call began at the output offset from; what lies below wanted
// the consumer has had.
func (p *process) receive(call *wire.Call, method string, from, wanted int64) error {
	for received := from; ; {
		event, err := call.Receive(p.ctx)
		if err != nil {
			return err
		}
		switch event.Kind {
		case wire.DataEvent:
			offset := received
			received += int64(len(event.Data))
			p.arrive(piece{call: call, event: event, offset: offset}, wanted)
		case wire.AckEvent:
			p.update(p.progress)
		case wire.ReplyEvent:
			var about attached
			if err := json.Unmarshal(event.Data, &about); err != nil {
				return fmt.Errorf("answer to %s: %w", method, err)
			}
			if about.Pid == 0 {
				continue // a refusal follows
			}
			if p.Owner() && !about.Owner {
				return fmt.Errorf("%w: another client has become its owner meanwhile", env.ErrFenced)
			}
			p.update(func() { p.begin(call, about) })
		case wire.ControlEvent:
			var c control
			if err := json.Unmarshal(event.Data, &c); err != nil {
				return fmt.Errorf("control %q: %w", event.Data, err)
			}
			if c.Lost != nil {
				received = c.Lost.Offset + c.Lost.Bytes
				p.arrive(piece{offset: c.Lost.Offset, lost: c.Lost.Bytes}, wanted)
				continue
			}
			p.update(func() {
				switch {
				case c.Exit != nil:
					p.exit = c.Exit
				case c.StdinTaken != nil:
					p.input.took(*c.StdinTaken)
				case c.StdinClosed != nil:
					p.input.end(*c.StdinClosed, "the process does not read it any more")
				}
			})
		case wire.EndEvent:
			var result ended
			if err := json.Unmarshal(event.Data, &result); err != nil {
				return fmt.Errorf("end of %s: %w", method, err)
			}
			p.update(func() {
				p.exit, p.closed, p.call = &result.Exit, true, nil
				p.input.end(result.Stdin, "the process has ended")
			})
			return nil
		}
	}
}

// request is the call that attaches, the output offset that it begins at, and the one wanted.
func (p *process) request() (request wire.Request, from, wanted int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from, wanted = p.next, p.next
	if p.explicit { // attaching at an offset acknowledges what lies below
		from = p.acked
	}
	if !p.answered {
		return p.open(from), from, wanted
	}
	// It has started: from here on a retry may only find it again, and as what it was.
	return wire.Request{Method: methodProcessAttach, Params: attachParams{
		ID: wire.Text(p.id), From: from, Watch: !p.about.Owner, ExplicitAck: p.explicit,
	}}, from, wanted
}

// begin takes the answer to an attaching call in. p.mu is held.
func (p *process) begin(call *wire.Call, about attached) {
	if p.answered && about.Input == "" {
		about.Input = p.about.Input // the server has forgotten: it has ended
	}
	p.input.begin(about, !p.answered)
	p.call, p.about, p.answered = call, about, true
	p.resized = false
}

// detach ends a call, and waits a little so that the server has let go of the process by then.
func detach(call *wire.Call) {
	ctx, cancel := context.WithTimeout(context.Background(), detachWithin)
	defer cancel()
	endCall(ctx, call)
}

// arrive queues a piece of output for the consumer, who has had everything below wanted.
func (p *process) arrive(next piece, wanted int64) {
	if had := wanted - next.offset; had > 0 {
		size := int64(len(next.event.Data)) + next.lost
		if had >= size {
			if next.call != nil {
				next.call.Took(next.event)
			}
			return
		}
		next.offset = wanted
		if next.lost > 0 {
			next.lost -= had
		} else {
			next.skip = int(had)
		}
	} else if next.call == nil && next.lost == 0 {
		return // only says where the next bytes lie
	}
	p.mu.Lock()
	if p.first > 64 && p.first > len(p.queue)/2 {
		n := copy(p.queue, p.queue[p.first:])
		clear(p.queue[n:])
		p.queue, p.first = p.queue[:n], 0
	}
	p.queue = append(p.queue, next)
	p.mu.Unlock()
	wake(p.arrived)
}

// Output implements [env.Process].
func (p *process) Output(ctx context.Context) iter.Seq2[env.Chunk, error] {
	return func(yield func(env.Chunk, error) bool) {
		for {
			next, err := p.take(ctx)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(env.Chunk{}, err)
				return
			}
			more := yield(next.chunk(), nil)
			if next.call != nil {
				next.call.Took(next.event)
			}
			if !more {
				return
			}
		}
	}
}

// take waits for the next piece; io.EOF when the output has closed.
func (p *process) take(ctx context.Context) (piece, error) {
	for {
		p.mu.Lock()
		if p.first < len(p.queue) {
			next := p.queue[p.first]
			p.queue[p.first] = piece{}
			if p.first++; p.first == len(p.queue) {
				p.queue, p.first = p.queue[:0], 0
			}
			p.next = next.offset + int64(len(next.event.Data)-next.skip) + next.lost
			p.mu.Unlock()
			return next, nil
		}
		failure, closed := p.failure, p.closed
		p.mu.Unlock()
		switch {
		case closed:
			return piece{}, io.EOF
		case failure != nil:
			return piece{}, failure
		}
		select {
		case <-p.arrived:
		case <-ctx.Done():
			return piece{}, context.Cause(ctx)
		}
	}
}

// Ack implements [env.Process].
func (p *process) Ack(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.explicit && offset > p.acked {
		p.acked = min(offset, p.next)
		p.announce() //nolint:errcheck // a closed client acknowledges nothing
	}
}

// Resize implements [env.Process].
func (p *process) Resize(ctx context.Context, size env.Size) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.mayAct()
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case size.Rows == 0 || size.Columns == 0:
		err = fmt.Errorf("%w: a terminal of %d rows and %d columns", env.ErrInvalid, size.Rows, size.Columns)
	case p.about.Input != inputTerminal:
		err = fmt.Errorf("%w: it has no terminal", env.ErrInvalid)
	case p.exit != nil:
		err = fmt.Errorf("%w: it has ended", env.ErrInvalid)
	default:
		p.size, p.resized = &size, false
		err = p.announce()
	}
	if err != nil {
		return fmt.Errorf("resize process %q: %w", p.id, err)
	}
	return nil
}

// announce sees to it that the teller runs, and wakes it. p.mu is held.
func (p *process) announce() error {
	if !p.telling {
		if err := p.client.link.task(p.teller); err != nil {
			return err
		}
		p.telling = true
	}
	p.tell()
	return nil
}

// teller is the goroutine that sends sizes and acknowledgements, the newest of each.
func (p *process) teller() {
	p.send(func(call *wire.Call) func() {
		var c control
		switch {
		case p.size != nil && !p.resized:
			c.Resize, p.resized = p.size, true
		case p.told < p.acked:
			acked := p.acked
			c.Acked, p.told = &acked, acked
		default:
			return nil
		}
		return func() { call.Control(c) } //nolint:errcheck // on the next call it is told again
	})
}

// send sends what next gives on the current call, until the attachment ends. next is called with p.mu held; it
// returns nil when there is nothing to be sent.
func (p *process) send(next func(*wire.Call) func()) {
	for {
		p.mu.Lock()
		var send func()
		if p.call != nil {
			send = next(p.call)
		}
		var changed <-chan struct{}
		if send == nil {
			changed = p.news()
		}
		p.mu.Unlock()
		if send != nil {
			send()
			continue
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return
		}
	}
}

// mayAct tells why this attachment may not type or resize, if it may not. p.mu is held.
func (p *process) mayAct() error {
	switch {
	case p.failure != nil:
		return p.failure
	case !p.about.Owner:
		return fmt.Errorf("%w: this attachment only watches; attach with take to become the owner", env.ErrFenced)
	}
	return nil
}

// ID implements [env.Process].
func (p *process) ID() string { return p.id }

// Pid implements [env.Process].
func (p *process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.about.Pid
}

// Owner implements [env.Process].
func (p *process) Owner() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.about.Owner && p.failure == nil
}

// Signal implements [env.Process].
func (p *process) Signal(ctx context.Context, sig env.Signal) error {
	return p.client.Signal(ctx, p.id, sig)
}

// Exited implements [env.Process].
func (p *process) Exited() <-chan struct{} { return p.exited }

// Exit implements [env.Process].
func (p *process) Exit() (env.Exit, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.exit != nil:
		return *p.exit, nil
	case p.failure != nil:
		return env.Exit{}, p.failure
	}
	return env.Exit{}, fmt.Errorf("process %q is still running", p.id)
}

// Close implements [env.Process].
func (p *process) Close() error {
	p.cancel(fmt.Errorf("this attachment is closed: %w", fs.ErrClosed))
	timer := time.NewTimer(detachWithin)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C: // the network has stalled; the server notices in time
	}
	return nil
}

var _ env.Process = (*process)(nil)
