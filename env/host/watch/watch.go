// Package watch tells what changes in this machine's file systems. It implements [env.Watcher].
//
// A watch has one goroutine that takes what the kernel says, keeps a kernel watch for each directory, and puts what
// changed into a batch; it never waits for the consumer, who takes the batches at his own pace. What the kernel had
// to drop, and what could not be kept up with, is told as Rescan. Where the kernel tells nothing, as on network file
// systems, the tree is looked at every so often instead.
//
// Invariants, for whoever edits this:
//   - A directory is first given to the kernel and then listed, so that nothing made between goes untold.
//   - No kernel watch outlives the place of its directory: what is renamed away is forgotten with all below it, and
//     a directory that turns up is forgotten where it was before.
//   - Whenever the picture of the tree is in doubt it is made anew, and Rescan is told after that.
//   - Before a batch is told the root is looked at: it must still be the same directory at the same path.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// Options bound the watches of a machine.
type Options struct {
	// Limit is how many watches there may be at a time; 0 is 1024. The kernel has limits of its own: on Linux of
	// directories, elsewhere of files.
	Limit int
	// Poll is for machines, and tests, where events cannot be trusted: every path is looked at every so often, Poll
	// apart at first. 0: that is done only where there are no events, every second at first.
	Poll time.Duration
}

// Watcher watches this machine's file systems. It implements [env.Watcher].
type Watcher struct {
	options Options
	mounts  *mounts
	kernel  kernel

	mu      sync.Mutex
	watches map[*watch]struct{}
	closed  bool
}

var _ env.Watcher = (*Watcher)(nil)

// New returns a Watcher. Close ends all its watches.
func New(o Options) *Watcher {
	o.Limit = cmp.Or(o.Limit, 1024)
	w := &Watcher{options: o, watches: map[*watch]struct{}{}}
	w.mounts = &mounts{changed: w.remounted}
	return w
}

var (
	errClosed   = fmt.Errorf("%w: the watch was ended", fs.ErrClosed)
	errShutdown = fmt.Errorf("%w: the server is shutting down", fs.ErrClosed)
	errGone     = errors.New("what was watched is gone")
)

// Close ends all watches and waits for them. It is idempotent.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	watches := make([]*watch, 0, len(w.watches))
	for one := range w.watches {
		watches = append(watches, one)
	}
	w.mu.Unlock()
	for _, one := range watches {
		one.close(errShutdown)
	}
	for _, one := range watches {
		<-one.ended
	}
	w.mounts.close()
	return nil
}

// remounted tells all watches that something was mounted or unmounted.
func (w *Watcher) remounted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.watches {
		select {
		case one.remounted <- struct{}{}:
		default:
		}
	}
}

// Watch implements env.Watcher. A file is watched through its directory, and through those of all links that lead
// to it, so that it may be replaced; Modified is told when it is.
func (w *Watcher) Watch(ctx context.Context, path pathuri.URI, options env.WatchOptions) (env.Watch, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if path.IsZero() {
		return nil, fmt.Errorf("%w: watch of no path", env.ErrInvalid)
	}
	root, err := path.NativeFor(convention)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	if strings.ContainsRune(root, 0) {
		return nil, fmt.Errorf("%w: watch %q: the path contains a NUL", env.ErrInvalid, root)
	}
	one := &watch{
		uri: path, root: root, recursive: options.Recursive, watcher: w, batch: newBatch(root),
		remounted: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	one.closing, one.cancel = context.WithCancelCause(context.Background())
	if err := w.enter(one); err != nil {
		return nil, fmt.Errorf("watch %q: %w", root, err)
	}
	if err := one.begin(ctx); err != nil {
		w.leave(one)
		close(one.ended)
		return nil, fmt.Errorf("watch %q: %w", root, err)
	}
	return one, nil
}

// enter counts a watch.
func (w *Watcher) enter(one *watch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return errShutdown
	case len(w.watches) >= w.options.Limit:
		return fmt.Errorf("%w: there are %d watches already, which is all this server allows: end one first", env.ErrLimit, len(w.watches))
	}
	w.watches[one] = struct{}{}
	w.mounts.open()
	return nil
}

