package watch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"waldo/env"
)

// When what has changed is told: after this long without a further change, and this long after the first at the
// latest.
const (
	quiet   = 50 * time.Millisecond
	longest = 500 * time.Millisecond
)

// maxPending is how many paths wait to be told; when there are more, the consumer is told to look at all.
const maxPending = 16384

// A change is one path that waits to be told.
type change struct {
	path string // native
	kind env.ChangeKind
	// directory says that what was removed at the path was a directory, so that what is there now has other things
	// below it.
	directory bool
}

// A batch is what waits to be told. It is filled by whoever sees changes, who never waits for the consumer; the
// time is looked at by the consumer alone, so that nothing ticks while nothing changes.
type batch struct {
	root string // native path of what is watched
	wake chan struct{}

	mu          sync.Mutex
	pending     map[string]change
	first, last time.Time // of the changes that are pending
	gone, told  bool      // the last change is due, was told
	err         error     // why there will be no more; told behind what is pending
}

func newBatch(root string) *batch {
	return &batch{root: root, wake: make(chan struct{}, 1), pending: map[string]change{}}
}

// add notes a change at a path; directory says of a removal that a directory was removed.
func (b *batch) add(path string, kind env.ChangeKind, directory bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || b.err != nil {
		return
	}
	b.last = time.Now()
	if len(b.pending) == 0 {
		b.first = b.last
		defer b.signal()
	}
	if b.pending[b.root].kind == env.Rescan {
		return // it covers this
	}
	next := change{path, kind, directory}
	if before, ok := b.pending[path]; ok {
		next = merge(before, next)
	}
	b.pending[path] = next
	if len(b.pending) > maxPending || path == b.root && next.kind == env.Rescan {
		clear(b.pending)
		b.pending[b.root] = change{b.root, env.Rescan, false}
	}
}

// merge makes one change of two at the same path. What was made and then changed is Created; what was removed and
// made again is Modified, but a Rescan where a directory was removed, since what was below it is gone as well.
// Whatever ends in a removal is Removed, even if it began with Created: that may have been a rename over an older
// file.
func merge(before, next change) change {
	switch {
	case next.kind == env.Removed:
		next.directory = next.directory || before.directory
		return next
	case before.kind == env.Rescan || next.kind == env.Rescan:
		next.kind = env.Rescan
	case before.kind == env.Removed && before.directory:
		next.kind = env.Rescan
	case before.kind == env.Created:
		next.kind = env.Created
	default:
		next.kind = env.Modified
	}
	next.directory = before.directory
	return next
}

// end says that what is watched is gone. Nothing else is told any more: it might have a wrong path by now.
func (b *batch) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.gone = true
		b.pending = nil
		b.signal()
	}
}

// fail says that no more can be told, and why. What is pending is told before.
func (b *batch) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && !b.gone {
		b.err = err
		b.signal()
	}
}

func (b *batch) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// next waits for the next batch and takes it: one batch at a time, sorted, so that a directory comes before what
// is in it. None means that the end was told. Before a batch is told, there says whether what is watched is still
// what and where it was.
func (b *batch) next(ctx context.Context, there func() bool) ([]change, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		taken, wait, err := b.take()
		if wait == 0 {
			if len(taken) == 0 || taken[0].kind == env.Gone || there() {
				return taken, err
			}
			b.end()
			continue
		}
		var due <-chan time.Time
		var timer *time.Timer
		if wait > 0 {
			timer = time.NewTimer(wait)
			due = timer.C
		}
		select {
		case <-ctx.Done():
		case <-b.wake:
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// take takes what is due, or says how long it will be until something is: less than nothing for "not known".
func (b *batch) take() (taken []change, wait time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.gone && b.told:
		return nil, 0, nil
	case b.gone:
		b.told = true
		return []change{{b.root, env.Gone, false}}, 0, nil
	case len(b.pending) > 0:
		due := b.first.Add(longest)
		if calm := b.last.Add(quiet); calm.Before(due) {
			due = calm
		}
		if wait := time.Until(due); wait > 0 && b.err == nil {
			return nil, wait, nil
		}
	case b.err != nil:
		return nil, 0, b.err
	default:
		return nil, -1, nil
	}
	taken = make([]change, 0, len(b.pending))
	for _, c := range b.pending {
		taken = append(taken, c)
	}
	slices.SortFunc(taken, func(x, y change) int { return cmp.Compare(x.path, y.path) })
	b.pending = map[string]change{} // not cleared: a map never shrinks
	return taken, 0, nil
}
