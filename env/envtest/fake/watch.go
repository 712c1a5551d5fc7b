package fake

import (
	"context"
	"iter"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

const (
	quiet   = 50 * time.Millisecond
	longest = 500 * time.Millisecond
)

// Watch implements env.Watcher.
func (m *Machine) Watch(ctx context.Context, path pathuri.URI, options env.WatchOptions) (env.Watch, error) {
	if err := m.begin(ctx, "watch", path); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := m.existing(path, true)
	if err != nil {
		return nil, wrap("watch", path, err)
	}
	w := &watch{machine: m, path: path, root: p, recursive: options.Recursive, kinds: map[pathuri.URI]env.ChangeKind{}, wake: make(chan struct{}, 1)}
	m.watches[w] = struct{}{}
	return w, nil
}

// watch is a watch. What is below the path is protected by the machine's lock.
type watch struct {
	machine   *Machine
	path      pathuri.URI
	root      place
	recursive bool

	order       []pathuri.URI
	kinds       map[pathuri.URI]env.ChangeKind
	first, last time.Time // of the batch that is coming together
	gone        bool      // the last change is in it
	ended       bool
	wake        chan struct{}
}

// emit tells the watches what happened at p, before something is taken from there and after something came.
func (m *Machine) emit(p place, kind env.ChangeKind) {
	for w := range m.watches {
		w.hear(p, kind)
	}
}

func (w *watch) hear(p place, kind env.ChangeKind) {
	if w.gone || w.ended {
		return
	}
	if p.dir == w.root.dir && p.name == w.root.name || p.node == w.root.node && p.node.mode.IsDir() {
		switch {
		case kind == env.Removed:
			w.tell(w.path, env.Gone)
		case p.node.mode.IsDir() == w.root.node.mode.IsDir():
			w.tell(w.path, kind)
		}
		return
	}
	if kind == env.Removed && p.node.mode.IsDir() && w.root.node.mode.IsDir() && w.root.node.below(p.node) {
		w.tell(w.path, env.Gone) // with what it is in
		return
	}
	if !w.root.node.mode.IsDir() {
		return
	}
	names := []string{p.name}
	dir := p.dir
	for ; dir != nil && dir != w.root.node; dir = dir.parent {
		names = append(names, dir.name)
	}
	if dir == nil || len(names) > 1 && !w.recursive {
		return
	}
	path := w.path
	for i := len(names) - 1; i >= 0; i-- {
		next, err := path.JoinName(names[i])
		if err != nil {
			return // no entry has such a name
		}
		path = next
	}
	w.tell(path, kind)
}

func (w *watch) tell(path pathuri.URI, kind env.ChangeKind) {
	w.last = time.Now()
	if len(w.order) == 0 {
		w.first = w.last
	}
	old, known := w.kinds[path]
	if !known {
		w.order = append(w.order, path)
	}
	if kind == env.Modified && old == env.Created {
		kind = old
	}
	w.kinds[path] = kind
	w.gone = kind == env.Gone
	w.poke()
}

func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take takes the batch, if there is one whose time has come, else it tells how long to wait; 0 is for whatever comes.
func (w *watch) take() (batch []env.Change, wait time.Duration, ended bool) {
	w.machine.mu.Lock()
	defer w.machine.mu.Unlock()
	if w.ended || len(w.order) == 0 {
		return nil, 0, w.ended || w.gone
	}
	due := w.last.Add(quiet)
	if most := w.first.Add(longest); due.After(most) {
		due = most
	}
	if wait := time.Until(due); wait > 0 {
		return nil, wait, false
	}
	for _, path := range w.order {
		if w.kinds[path] != env.Gone {
			batch = append(batch, env.Change{Path: path, Kind: w.kinds[path]})
		}
	}
	if w.gone {
		batch = append(batch, env.Change{Path: w.path, Kind: env.Gone})
	}
	w.order = nil
	clear(w.kinds)
	return batch, 0, false
}

func (w *watch) Changes(ctx context.Context) iter.Seq2[[]env.Change, error] {
	return func(yield func([]env.Change, error) bool) {
		for {
			if err := context.Cause(ctx); err != nil {
				yield(nil, wrap("changes of", w.path, err))
				return
			}
			batch, wait, ended := w.take()
			switch {
			case ended:
				return
			case batch != nil:
				if !yield(batch, nil) {
					return
				}
				continue
			}
			var due <-chan time.Time
			if wait > 0 {
				timer := time.NewTimer(wait)
				due = timer.C
				defer timer.Stop()
			}
			select {
			case <-ctx.Done():
			case <-due:
			case <-w.wake:
			}
		}
	}
}

func (w *watch) Close() error {
	w.machine.mu.Lock()
	defer w.machine.mu.Unlock()
	w.ended = true
	delete(w.machine.watches, w)
	w.poke()
	return nil
}
