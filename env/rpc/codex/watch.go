package codex

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"waldo/env"
	"waldo/pathuri"
)

// maxMissing is how many paths a watch may be about.
const maxMissing = 4096

type watchMissingParams struct {
	WatchID uint64    `json:"watchId"`
	Missing []pathURI `json:"missing"`
	Present *pathURI  `json:"present"`
}

type watchMissingResult struct {
	Watching bool `json:"watching"`
}

type missingChanged struct {
	WatchID uint64 `json:"watchId"`
}

// missingWatch is the one watch that a connection may have: it tells once that what the client knows is true no more.
type missingWatch struct {
	id   uint64 // rises on a connection
	stop context.CancelFunc
	over chan struct{} // closed when nothing is told any more
}

// prepareWatchMissing replaces the connection's watch, in the order of the calls.
func prepareWatchMissing(c *connection, params *watchMissingParams) (call, error) {
	paths := slices.Clone(params.Missing)
	if params.Present != nil {
		paths = append(paths, *params.Present)
	}
	if err := c.door.local(paths...); err != nil {
		return call{}, err
	}
	if len(params.Missing) > maxMissing {
		return call{}, invalidRequest("at most %d missing paths may be watched", maxMissing)
	}
	ctx, stop := context.WithCancel(c.ctx)
	mine := &missingWatch{id: params.WatchID, stop: stop, over: make(chan struct{})}
	c.mu.Lock()
	before := c.watch
	if before != nil && params.WatchID <= before.id {
		c.mu.Unlock()
		stop()
		return call{do: func(context.Context) (any, error) { return watchMissingResult{}, nil }}, nil // it is older
	}
	c.watch = mine
	c.mu.Unlock()
	var w *staleness
	return call{
		do: func(context.Context) (any, error) {
			if before != nil {
				before.stop()
				<-before.over
			}
			var err error
			w, err = c.observe(ctx, params.Missing, params.Present)
			if err != nil {
				return nil, err
			}
			return watchMissingResult{w != nil}, nil
		},
		then: func(context.Context) {
			defer close(mine.over)
			defer stop()
			if w == nil {
				return
			}
			defer w.close()
			if w.await(ctx) {
				c.peer.Notify(ctx, "fs/missingChanged", missingChanged{params.WatchID}) //nolint:errcheck // the client is gone
			}
		},
		undone: func() {
			stop()
			close(mine.over)
		},
	}, nil
}

// staleness watches what a client believes of some paths.
type staleness struct {
	files   env.Env
	missing []pathuri.URI // of each path the first name that was not there
	present pathuri.URI
	version string // of present
	release func()

	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup
	changed chan struct{} // holds a token when something has changed
	mu      sync.Mutex
	watches map[pathuri.URI]bool // directories that are watched
}

// observe begins to watch; nil if what the client believes is not so now, or it believes nothing.
func (c *connection) observe(ctx context.Context, missing []pathURI, present *pathURI) (*staleness, error) {
	if len(missing) == 0 {
		return nil, nil
	}
	release, err := c.session.rpc.Hold("watches")
	if err != nil {
		return nil, err
	}
	w := &staleness{files: c.session.env, release: release, watches: make(map[pathuri.URI]bool), changed: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	for _, path := range missing {
		_, absent, err := w.nearest(path.URI)
		if err != nil || absent.IsZero() {
			w.close()
			return nil, err
		}
		if !slices.Contains(w.missing, absent) {
			w.missing = append(w.missing, absent)
		}
	}
	if present != nil {
		w.present = present.URI
		info, err := w.files.Stat(ctx, w.present, false)
		if err != nil {
			w.close()
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			return nil, err
		}
		w.version = info.Version
	}
	stale, err := w.look()
	if stale || err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *staleness) close() {
	w.cancel()
	w.tasks.Wait()
	w.release()
}

// await waits until something has become stale, and tells false when ctx ends before.
func (w *staleness) await(ctx context.Context) bool {
	for {
		select {
		case <-w.changed:
		case <-ctx.Done():
			return false
		}
		if stale, err := w.look(); stale || err != nil { // in doubt the client is to look for itself
			return ctx.Err() == nil
		}
	}
}

// look tells whether something is stale, and sees to it that a change of that is noticed: a directory is watched before
// it is judged what is in it.
func (w *staleness) look() (stale bool, err error) {
	for _, path := range w.missing {
		for {
			there, missing, err := w.nearest(path)
			if err != nil {
				return false, err
			}
			if missing.IsZero() {
				return true, nil
			}
			added, err := w.watch(there)
			if err != nil {
				return false, err
			}
			if !added {
				break
			}
		}
	}
	if w.present.IsZero() {
		return false, nil
	}
	if parent, ok := w.present.Parent(); ok {
		if _, err := w.watch(parent); err != nil {
			return false, err
		}
	}
	if _, err := w.watch(w.present); err != nil {
		return errors.Is(err, fs.ErrNotExist), err
	}
	info, err := w.files.Stat(w.ctx, w.present, false)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return info.Version != w.version, err
}

// nearest is the nearest directory above path that is there, and the first name below it that is not; that is zero if
// the path is there.
func (w *staleness) nearest(path pathuri.URI) (there, missing pathuri.URI, err error) {
	below := pathuri.URI{}
	for above := range path.Ancestors() {
		info, err := w.files.Stat(w.ctx, above, above != path)
		switch {
		case err == nil && (above == path || info.Mode.IsDir()):
			return above, below, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, env.ErrNotDirectory):
			return there, missing, err
		}
		below = above
	}
	return there, missing, fs.ErrNotExist
}

// watch watches a path, and tells whether that is new.
func (w *staleness) watch(path pathuri.URI) (added bool, err error) {
	w.mu.Lock()
	known := w.watches[path]
	w.watches[path] = true
	w.mu.Unlock()
	if known {
		return false, nil
	}
	forget := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watches, path)
	}
	watch, err := w.files.Watch(w.ctx, path, env.WatchOptions{})
	if err != nil {
		forget()
		return false, err
	}
	w.tasks.Go(func() {
		defer watch.Close() //nolint:errcheck // there is nothing to be done about it
		for range watch.Changes(w.ctx) {
			w.wake()
		}
		forget()
		w.wake()
	})
	return true, nil
}

func (w *staleness) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
