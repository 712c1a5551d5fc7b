package rpc

import (
	"context"
	"fmt"

	"waldo/env"
	"waldo/wire"
)

// maxPendingInput bounds the bytes of standard input that a client keeps until the process has taken them: what a
// call may have under way at least.
const maxPendingInput = 1<<20 - 192<<10

// input is the client's side of a process's standard input. What the process has not taken is kept, so that it
// can be given again after a cut; the server says on each new call where to go on. process.mu guards it.
type input struct {
	pending []byte // begins at the offset taken
	taken   int64  // by the process
	base    int64  // what was taken when the current call began
	sent    int64  // the current call was given everything below

	// End-of-files, of which a terminal may get several.
	ends      []int64 // where they were asked for, those that are not taken
	endsSent  int     // of them, on the current call
	endsAsked int64
	endsTaken int64

	err     error // it takes no more
	lost    bool  // bytes that were accepted were not taken, and nobody has been told
	feeding bool
}

// begin takes in what the server says of standard input when a call begins.
func (i *input) begin(about attached, first bool) {
	if first {
		i.endsAsked, i.endsTaken = about.Ends, about.Ends
	}
	i.took(inputTaken{about.Stdin, about.Ends})
	i.base, i.sent, i.endsSent = i.taken, i.taken, 0
}

// took lets go of what the process has taken.
func (i *input) took(taken inputTaken) {
	if n := taken.Bytes - i.taken; n > 0 {
		i.pending = i.pending[min(n, int64(len(i.pending))):]
		i.taken, i.sent = taken.Bytes, max(i.sent, taken.Bytes)
	}
	if len(i.pending) == 0 {
		i.pending = nil
	}
	if n := int(taken.Ends - i.endsTaken); n > 0 {
		n = min(n, len(i.ends))
		i.ends, i.endsSent = i.ends[n:], max(0, i.endsSent-n)
		i.endsTaken = taken.Ends
	}
}

// end says that nothing more can be taken.
func (i *input) end(bytes int64, why string) {
	i.took(inputTaken{Bytes: bytes})
	if i.err == nil {
		i.err = fmt.Errorf("%w: %s", env.ErrStdinClosed, why)
		i.lost = len(i.pending) > 0
		i.pending, i.ends = nil, nil
	}
}

// inputPiece is what is sent at a time: half of a pipe, so that what a process has not read is told as taken while
// its pipe has room.
const inputPiece = 32 << 10

// give is what the current call is to be sent next: bytes, or an end-of-file.
func (i *input) give() (part []byte, end bool) {
	to := i.taken + int64(len(i.pending))
	asked := i.endsSent < len(i.ends)
	if asked {
		to = min(to, i.ends[i.endsSent])
	}
	if n := min(to-i.sent, inputPiece); n > 0 {
		part = i.pending[i.sent-i.taken:][:n]
		i.sent += n
		return part, false
	}
	if asked {
		i.endsSent++
	}
	return nil, asked
}

// progress takes the acks of the current call in. p.mu is held.
func (p *process) progress() {
	if p.call != nil {
		p.input.took(inputTaken{Bytes: p.input.base + p.call.Taken()})
	}
}

// Write implements [env.Process].
func (p *process) Write(ctx context.Context, b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress()
	begin := p.input.taken + int64(len(p.input.pending))
	for {
		if err := p.mayWrite(); err != nil {
			// What was accepted and not taken is lost.
			n = int(min(max(p.input.taken-begin, 0), int64(n)))
			return n, fmt.Errorf("write to process %q: %w", p.id, err)
		}
		if ctx.Err() != nil {
			return n, context.Cause(ctx)
		}
		room := min(max(maxPendingInput-len(p.input.pending), 0), len(b))
		if room > 0 {
			p.input.pending = append(p.input.pending, b[:room]...)
			n, b = n+room, b[room:]
			if err := p.feed(); err != nil {
				return n, err
			}
		}
		if len(b) == 0 {
			return n, nil
		}
		p.await(ctx)
		p.progress()
	}
}

// mayWrite tells why standard input takes no bytes. p.mu is held.
func (p *process) mayWrite() error {
	if err := p.mayAct(); err != nil {
		return err
	}
	switch {
	case p.input.err != nil:
		p.input.lost = false
		return p.input.err
	case p.about.Input == "":
		return fmt.Errorf("%w: it was started without one", env.ErrStdinClosed)
	case p.about.Input == inputPipe && p.input.endsAsked > 0:
		return env.ErrStdinClosed
	}
	return nil
}

// await waits for news, or for ctx. p.mu is held, but not meanwhile.
func (p *process) await(ctx context.Context) {
	changed := p.news()
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

// StdinOffset implements [env.Process].
func (p *process) StdinOffset() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress()
	return p.input.taken
}

// CloseStdin implements [env.Process].
func (p *process) CloseStdin(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.mayAct(); err != nil {
		return fmt.Errorf("close standard input of process %q: %w", p.id, err)
	}
	i := &p.input
	switch {
	case i.err != nil || p.about.Input == "":
	case p.about.Input == inputTerminal || i.endsAsked == 0:
		i.ends = append(i.ends, i.taken+int64(len(i.pending)))
		i.endsAsked++
		if err := p.feed(); err != nil {
			return err
		}
	}
	for asked := i.endsAsked; i.endsTaken < asked; {
		switch {
		case i.lost:
			i.lost = false
			return fmt.Errorf("close standard input of process %q: %w", p.id, i.err)
		case i.err != nil:
			return nil
		case p.failure != nil:
			return p.failure
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		p.await(ctx)
	}
	return nil
}

// feed sees to it that the feeder runs, and wakes it. p.mu is held.
func (p *process) feed() error {
	if !p.input.feeding {
		if err := p.client.link.task(p.feeder); err != nil {
			return err
		}
		p.input.feeding = true
	}
	p.tell()
	return nil
}

// feeder is the goroutine that sends standard input.
func (p *process) feeder() {
	var framed []byte
	p.send(func(call *wire.Call) func() {
		part, end := p.input.give()
		switch {
		case end:
			return func() { call.Control(control{StdinEOF: &none{}}) } //nolint:errcheck // the pump notices a cut
		case len(part) == 0:
			return nil
		}
		framed = append(append(framed[:0], make([]byte, wire.HeaderSize)...), part...)
		wire.PutDataHeader(framed, wire.Channel(env.Stdin), len(part))
		return func() { call.SendFramed(p.ctx, framed) } //nolint:errcheck // on a cut the next call begins where the process is
	})
}
