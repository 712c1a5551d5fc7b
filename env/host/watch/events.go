package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"waldo/env"
)

// errNoEvents says that the kernel will not tell about a path, so that it has to be looked at.
var errNoEvents = errors.New("there are no events")

// events is a watch that the kernel tells. Only one goroutine works on it.
type events struct {
	*watch
	source  *source
	present bool     // the file that is watched is there
	target  identity // of that file
	// signposts are the names that lead to the root, by the directory they are in: its own, and those of links on
	// the way. They are real paths.
	signposts map[string]map[string]struct{}
	way       way

	// The tree, if the root is a directory. Its paths begin with root, as that is spelled.
	dirs       map[string]*directory
	byIdentity map[identity]*directory
	refused    map[string]struct{} // directories that may not be read
	pollers    map[string]*part    // parts of the tree on file systems that tell nothing

	mounted string        // what is mounted in it
	rebuilt time.Time     // when it was last made anew
	cost    time.Duration // of that
}

// A directory is one that the kernel watches for us.
type directory struct {
	path                      string
	id                        identity
	parent, first, prev, next *directory // first child; siblings
}

// A part is a poller at work on a part of the tree.
type part struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newEvents(w *watch) *events { return &events{watch: w} }

// arm begins to look. What it began is undone when it fails.
func (e *events) arm(ctx context.Context) (err error) {
	if e.source, err = e.watcher.kernel.newSource(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			e.disarm()
		}
	}()
	e.signposts = map[string]map[string]struct{}{}
	if !e.directory {
		if err := e.follow(); err != nil {
			return err
		}
		info, err := os.Stat(e.root)
		if e.present = err == nil; e.present {
			e.target = identify(info)
		}
		return nil
	}
	e.dirs = map[string]*directory{}
	e.byIdentity = map[identity]*directory{}
	e.refused = map[string]struct{}{}
	e.pollers = map[string]*part{}
	if watchAbove {
		if err := e.follow(); err != nil {
			return err
		}
	}
	e.mounted = mountsBelow(e.place())
	if err := e.addTree(ctx, e.root, false); err != nil {
		return err
	}
	if len(e.dirs) == 0 {
		if _, ok := e.refused[e.root]; ok {
			return fs.ErrPermission
		}
		return errGone
	}
	if !e.there() {
		return errGone
	}
	return nil
}

// disarm lets go of everything.
func (e *events) disarm() {
	for path := range e.pollers {
		e.stopPoller(path)
	}
	if e.source != nil {
		e.source.close()
		e.source = nil
	}
	e.dirs, e.byIdentity = nil, nil
}

