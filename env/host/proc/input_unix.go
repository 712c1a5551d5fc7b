//go:build unix

package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// An input is a process's standard input: the write end of a pipe, or a terminal's master. One caller at a time
// writes to it, straight from its buffer; who waits for a turn or for the process gives up with its context.
type input struct {
	file *os.File
	raw  syscall.RawConn
	tty  bool
	pace func() // called between the pieces of a long text that is typed

	turn   chan struct{} // holds a token while somebody writes; what follows is guarded by it
	closed bool
	armed  bool // a write deadline was set
	line   lineState

	taken atomic.Int64
}

func newInput(file *os.File, tty bool) (*input, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &input{file: file, raw: raw, tty: tty, turn: make(chan struct{}, 1)}, nil
}

func (in *input) offset() int64 { return in.taken.Load() }

// lock takes the turn; holder is the attachment's own context.
func (in *input) lock(ctx, holder context.Context) error {
	for _, c := range []context.Context{holder, ctx} {
		if c.Err() != nil {
			return context.Cause(c)
		}
	}
	select {
	case in.turn <- struct{}{}:
		return nil
	case <-holder.Done():
		return context.Cause(holder)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (in *input) unlock() { <-in.turn }

// settle returns when no Write is under way.
func (in *input) settle(ctx context.Context) error {
	if err := in.lock(ctx, context.Background()); err != nil {
		return err
	}
	in.unlock()
	return nil
}

// write writes all of b, or tells how much was taken and why not the rest.
func (in *input) write(ctx, holder context.Context, b []byte) (int, error) {
	if err := in.lock(ctx, holder); err != nil {
		return 0, err
	}
	defer in.unlock()
	n, err := in.put(ctx, holder, b, &in.taken)
	if in.tty {
		in.line.typed(b[:n])
	}
	return n, err
}

// put writes b and counts what is taken. The turn is held.
func (in *input) put(ctx, holder context.Context, b []byte, taken *atomic.Int64) (n int, err error) {
	if in.closed {
		return 0, env.ErrStdinClosed
	}
	if in.armed {
		in.file.SetWriteDeadline(time.Time{}) //nolint:errcheck // write tells
		in.armed = false
	}
	disarm := in.arm(ctx, holder)
	defer disarm()
	var failed error
	for {
		err = in.raw.Write(func(fd uintptr) bool {
			for n < len(b) {
				piece := b[n:]
				if in.tty && len(piece) > ttyPiece {
					piece = piece[:ttyPiece]
				}
				if in.tty && n > 0 && ctx.Err() == nil && holder.Err() == nil {
					in.pace()
				}
				m, err := unix.Write(int(fd), piece)
				switch {
				case err == unix.EINTR:
				case err == unix.EAGAIN:
					return false
				case err != nil:
					failed = err
					return true
				default:
					n += m
					taken.Add(int64(m))
				}
			}
			return true
		})
		switch {
		case failed == unix.EPIPE || failed == unix.EIO:
			return n, fmt.Errorf("%w: the process does not read it any more", env.ErrStdinClosed)
		case failed != nil:
			return n, failed
		case err == nil:
			return n, nil
		case holder.Err() != nil:
			return n, context.Cause(holder)
		case ctx.Err() != nil:
			return n, context.Cause(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded):
			in.file.SetWriteDeadline(time.Time{}) //nolint:errcheck // an earlier interruption's
		default: // nothing else happens to a file than that it is closed
			return n, fmt.Errorf("%w: the process has ended", env.ErrStdinClosed)
		}
	}
}

const (
	ttyPiece = 1 << 10               // of a long text that is typed
	ttyPause = 20 * time.Millisecond // at most, between two
)

var past = time.Unix(1, 0)

// arm makes the end of either context interrupt a write that waits. The function it returns undoes that, and
// returns when no interruption can come any more.
func (in *input) arm(contexts ...context.Context) (disarm func()) {
	type watch struct {
		stop func() bool
		done chan struct{}
	}
	var watches []watch
	for _, ctx := range contexts {
		if ctx.Done() == nil {
			continue
		}
		done := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(done)
			in.file.SetWriteDeadline(past) //nolint:errcheck // closed files interrupt as well
		})
		watches = append(watches, watch{stop, done})
	}
	return func() {
		for _, w := range watches {
			if !w.stop() {
				<-w.done
				in.armed = true
			}
		}
	}
}

// end closes the pipe behind what was written; on a terminal it types end-of-file, which a later Write may follow.
func (in *input) end(ctx, holder context.Context) error {
	if err := in.lock(ctx, holder); err != nil {
		return err
	}
	defer in.unlock()
	if in.closed {
		return nil
	}
	if !in.tty {
		in.closed = true
		if err := in.file.Close(); !errors.Is(err, os.ErrClosed) {
			return err
		}
		return nil
	}
	keys, err := in.endKeys()
	if err != nil {
		return nil // no terminal any more: its end has been reached anyhow
	}
	_, err = in.put(ctx, holder, keys, new(atomic.Int64)) // no bytes of the caller's
	if errors.Is(err, env.ErrStdinClosed) {
		return nil
	}
	in.line.begun = 0
	return err
}

// endKeys is what has to be typed so that the reader sees the end. Where lines are edited, end-of-file after text
// only hands the text over, so that it takes a second one.
func (in *input) endKeys() ([]byte, error) {
	var termios *unix.Termios
	var err error
	if e := in.raw.Control(func(fd uintptr) { termios, err = unix.IoctlGetTermios(int(fd), ioctlGetTermios) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	eof := termios.Cc[unix.VEOF]
	if termios.Lflag&unix.ICANON == 0 || eof == 0 {
		return []byte{4}, nil
	}
	if in.line.begun > 0 {
		return []byte{eof, eof}, nil
	}
	return []byte{eof}, nil
}

// A lineState knows, as far as one can from outside, whether a line has been begun on a terminal.
type lineState struct {
	begun int // characters typed since the last line was handed over
}

func (l *lineState) typed(b []byte) {
	for _, c := range b {
		switch c {
		case '\n', '\r', 3, 4, 21, 26, 28: // interrupt, end-of-file, kill, suspend and quit keys empty the line
			l.begun = 0
		case 8, 127:
			l.begun = max(0, l.begun-1)
		default:
			l.begun++
		}
	}
}
