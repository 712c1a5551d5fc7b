package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync/atomic"

	"waldo/env"
	"waldo/pathuri"
)

// Write implements env.Files.
func (f *Files) Write(ctx context.Context, path pathuri.URI, o env.WriteOptions) (env.FileWriter, error) {
	text, err := native(ctx, "write", path)
	if err != nil {
		return nil, err
	}
	how := hold | follow
	switch o.Mode {
	case "":
		o.Mode = env.Replace
	case env.Replace, env.Append, env.Patch:
	case env.Exclusive:
		how = hold
	default:
		return nil, fmt.Errorf("%w: write %q: no such mode: %q", env.ErrInvalid, text, o.Mode)
	}
	if o.Offset < 0 || o.Offset > 0 && o.Mode != env.Patch {
		return nil, fmt.Errorf("%w: write %q: offset %d", env.ErrInvalid, text, o.Offset)
	}
	w := &writer{ctx: ctx, text: text, options: o, held: true}
	parents := o.Parents
	for range maxTries {
		var p place
		if p, err = f.find(path, text, how); err == nil {
			if err = w.begin(p); err == nil {
				return w, nil
			}
			p.close()
		}
		switch {
		case err == errSwapped: //nolint:errorlint // it is never wrapped
		case parents && errors.Is(err, fs.ErrNotExist):
			parents = false
			if err := f.mkdirAbove(ctx, path); err != nil {
				return nil, err
			}
		default:
			return nil, failure("write", text, err)
		}
	}
	return nil, failure("write", text, errLoop)
}

// writer is a file being written.
type writer struct {
	ctx      context.Context
	text     string
	options  env.WriteOptions
	at       place
	held     bool       // the place is this writer's to close
	file     *os.File   // what is written to
	temp     *temporary // what becomes the file at commit; nil if the file itself is written
	old      *status    // of the file that is replaced or changed
	size     int64      // of the file itself, if that is written
	next     int64      // where the next byte goes; not with Append
	position int64      // where the file itself would write it
	hole     bool       // nothing has been written yet behind the last hole
	taken    atomic.Int64
	failed   error
	closed   bool
	unlink   bool // a link at the place is replaced, not followed
}

