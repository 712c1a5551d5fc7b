// Package search looks through this machine's trees.
//
// Trees are walked by handle: a directory is opened by its name in the directory it was found in, never through a
// link, so that whatever is swapped meanwhile, nothing outside the tree is seen.
package search

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// maxOpen is how many directories, from the deepest upwards, are held open besides the root; the others are opened
// again, from below, when the walk comes back to them.
const maxOpen = 64

// Walk yields root and what is below it, as [env.Files] says of its Walk. open opens root, following links as the
// caller wants it; the handle is closed when the walk ends, and everything else is reached from it. Any kind of
// file may be opened, for the sake of its description; on Windows the handle's name must be the path it was opened by.
//
// MaxDepth is what is asked for, and no budget that bites: directories at that depth are told and not entered.
func Walk(ctx context.Context, root pathuri.URI, open func() (*os.File, error), options env.WalkOptions) iter.Seq2[env.Entry, error] {
	return func(yield func(env.Entry, error) bool) {
		w := walk{ctx: ctx, options: options, root: root, begun: time.Now(), yield: yield}
		defer w.close()
		if err := w.run(open); err != nil && !errors.Is(err, errBreak) {
			yield(env.Entry{}, err)
		}
	}
}

// errBreak says that the consumer has enough.
var errBreak = errors.New("the consumer has enough")

// walk is a walk under way.
type walk struct {
	ctx     context.Context
	options env.WalkOptions
	root    pathuri.URI
	begun   time.Time
	yield   func(env.Entry, error) bool

	stack  []level
	told   int
	reader reader
}

// level is a directory that the walk is in.
type level struct {
	uri   pathuri.URI
	dir   *handle  // nil while it is closed
	id    identity // to know it again
	names []string // in order, those still to come
}

func (w *walk) run(open func() (*os.File, error)) error {
	if err := w.proceed(); err != nil {
		return err
	}
	f, err := open()
	if err != nil {
		return err
	}
	dir, info, err := fromFile(f)
	if err != nil {
		f.Close() //nolint:errcheck // only read
		return fmt.Errorf("walk %q: %w", w.root.Display(), err)
	}
	if !info.Mode.IsDir() {
		dir.close()
		return w.tell(env.Entry{Path: w.root, Info: info})
	}
	if err := w.tell(env.Entry{Path: w.root, Info: info}); err != nil {
		dir.close()
		return err
	}
	if err := w.enter(w.root, dir); err != nil {
		return err
	}
	for len(w.stack) > 0 {
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

// step tells the next entry of the deepest directory, and enters it if it is one.
func (w *walk) step() error {
	top := &w.stack[len(w.stack)-1]
	if len(top.names) == 0 {
		return w.leave()
	}
	name := top.names[0]
	top.names = top.names[1:]
	uri, err := top.uri.JoinName(name)
	if err != nil {
		return w.tell(env.Entry{Path: top.uri, Err: err})
	}
	info, target, err := top.dir.describe(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return w.tell(env.Entry{Path: uri, Err: fmt.Errorf("%q: %w", uri.Display(), err)})
	}
	if err := w.tell(env.Entry{Path: uri, Info: info, Target: target}); err != nil || !info.Mode.IsDir() {
		return err
	}
	if w.options.MaxDepth > 0 && len(w.stack) >= w.options.MaxDepth {
		return nil
	}
	dir, err := top.dir.open(name)
	switch {
	case swapped(err):
		return nil // it is no directory any more
	case err != nil:
		return w.unread(uri, err)
	}
	return w.enter(uri, dir)
}

// enter reads a directory and goes on in it.
func (w *walk) enter(uri pathuri.URI, dir *handle) error {
	w.stack = append(w.stack, level{uri: uri, dir: dir})
	top := &w.stack[len(w.stack)-1]
	var err error
	if len(w.stack)-1 > maxOpen {
		above := &w.stack[len(w.stack)-1-maxOpen] // never the root, from which all others can be reached
		if above.id, err = above.dir.identity(); err == nil {
			above.dir.close()
			above.dir = nil
		}
	}
	top.names, err = w.reader.names(dir)
	slices.Sort(top.names)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return w.unread(uri, err)
	}
	return nil
}

// leave goes back to the directory above, which may have to be opened again.
func (w *walk) leave() error {
	last := len(w.stack) - 1
	dir := w.stack[last].dir
	defer dir.close()
	w.stack[last] = level{}
	w.stack = w.stack[:last]
	if last == 0 || w.stack[last-1].dir != nil {
		return nil
	}
	if above, err := same(dir.above, w.stack[last-1].id); err == nil {
		w.stack[last-1].dir = above
		return nil
	}
	return w.recover()
}

// recover goes on in the deepest directory that is still where it was, seen from the root, after one was moved away
// with the walk deep in it.
func (w *walk) recover() error {
	deepest, dir := 0, w.stack[0].dir
	var err error
	for i := 1; i < len(w.stack); i++ {
		name, _ := w.stack[i].uri.Base()
		var next *handle
		if next, err = same(func() (*handle, error) { return dir.open(name) }, w.stack[i].id); err != nil {
			break
		}
		if deepest > 0 {
			dir.close()
		}
		deepest, dir = i, next
	}
	w.stack[deepest].dir = dir
	lost := w.stack[deepest+1:]
	w.stack = w.stack[:deepest+1]
	for i := len(lost) - 1; i >= 0; i-- {
		if len(lost[i].names) > 0 {
			if err := w.unread(lost[i].uri, fmt.Errorf("%w: it was moved while it was read: %w", env.ErrChanged, err)); err != nil {
				return err
			}
		}
	}
	return nil
}

// same opens a directory that must be the one that was known before.
func same(open func() (*handle, error), id identity) (*handle, error) {
	h, err := open()
	if err != nil {
		return nil, err
	}
	now, err := h.identity()
	if err == nil && now != id {
		err = errors.New("another directory is in its place")
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// unread tells that a directory's entries are not all there.
func (w *walk) unread(uri pathuri.URI, err error) error {
	return w.tell(env.Entry{Path: uri, Err: fmt.Errorf("read directory %q: %w", uri.Display(), err)})
}

// tell yields an entry, within the budgets.
func (w *walk) tell(entry env.Entry) error {
	if err := w.proceed(); err != nil {
		return err
	}
	if w.options.MaxEntries > 0 && w.told >= w.options.MaxEntries {
		return fmt.Errorf("%w: %q has more than %d entries", env.ErrLimit, w.root.Display(), w.options.MaxEntries)
	}
	w.told++
	if !w.yield(entry, nil) {
		return errBreak
	}
	return nil
}

// proceed reports why the walk must not go on.
func (w *walk) proceed() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if w.options.MaxTime > 0 && time.Since(w.begun) >= w.options.MaxTime {
		return fmt.Errorf("%w: walking %q took %v, and %d entries were seen", env.ErrLimit, w.root.Display(), w.options.MaxTime, w.told)
	}
	return nil
}

func (w *walk) close() {
	for _, l := range w.stack {
		if l.dir != nil {
			l.dir.close()
		}
	}
}
