package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"slices"
	"sync"

	"github.com/google/uuid"

	"waldo/env"
	"waldo/wire"
)

// maxPendingInput bounds the bytes of standard input that a client keeps until the process has taken them.
const maxPendingInput = 1 << 20

// process is the client's attachment to a process. Its pump goroutine receives, and attaches again when the
// connection was cut; its feeder goroutine, made by the first write, sends standard input.
type process struct {
	client *Client
	ctx    context.Context // of the attachment
	cancel context.CancelCauseFunc
	open   func(from int64) wire.Request // the call that starts it, or attaches first, at an output offset
	watch  bool

	attached chan struct{} // closed when the first attempt has been answered
	exited   chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed and made anew when anything below changes

	// What the server said.
	about   attached
	exit    *env.Exit
	failure error // the attachment has ended for this reason
	closed  bool  // the output has ended

	// Output.
	call  *wire.Call // the current one, nil while there is none
	queue []piece    // received, not handed out
	next  int64      // offset of what the consumer gets next

	// Standard input: pending lies at the offset inputAt of the whole.
	pending  []byte
	inputAt  int64 // what the process has taken
	sentTo   int64 // what the current call was given
	base     int64 // where the current call began
	eof      bool  // CloseStdin was asked for
	eofSent  bool  // on the current call
	eofTaken bool
	inputErr error
	size     *env.Size // the last one asked for, not given to the current call
	feeding  bool
}

// piece is one step of output: bytes still in the event of the call they came with, or a loss.
type piece struct {
	call  *wire.Call
	event wire.Event
	chunk env.Chunk
}

// Start implements [env.Runner].
func (c *Client) Start(ctx context.Context, command env.Command) (env.Process, error) {
	if command.ID == "" {
		command.ID = uuid.NewString()
	}
	params := newStartParams(command)
	return c.attach(ctx, command.From, false, func(from int64) wire.Request {
		params.From = from
		return wire.Request{Method: methodProcessStart, Params: params}
	})
}

// Attach implements [env.Runner].
func (c *Client) Attach(ctx context.Context, id string, attach env.Attach) (env.Process, error) {
	params := attachParams{ID: id, From: attach.From, Watch: attach.Watch, Take: attach.Take}
	return c.attach(ctx, attach.From, attach.Watch, func(from int64) wire.Request {
		params.From = from
		return attachRequest(params)
	})
}

func attachRequest(params attachParams) wire.Request {
	return wire.Request{Method: methodProcessAttach, Params: params}
}