func (w *Watcher) leave(one *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watches, one)
}

// A watch is one watch at work. It implements env.Watch.
type watch struct {
	uri       pathuri.URI
	root      string // uri's native path
	directory bool   // root was one when the watch began
	recursive bool
	polling   bool     // the kernel is not asked
	id        identity // of root
	watcher   *Watcher
	batch     *batch

	remounted chan struct{} // something was mounted or unmounted
	closing   context.Context
	cancel    context.CancelCauseFunc
	ended     chan struct{} // closed when nothing of the watch works any more
}

// begin starts to look, and leaves a goroutine that goes on with it.
func (w *watch) begin(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.closing, func() { cancel(context.Cause(w.closing)) })()
	info, err := os.Stat(w.root)
	if errors.Is(err, fs.ErrNotExist) {
		if _, linkErr := os.Lstat(w.root); linkErr == nil {
			err = nil // a dangling link is watched for what it may lead to
		}
	}
	if err != nil {
		return reason(err)
	}
	if info != nil {
		w.directory = info.IsDir()
		w.id = identify(info)
	}
	if w.watcher.options.Poll > 0 || noEvents(w.root) || noEvents(filepath.Dir(w.root)) && !w.directory {
		return w.beginPolling(ctx)
	}
	e := newEvents(w)
	switch err := e.arm(ctx); {
	case errors.Is(err, errNoEvents):
		return w.beginPolling(ctx)
	case errors.Is(err, errGone):
		return fs.ErrNotExist
	case err != nil:
		return err
	}
	go func() {
		defer w.finish()
		defer e.disarm()
		w.stop(e.run())
	}()
	return nil
}

// beginPolling is begin where there are no events.
func (w *watch) beginPolling(ctx context.Context) error {
	w.polling = true
	p := &poller{
		root: w.root, directory: w.directory, recursive: w.recursive, id: w.id, batch: w.batch,
		interval: cmp.Or(w.watcher.options.Poll, time.Second),
	}
	if err := p.begin(ctx); err != nil {
		return err
	}
	go func() {
		defer w.finish()
		w.stop(p.run(w.closing))
	}()
	return nil
}

// stop tells the consumer why there is no more.
func (w *watch) stop(err error) {
	if errors.Is(err, errGone) {
		w.batch.end()
		return
	}
	w.batch.fail(fmt.Errorf("watch %q: %w", w.root, err))
}

// finish lets go of the watch's place among the watches.
func (w *watch) finish() {
	w.watcher.leave(w)
	close(w.ended)
}

// there reports whether the root is what and where it was: a rename of a directory above it tells us nothing.
func (w *watch) there() bool {
	if !w.directory || w.polling {
		return true // a file may be replaced; its path is looked at whenever something happens to it
	}
	info, err := os.Stat(w.root)
	return err == nil && info.IsDir() && identify(info) == w.id
}

// Changes implements env.Watch.
func (w *watch) Changes(ctx context.Context) iter.Seq2[[]env.Change, error] {
	return func(yield func([]env.Change, error) bool) {
		for {
			taken, err := w.batch.next(ctx, w.there)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(taken) == 0 || !yield(w.told(taken), nil) {
				return
			}
			if taken[0].kind == env.Gone {
				w.cancel(errGone)
				return
			}
		}
	}
}

// told makes of a batch what the consumer is told.
func (w *watch) told(taken []change) []env.Change {
	changes := make([]env.Change, 0, len(taken))
	for _, c := range taken {
		uri := w.uri
		if c.path != w.root {
			var err error
			if uri, err = pathuri.FromNative(c.path, convention); err != nil {
				return []env.Change{{Path: w.uri, Kind: env.Rescan}} // a name that no path can carry
			}
		}
		changes = append(changes, env.Change{Path: uri, Kind: c.kind})
	}
	return changes
}

// Close implements env.Watch.
func (w *watch) Close() error {
	w.close(errClosed)
	<-w.ended
	return nil
}

func (w *watch) close(why error) {
	w.cancel(why)
	w.batch.fail(fmt.Errorf("watch %q: %w", w.root, why))
}

// reason is an error without the path, which is said elsewhere with its bytes escaped.
func reason(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