// begin opens what is to be written. On success the place is the writer's.
func (w *writer) begin(p place) error {
	if p.isDirectoryItself() {
		return w.beginAtDirectory(p)
	}
	w.at = p
	switch w.options.Mode {
	case env.Exclusive:
		if _, err := p.lstat(); err == nil {
			return fs.ErrExist
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return w.beginNew()
	case env.Append:
		return w.beginAppend()
	case env.Patch:
		return w.beginInPlace(os.O_WRONLY)
	}
	old, st, err := p.openRegular(os.O_WRONLY)
	running := isRunning(err)
	if running { // as a program: the kernel says so only if we might write it
		if old, st, err = p.openRegular(os.O_RDONLY); err != nil {
			return errRunning
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), w.unlink && err == errSwapped: //nolint:errorlint // it is never wrapped
		return w.beginNew()
	case err != nil:
		return err
	}
	temp, err := p.replacement(old, st)
	switch {
	case err != nil:
	case temp != nil:
		old.Close() //nolint:errcheck // nothing was written to it
		w.file, w.temp, w.old = temp.file, temp, &st
		return nil
	case running:
		err = errRunning
	default:
		w.file, w.old, w.size = old, &st, st.size
		return nil
	}
	old.Close() //nolint:errcheck // nothing was written to it
	return err
}

var errRunning = coded{errors.New("the program is running, and its file can only be written in place: end it, or remove the file first"), fs.ErrPermission}

func (w *writer) beginAtDirectory(p place) error {
	if w.options.Mode == env.Exclusive {
		return fs.ErrExist
	}
	st, err := p.lstat()
	if err == nil {
		err = st.regular()
	}
	return err
}

func (w *writer) beginNew() error {
	temp, err := w.at.temporary(w.newMode())
	if err != nil {
		return err
	}
	w.file, w.temp = temp.file, temp
	return nil
}

// newMode is how a file is made, so that at no moment it is open to more than it is to be in the end.
func (w *writer) newMode() fs.FileMode {
	if w.options.Permissions != nil {
		return w.options.Permissions.Perm()
	}
	return 0o666
}

func (w *writer) beginInPlace(flags int) error {
	file, st, err := w.at.openRegular(flags)
	if err != nil {
		return err
	}
	w.file, w.old, w.size, w.next = file, &st, st.size, w.options.Offset
	return nil
}

func (w *writer) beginAppend() error {
	const flags = os.O_WRONLY | os.O_APPEND
	err := w.beginInPlace(flags)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.file, err = w.at.create(flags, w.newMode())
	if errors.Is(err, fs.ErrExist) {
		return errSwapped // it has come meanwhile
	}
	return err
}

// check is why the writer takes no more.
func (w *writer) check() error {
	switch {
	case w.closed:
		return fmt.Errorf("write %q: the writer is closed: %w", w.text, fs.ErrClosed)
	case w.failed != nil:
		return w.failed
	}
	return context.Cause(w.ctx)
}

func (w *writer) fail(err error) error {
	w.failed = failure("write", w.text, err)
	return w.failed
}

// Write implements env.FileWriter.
func (w *writer) Write(p []byte) (n int, err error) {
	if err := w.check(); err != nil {
		return 0, err
	}
	if err := w.seek(); err != nil {
		return 0, w.fail(err)
	}
	n, err = w.file.Write(p)
	w.wrote(int64(n))
	if err != nil {
		return n, w.fail(err)
	}
	return n, nil
}

// seek goes to where the next byte goes; with Append the system does.
func (w *writer) seek() error {
	if w.options.Mode == env.Append || w.position == w.next {
		return nil
	}
	var err error
	w.position, err = w.file.Seek(w.next, io.SeekStart)
	return err
}

// wrote notes what the file has taken.
func (w *writer) wrote(n int64) {
	w.taken.Add(n)
	w.next += n
	w.position += n
	w.size = max(w.size, w.next)
	w.hole = w.hole && n == 0
}

// Skip implements env.FileWriter.
func (w *writer) Skip(n int64) error {
	if err := w.check(); err != nil {
		return err
	}
	if n < 0 || n > math.MaxInt64-w.next {
		return fmt.Errorf("%w: write %q: a hole of %d bytes", env.ErrInvalid, w.text, n)
	}
	if n == 0 {
		return nil
	}
	if err := w.skip(n); err != nil {
		return w.fail(err)
	}
	w.taken.Add(n)
	return nil
}

func (w *writer) skip(n int64) error {
	if w.options.Mode == env.Append {
		end, err := w.file.Seek(0, io.SeekEnd)
		if err != nil {
			return err
		}
		return w.file.Truncate(end + n)
	}
	// What the file itself has there becomes zeros.
	var zeros [32 << 10]byte
	for end := min(w.next+n, w.size); w.next < end; {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		m, err := w.file.WriteAt(zeros[:min(int64(len(zeros)), end-w.next)], w.next)
		w.next += int64(m)
		n -= int64(m)
		if err != nil {
			return err
		}
	}
	w.next += n
	if n == 0 {
		return nil
	}
	w.hole = true
	if w.options.Mode == env.Patch {
		w.size, w.hole = w.next, false
		return w.file.Truncate(w.next)
	}
	return nil
}

// Taken implements env.FileWriter.
func (w *writer) Taken() int64 { return w.taken.Load() }

// Commit implements env.FileWriter.
func (w *writer) Commit() (env.Written, error) {
	if err := w.check(); err != nil {
		return env.Written{}, err
	}
	st, err := w.commit()
	if err != nil {
		return env.Written{}, w.fail(err)
	}
	inPlace := w.options.Mode == env.Replace && w.temp == nil
	w.temp = nil
	w.Close() //nolint:errcheck // all that could fail has been done
	return env.Written{Info: st.info(), InPlace: inPlace}, nil
}

func (w *writer) commit() (status, error) {
	replaces := w.options.Mode == env.Replace || w.options.Mode == env.Exclusive
	if replaces && (w.temp == nil || w.hole) {
		if err := w.file.Truncate(w.next); err != nil {
			return status{}, err
		}
	}
	if err := w.setPermissions(); err != nil {
		return status{}, err
	}
	if !w.options.Modified.IsZero() {
		if err := w.setModified(); err != nil {
			return status{}, err
		}
	}
	if !w.options.Unsynced {
		if err := w.file.Sync(); err != nil && !hasNoDisk(err) {
			return status{}, err
		}
	}
	if w.temp != nil {
		if err := w.temp.become(w.at, w.options.Mode == env.Exclusive, w.old == nil); err != nil {
			return status{}, err
		}
	}
	if !w.options.Unsynced && (w.temp != nil || w.old == nil) {
		if err := w.at.dir.sync(); err != nil {
			return status{}, err
		}
	}
	return fileStatus(w.file)
}

// setPermissions gives the file those it is to have, or those that it had.
func (w *writer) setPermissions() error {
	switch {
	case w.options.Permissions != nil && !(w.options.KeepPermissions && w.old != nil):
		bits := *w.options.Permissions & permissionBits
		if w.temp != nil && w.old == nil {
			if st, err := fileStatus(w.file); err == nil && st.mode == bits {
				return nil // made so
			}
		}
		return w.file.Chmod(bits)
	case w.temp != nil && w.old != nil:
		if st, err := fileStatus(w.file); err == nil && st.mode == w.old.mode {
			return nil // not every file system takes a mode
		}
		return w.file.Chmod(w.old.mode & permissionBits)
	case w.old != nil && w.old.mode&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		// Writing has cleared them. Only the owner may set them again, and so the machine decides.
		w.file.Chmod(w.old.mode & permissionBits) //nolint:errcheck // as above
	}
	return nil
}

// Close implements env.FileWriter.
func (w *writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.file.Close() //nolint:errcheck // what counts was synced, or is given up
	if w.temp != nil {
		w.temp.discard()
	}
	if w.held {
		w.at.close()
	}
	return nil
}