func (c *Client) attach(ctx context.Context, from int64, watch bool, open func(int64) wire.Request) (env.Process, error) {
	p := &process{
		client:   c,
		open:     open,
		watch:    watch,
		attached: make(chan struct{}),
		exited:   make(chan struct{}),
		changed:  make(chan struct{}),
		next:     from,
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	if err := c.track(p, p.pump); err != nil {
		return nil, err
	}
	select {
	case <-p.attached:
	case <-ctx.Done():
		p.Close() //nolint:errcheck // returns nil
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.about.ID == "" {
		return nil, p.failure
	}
	return p, nil
}

// update changes the state and wakes whoever waits for it.
func (p *process) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// pump is the goroutine that receives.
func (p *process) pump() {
	defer p.client.untrack(p)
	link := p.client.link
	link.begin()
	defer link.end()
	for {
		conn, err := link.get(p.ctx)
		if err == nil {
			if err = p.converse(conn); err == nil {
				return
			}
			if p.ctx.Err() == nil && connectionLost(conn, err) {
				continue
			}
		}
		p.fail(err)
		return
	}
}

// fail ends the attachment.
func (p *process) fail(err error) {
	p.update(func() {
		p.failure = err
		p.call = nil
	})
	p.settle()
}

// settle marks what has been waited for as answered, once each.
func (p *process) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil || p.about.ID != "" {
		closeOnce(p.attached)
	}
	if p.failure != nil || p.exit != nil {
		closeOnce(p.exited)
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// converse attaches on conn and receives until the output has closed (nil), or the call has failed.
func (p *process) converse(conn *wire.Conn) error {
	p.mu.Lock()
	from, known := p.next, p.about.ID
	p.mu.Unlock()
	request := p.open(from)
	if known != "" {
		// It has started: from here on a retry may only find it again.
		request = attachRequest(attachParams{ID: known, From: from, Watch: p.watch})
	}
	call, err := conn.Open(request)
	if err != nil {
		return err
	}
	defer call.Close()
	// What was received on an earlier call and not handed out comes again: the queue stays bounded by one credit.
	received := from
	for {
		event, err := call.Receive(p.ctx)
		if err != nil {
			p.update(func() { p.call, p.queue = nil, nil })
			return err
		}
		switch event.Kind {
		case wire.ReplyEvent:
			var about attached
			if err := json.Unmarshal(event.Data, &about); err != nil {
				return fmt.Errorf("answer to %s: %w", request.Method, err)
			}
			if known != "" && p.Owner() && !about.Owner {
				return fmt.Errorf("process %s: %w", known, env.ErrFenced)
			}
			p.update(func() { p.begin(call, about) })
			p.settle()
		case wire.AckEvent:
			p.update(p.progress)
		case wire.DataEvent:
			chunk := env.Chunk{Offset: received, Channel: env.Channel(event.Channel), Data: event.Data}
			received += int64(len(event.Data))
			p.update(func() { p.queue = append(p.queue, piece{call, event, chunk}) })
		case wire.ControlEvent:
			var c control
			if err := json.Unmarshal(event.Data, &c); err != nil {
				return fmt.Errorf("control %q: %w", event.Data, err)
			}
			if c.Lost != nil {
				received = c.Lost.Offset + c.Lost.Bytes
			}
			p.update(func() { p.control(c) })
			p.settle()
		case wire.EndEvent:
			var result ended
			if err := json.Unmarshal(event.Data, &result); err != nil {
				return fmt.Errorf("end of a process: %w", err)
			}
			p.update(func() {
				p.exit, p.closed, p.call = &result.Exit, true, nil
				if p.inputErr == nil {
					p.inputErr = env.ErrStdinClosed
				}
			})
			p.settle()
			return nil
		}
	}
}

// begin takes the answer to an attaching call in. p.mu is held.
func (p *process) begin(call *wire.Call, about attached) {
	p.call, p.about = call, about
	p.taken(about.Stdin)
	p.base, p.sentTo, p.eofSent = p.inputAt, p.inputAt, false
}

// taken drops standard input that the process has taken. p.mu is held.
func (p *process) taken(to int64) {
	if n := to - p.inputAt; n > 0 && n <= int64(len(p.pending)) {
		p.pending = p.pending[n:]
		p.inputAt = to
	} else if n > 0 { // taken from an earlier owner
		p.pending, p.inputAt = nil, to
	}
}

// control acts on a CONTROL of the server. p.mu is held.
func (p *process) control(c control) {
	switch {
	case c.Exit != nil:
		p.exit = c.Exit
	case c.Lost != nil && c.Lost.Bytes > 0:
		p.queue = append(p.queue, piece{chunk: env.Chunk{Offset: c.Lost.Offset, Lost: c.Lost.Bytes}})
	case c.StdinClosed != nil:
		p.inputErr = env.ErrStdinClosed
	case c.StdinTaken != nil:
		p.taken(*c.StdinTaken)
		p.eofTaken = true
	}
}

func (p *process) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.about.ID
}

func (p *process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.about.Pid
}

func (p *process) Owner() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.about.Owner
}

func (p *process) StdinOffset() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress()
	return p.inputAt
}

// progress takes the acks of the current call in. p.mu is held.
func (p *process) progress() {
	if p.call != nil {
		p.taken(p.base + p.call.Taken())
	}
}

