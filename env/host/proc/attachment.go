package proc

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"sync"

	"waldo/env"
	"waldo/env/host/output"
)

// An attachment is one caller's hold of a process. It implements env.Process.
type attachment struct {
	process  *process
	owner    bool // it was made the owner; whether it still is, fenced tells
	explicit bool

	ctx   context.Context // ends, with the reason, when it is fenced or closed
	fence context.CancelCauseFunc

	reading sync.Mutex // held while Output is ranged over: one consumer
	cursor  *output.Cursor
}

var _ env.Process = (*attachment)(nil)

func newAttachment(p *process, c *output.Cursor, explicit bool) *attachment {
	a := &attachment{process: p, cursor: c, explicit: explicit}
	a.ctx, a.fence = context.WithCancelCause(context.Background())
	return a
}

func (a *attachment) ID() string              { return a.process.id }
func (a *attachment) Pid() int                { return a.process.child.pid }
func (a *attachment) Owner() bool             { return a.owner && a.ctx.Err() == nil }
func (a *attachment) Exited() <-chan struct{} { return a.process.exited }

func (a *attachment) Exit() (env.Exit, error) {
	if !a.process.hasExited() {
		return env.Exit{}, fmt.Errorf("process %q is still running", a.process.id)
	}
	return a.process.exit, nil
}

func (a *attachment) Output(ctx context.Context) iter.Seq2[env.Chunk, error] {
	return func(yield func(env.Chunk, error) bool) {
		if !a.reading.TryLock() {
			yield(env.Chunk{}, fmt.Errorf("%w: the output of process %q is already being read through this attachment", env.ErrInvalid, a.process.id))
			return
		}
		defer a.doneReading()
		for {
			if a.owner && !a.explicit {
				a.process.ack(a, a.cursor.Offset())
			}
			chunk, ok, err := a.next(ctx)
			if err != nil {
				yield(env.Chunk{}, err)
				return
			}
			if !ok || !yield(chunk, nil) {
				return
			}
		}
	}
}

func (a *attachment) next(ctx context.Context) (env.Chunk, bool, error) {
	if err := context.Cause(a.ctx); err != nil {
		return env.Chunk{}, false, err
	}
	if err := context.Cause(ctx); err != nil {
		return env.Chunk{}, false, err
	}
	chunk, ok, err := a.cursor.Next(ctx, a.ctx.Done(), a.Owner())
	if err != nil {
		return chunk, false, fmt.Errorf("output of process %q: %w", a.process.id, err)
	}
	if !ok && a.ctx.Err() != nil {
		return chunk, false, context.Cause(a.ctx)
	}
	return chunk, ok, nil
}

// ack counts only from the present owner.
func (p *process) ack(a *attachment, offset int64) {
	if a.owner && a.ctx.Err() == nil {
		p.log.Ack(offset)
	}
}

func (a *attachment) Ack(offset int64) { a.process.ack(a, offset) }

// mayAct tells why this attachment may not type or resize, if it may not.
func (a *attachment) mayAct() error {
	if err := context.Cause(a.ctx); err != nil {
		return err
	}
	if !a.owner {
		return fmt.Errorf("process %q: %w: this attachment only watches; attach with take to become the owner", a.process.id, env.ErrFenced)
	}
	return nil
}

func (a *attachment) Write(ctx context.Context, b []byte) (int, error) {
	if err := a.mayAct(); err != nil {
		return 0, err
	}
	if a.process.child.input == nil {
		return 0, fmt.Errorf("write to process %q: %w: it was started without one", a.process.id, env.ErrStdinClosed)
	}
	n, err := a.process.child.input.write(ctx, a.ctx, b)
	if err != nil {
		err = fmt.Errorf("write to process %q: %w", a.process.id, err)
	}
	return n, err
}

func (a *attachment) StdinOffset() int64 {
	if a.process.child.input == nil {
		return 0
	}
	return a.process.child.input.offset()
}

func (a *attachment) CloseStdin(ctx context.Context) error {
	if err := a.mayAct(); err != nil {
		return err
	}
	if a.process.child.input == nil {
		return nil
	}
	if err := a.process.child.input.end(ctx, a.ctx); err != nil {
		return fmt.Errorf("close standard input of process %q: %w", a.process.id, err)
	}
	return nil
}

func (a *attachment) Signal(ctx context.Context, sig env.Signal) error {
	if err := context.Cause(a.ctx); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return a.process.signal(sig)
}

func (a *attachment) Resize(ctx context.Context, size env.Size) error {
	if err := a.mayAct(); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	p := a.process
	switch {
	case !p.terminal:
		return fmt.Errorf("resize process %q: %w: it has no terminal", p.id, env.ErrInvalid)
	case size.Rows == 0 || size.Columns == 0:
		return fmt.Errorf("resize process %q: %w: a terminal of %d rows and %d columns", p.id, env.ErrInvalid, size.Rows, size.Columns)
	}
	if err := p.child.resize(size); err != nil {
		return fmt.Errorf("resize process %q: %w", p.id, err)
	}
	return nil
}

func (a *attachment) Close() error {
	a.process.detach(a)
	a.fence(fmt.Errorf("process %q: this attachment is closed: %w", a.process.id, fs.ErrClosed))
	a.letGo()
	return nil
}

// doneReading ends one range over the output.
func (a *attachment) doneReading() {
	a.cursor.Release()
	a.reading.Unlock()
	if a.ctx.Err() != nil { // Close found the cursor in use and left it to us
		a.letGo()
	}
}

// letGo gives back what the cursor holds, unless a consumer is using it, who then does.
func (a *attachment) letGo() {
	if a.reading.TryLock() {
		a.cursor.Close()
		a.reading.Unlock()
	}
}