// run takes what the kernel says until the watch ends, and returns why it did.
func (e *events) run() error {
	ctx := e.closing
	var later *time.Timer // when the tree is made anew, if that has to wait
	var due <-chan time.Time
	for {
		var err error
		rebuild := false
		select {
		case <-ctx.Done():
			if later != nil {
				later.Stop()
			}
			return context.Cause(ctx)
		case event, ok := <-e.source.events():
			if !ok {
				return fmt.Errorf("the kernel's queue of events was closed")
			}
			err = e.handle(ctx, event)
		case <-e.source.lost:
			// Making it anew may take longer than it takes to overflow again.
			if wait := time.Until(e.rebuilt.Add(4 * e.cost)); wait > 0 {
				e.batch.add(e.root, env.Rescan, false)
				if due == nil {
					later = time.NewTimer(wait)
					due = later.C
				}
				continue
			}
			rebuild = true
		case <-due:
			rebuild = true
		case <-e.remounted:
			err = e.look(true, false)
			rebuild = e.directory && e.mounted != mountsBelow(e.place())
		}
		if rebuild && err == nil {
			due = nil
			err = e.rebuild(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// rebuild makes the picture of the tree anew, with a queue of its own: what the kernel lost cannot be known.
func (e *events) rebuild(ctx context.Context) error {
	begun := time.Now()
	e.disarm()
	if err := e.arm(ctx); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return errGone
		}
		return err
	}
	e.rebuilt = time.Now()
	e.cost = e.rebuilt.Sub(begun)
	e.batch.add(e.root, env.Rescan, false)
	return nil
}

// handle works on one event.
func (e *events) handle(ctx context.Context, event fsnotify.Event) error {
	name := filepath.Clean(event.Name) // "//x" is what is told of "/"
	away := event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
	if e.directory && name == e.root {
		if away {
			return errGone
		}
		e.batch.add(name, env.Modified, false)
		return nil
	}
	if away && name == e.way.parent && !e.directory {
		return errGone
	}
	parent := filepath.Dir(name)
	if names, ok := e.signposts[parent]; ok {
		if _, ok := names[filepath.Base(name)]; ok {
			switch {
			case away || event.Has(fsnotify.Create):
				return e.look(true, true)
			case !e.directory && name == e.way.end:
				return e.look(false, true)
			}
			return nil
		}
	}
	if _, ok := e.signposts[name]; ok && away {
		return e.look(true, true)
	}
	if _, ok := e.dirs[parent]; !ok {
		return nil // of a directory that is not in the tree any more
	}
	known := e.dirs[name]
	switch {
	case away:
		delete(e.refused, name)
		e.stopPoller(name)
		if known == nil {
			e.batch.add(name, env.Removed, false)
			return nil
		}
		e.drop(known)
		e.batch.add(name, env.Removed, true)
		// The event may be an old one, of what was there before; and a move that was under way when the directory
		// was added lets fsnotify forget it.
		if info, err := os.Lstat(name); err == nil && info.IsDir() && e.recursive {
			e.batch.add(name, env.Created, false)
			return e.addTree(ctx, name, true)
		}
	case event.Has(fsnotify.Create):
		info, err := os.Lstat(name)
		if err != nil || !info.IsDir() {
			e.batch.add(name, env.Created, false)
			return nil
		}
		if known != nil && known.id == identify(info) {
			e.batch.add(name, env.Created, false) // listed before
			return nil
		}
		if known != nil {
			e.drop(known)
			e.batch.add(name, env.Removed, true)
		}
		e.batch.add(name, env.Created, false)
		if e.recursive {
			return e.addTree(ctx, name, true)
		}
	default:
		e.batch.add(name, env.Modified, false)
		if _, ok := e.refused[name]; ok {
			return e.addTree(ctx, name, true)
		}
	}
	return nil
}

// place is where the root really is, as far as that is known.
func (e *events) place() string { return cmp.Or(e.way.end, e.root) }

// look looks at the root after something happened to it: with moved, to a name on the way to it; with touched, to
// what a file holds, even if it is the same file as before.
func (e *events) look(moved, touched bool) error {
	if e.directory {
		if !e.there() {
			return errGone
		}
		if watchAbove {
			return e.follow()
		}
		return nil
	}
	info, err := os.Stat(e.root)
	if moved || err != nil || identify(info) != e.target {
		if err := e.follow(); err != nil {
			return err
		}
		info, err = os.Stat(e.root)
	}
	before := e.present
	e.present = err == nil
	switch {
	case e.present && before && !touched && identify(info) == e.target:
	case e.present && before:
		e.batch.add(e.root, env.Modified, false)
	case e.present:
		e.batch.add(e.root, env.Created, false)
	case before:
		e.batch.add(e.root, env.Removed, false)
	}
	if e.present {
		e.target = identify(info)
	}
	return nil
}

// follow watches the names that lead to the root as they are now.
func (e *events) follow() error {
	for range 16 { // it may change while it is looked at
		now, err := resolve(e.root)
		if err != nil {
			return err
		}
		if !e.directory && e.way.parent == now.parent && e.way.parentID != now.parentID {
			return errGone
		}
		wanted := map[string]map[string]struct{}{}
		want := func(dir, name string) {
			if e.directory && now.end != "" && within(now.end, dir) {
				return // it is in the tree, and the kernel knows a directory by one path only
			}
			if wanted[dir] == nil {
				wanted[dir] = map[string]struct{}{}
			}
			wanted[dir][name] = struct{}{}
		}
		for _, s := range now.signposts {
			want(s.dir, s.name)
		}
		if above := filepath.Dir(now.parent); !e.directory && above != now.parent {
			want(above, filepath.Base(now.parent))
		}
		for dir := range e.signposts {
			if _, ok := wanted[dir]; !ok {
				e.source.remove(dir)
			}
		}
		for dir := range wanted {
			if _, ok := e.signposts[dir]; ok {
				continue
			}
			switch err := e.source.add(dir); {
			case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			case errors.Is(err, fs.ErrPermission):
				// It can be passed and not be read. Of a directory's way nothing else need be known; the file
				// itself has to be seen.
				if !e.directory && (dir == now.parent || dir == filepath.Dir(now.end)) {
					return errNoEvents
				}
			default:
				return e.refusal(err)
			}
		}
		same := e.way.equal(now) && maps.EqualFunc(e.signposts, wanted, maps.Equal)
		e.way, e.signposts = now, wanted
		if same {
			return nil
		}
	}
	return nil // every change on the way is told and leads here again
}

// addTree adds a directory of the tree, and all below it if the watch is recursive. With tell, what is found in it
// is told as created.
func (e *events) addTree(ctx context.Context, path string, tell bool) error {
	stack := []string{path}
	for len(stack) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		next := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		var err error
		if stack, err = e.addDirectory(next, tell, stack); err != nil {
			return err
		}
	}
	return nil
}

// addDirectory adds one directory and appends what is to be added below it.
func (e *events) addDirectory(path string, tell bool, below []string) ([]string, error) {
	f, err := openDirectory(path, path == e.root)
	if err != nil {
		return below, e.unseen(path, err)
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil || !info.IsDir() {
		return below, e.unseen(path, err)
	}
	id := identify(info)
	parent := e.dirs[filepath.Dir(path)]
	if path == e.root {
		parent = nil
	}
	if parent != nil && id.device != parent.id.device && noEvents(path) {
		if tell {
			e.batch.add(path, env.Rescan, false)
		}
		e.startPoller(path, id)
		return below, nil
	}
	if old := e.byIdentity[id]; old != nil && id != (identity{}) && old.path != path {
		if info, err := os.Lstat(old.path); err == nil && identify(info) == id {
			return below, nil // mounted in two places; the kernel tells of it where it was seen first
		}
		e.drop(old)
		e.batch.add(old.path, env.Removed, true)
	}
	if old := e.dirs[path]; old != nil {
		e.drop(old)
	}
	if err := e.source.add(path); err != nil {
		return below, e.unseen(path, err)
	}
	delete(e.refused, path)
	d := &directory{path: path, id: id, parent: parent}
	if parent != nil {
		if d.next = parent.first; d.next != nil {
			d.next.prev = d
		}
		parent.first = d
	}
	e.dirs[path] = d
	e.byIdentity[id] = d
	if !tell && !e.recursive {
		return below, nil
	}
	for {
		entries, err := f.ReadDir(512)
		for _, entry := range entries {
			name := join(path, entry.Name())
			if tell {
				e.batch.add(name, env.Created, false)
			}
			if entry.IsDir() && e.recursive {
				below = append(below, name)
			}
		}
		if err == io.EOF || errors.Is(err, fs.ErrNotExist) {
			return below, nil
		}
		if err != nil {
			e.batch.add(path, env.Rescan, false)
			return below, nil
		}
	}
}

// unseen decides what a directory that cannot be watched means.
func (e *events) unseen(path string, err error) error {
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		return nil // not there any more; its parent's events say so
	case errors.Is(err, fs.ErrPermission):
		e.refused[path] = struct{}{} // until its permissions change
		return nil
	case errors.Is(err, syscall.ENAMETOOLONG):
		// No call can name what is in it.
		e.batch.add(path, env.Rescan, false)
		return nil
	}
	return e.refusal(err)
}

// refusal explains why the kernel watches no more.
func (e *events) refusal(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %s", env.ErrLimit, watchLimit(len(e.dirs)))
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("%w: after %d directories: %w", env.ErrLimit, len(e.dirs), reason(err))
	}
	return fmt.Errorf("after %d directories: %w", len(e.dirs), reason(err))
}