// Output implements [env.Process].
func (p *process) Output(ctx context.Context) iter.Seq2[env.Chunk, error] {
	return func(yield func(env.Chunk, error) bool) {
		for {
			piece, err := p.take(ctx)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(env.Chunk{}, err)
				return
			}
			more := yield(piece.chunk, nil)
			if piece.call != nil {
				piece.call.Took(piece.event)
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
		if len(p.queue) > 0 {
			next := p.queue[0]
			p.queue = slices.Delete(p.queue, 0, 1)
			p.next = next.chunk.Offset + int64(len(next.chunk.Data)) + next.chunk.Lost
			p.mu.Unlock()
			return next, nil
		}
		changed, failure, closed := p.changed, p.failure, p.closed
		p.mu.Unlock()
		switch {
		case closed:
			return piece{}, io.EOF
		case failure != nil:
			return piece{}, failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return piece{}, context.Cause(ctx)
		}
	}
}

// Ack implements [env.Process]. Taking the next step acknowledges; a relay of a relay is not made.
func (p *process) Ack(int64) {}

// Write implements [env.Process].
func (p *process) Write(ctx context.Context, b []byte) (n int, err error) {
	for len(b) > 0 {
		p.mu.Lock()
		p.progress()
		room := maxPendingInput - len(p.pending)
		err := p.writable()
		changed := p.changed
		p.mu.Unlock()
		if err != nil {
			return n, err
		}
		if room <= 0 {
			if err := p.await(ctx, changed); err != nil {
				return n, err
			}
			continue
		}
		part := b[:min(len(b), room)]
		p.update(func() { p.pending = append(p.pending, part...) })
		if err := p.feed(); err != nil {
			return n, err
		}
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}

// writable tells why standard input takes no more. p.mu is held.
func (p *process) writable() error {
	switch {
	case p.inputErr != nil:
		return p.inputErr
	case p.failure != nil:
		return p.failure
	case p.eof:
		return env.ErrStdinClosed
	case !p.about.Owner:
		return fmt.Errorf("process %s: %w: attached as a watcher", p.about.ID, env.ErrFenced)
	}
	return nil
}

func (p *process) await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// feed sees to it that the feeder runs.
func (p *process) feed() error {
	p.mu.Lock()
	start := !p.feeding
	p.feeding = true
	p.mu.Unlock()
	if start {
		return p.client.track(p, p.feeder)
	}
	return nil
}

// feeder is the goroutine that sends standard input, from where the process has taken it on each new call.
func (p *process) feeder() {
	buffer := make([]byte, wire.MaxData)
	for {
		p.mu.Lock()
		call, changed := p.call, p.changed
		over := p.failure != nil || p.closed || p.inputErr != nil
		var n int
		var eof bool
		var size *env.Size
		if call != nil {
			p.progress()
			if at := p.sentTo - p.inputAt; at >= 0 && at < int64(len(p.pending)) {
				n = copy(buffer, p.pending[at:])
				p.sentTo += int64(n)
			}
			eof = n == 0 && p.eof && !p.eofSent && !p.eofTaken
			p.eofSent = p.eofSent || eof
			size, p.size = p.size, nil
		}
		p.mu.Unlock()
		switch {
		case over:
			return
		case size != nil:
			call.Control(control{Resize: size}) //nolint:errcheck // the pump notices a cut
		}
		switch {
		case n > 0:
			// On a cut the next call begins where the process is.
			call.Send(p.ctx, wire.Channel(env.Stdin), buffer[:n]) //nolint:errcheck // the pump notices a cut
		case eof:
			call.Control(control{StdinEOF: &none{}}) //nolint:errcheck // the pump notices a cut
		case size == nil:
			select {
			case <-changed:
			case <-p.ctx.Done():
				return
			}
		}
	}
}

// CloseStdin implements [env.Process].
func (p *process) CloseStdin(ctx context.Context) error {
	p.update(func() { p.eof = true })
	if err := p.feed(); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		taken, err, changed := p.eofTaken, p.inputErr, p.changed
		if err == nil {
			err = p.failure
		}
		p.mu.Unlock()
		switch {
		case taken:
			return nil
		case err != nil:
			return err
		}
		if err := p.await(ctx, changed); err != nil {
			return err
		}
	}
}

// Signal implements [env.Process].
func (p *process) Signal(ctx context.Context, sig env.Signal) error {
	return p.client.Signal(ctx, p.ID(), sig)
}

// Resize implements [env.Process].
func (p *process) Resize(_ context.Context, size env.Size) error {
	if size.Rows == 0 || size.Columns == 0 {
		return fmt.Errorf("%w: terminal size %dx%d", env.ErrInvalid, size.Columns, size.Rows)
	}
	p.mu.Lock()
	err := p.failure
	if p.exit != nil {
		err = fmt.Errorf("%w: process %s has ended", env.ErrUnknownProcess, p.about.ID)
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	p.update(func() { p.size = &size })
	return p.feed()
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
	return env.Exit{}, fmt.Errorf("process %s is running", p.about.ID)
}

// Close implements [env.Process].
func (p *process) Close() error {
	p.cancel(fmt.Errorf("attachment: %w", net.ErrClosed))
	return nil
}

var _ env.Process = (*process)(nil)