// drop forgets a directory and all below it.
func (e *events) drop(d *directory) {
	if p := d.parent; p != nil {
		if p.first == d {
			p.first = d.next
		}
		if d.prev != nil {
			d.prev.next = d.next
		}
		if d.next != nil {
			d.next.prev = d.prev
		}
		d.parent, d.prev, d.next = nil, nil, nil
	}
	for path := range e.refused {
		if within(d.path, path) {
			delete(e.refused, path)
		}
	}
	for path := range e.pollers {
		if within(d.path, path) {
			e.stopPoller(path)
		}
	}
	stack := []*directory{d}
	for len(stack) > 0 {
		next := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		e.source.remove(next.path)
		delete(e.dirs, next.path)
		if e.byIdentity[next.id] == next {
			delete(e.byIdentity, next.id)
		}
		for child := next.first; child != nil; child = child.next {
			stack = append(stack, child)
		}
	}
}

// startPoller looks at a part of the tree every so often.
func (e *events) startPoller(path string, id identity) {
	e.stopPoller(path)
	ctx, cancel := context.WithCancel(e.closing)
	one := &part{cancel: cancel}
	e.pollers[path] = one
	p := &poller{root: path, directory: true, recursive: true, id: id, batch: e.batch, interval: time.Second}
	one.done.Go(func() {
		err := p.begin(ctx)
		if err == nil {
			err = p.run(ctx)
		}
		if ctx.Err() == nil && err != nil {
			e.batch.add(path, env.Rescan, false) // a mount that ended is noticed as such, too
		}
	})
}

func (e *events) stopPoller(path string) {
	if one := e.pollers[path]; one != nil {
		one.cancel()
		one.done.Wait()
		delete(e.pollers, path)
	}
}

// within reports whether path is dir or below it.
func within(dir, path string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || os.IsPathSeparator(rest[0]) || os.IsPathSeparator(dir[len(dir)-1]))
}

// join adds a name to a directory's path.
func join(dir, name string) string {
	if os.IsPathSeparator(dir[len(dir)-1]) {
		return dir + name
	}
	return dir + string(filepath.Separator) + name
}
