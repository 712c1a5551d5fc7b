package envtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// A watching is a watch with what has been heard of it.
type watching struct {
	*filesRig
	watch   env.Watch
	root    pathuri.URI
	next    func() ([]env.Change, error, bool)
	late    *time.Timer // ends it when nothing comes
	batches int
	seen    []env.Change
}

// watching begins to watch path.
func (r *filesRig) watching(path pathuri.URI, recursive bool) *watching {
	r.Helper()
	watch, err := r.Watcher.Watch(r.ctx, path, env.WatchOptions{Recursive: recursive})
	if err != nil {
		r.Fatalf("watch %q: %v", path, err)
	}
	w := &watching{filesRig: r, watch: watch, root: path}
	ctx, cancel := context.WithCancelCause(r.ctx)
	w.late = time.AfterFunc(4*patience, func() { cancel(fmt.Errorf("nothing is told for %v", patience)) })
	next, stop := iter.Pull2(watch.Changes(ctx))
	w.next = next
	r.Cleanup(func() {
		stop()
		w.late.Stop()
		cancel(nil)
		if err := errors.Join(watch.Close(), watch.Close()); err != nil {
			r.Errorf("close of the watch: %v", err)
		}
	})
	return w
}

// step hears one more batch.
func (w *watching) step(waitedFor string) {
	w.Helper()
	w.late.Reset(patience)
	batch, err, ok := w.next()
	switch {
	case !ok:
		w.Fatalf("the watch of %q ended without %s; there were %v", w.root, waitedFor, w.seen)
	case err != nil:
		w.Fatalf("the watch of %q failed without %s: %v; there were %v", w.root, waitedFor, err, w.seen)
	}
	w.late.Stop()
	w.batches++
	w.check(batch)
	w.seen = append(w.seen, batch...)
}

// check checks what is true of every batch.
func (w *watching) check(batch []env.Change) {
	w.Helper()
	if len(batch) == 0 {
		w.Error("a batch of nothing")
	}
	paths := map[pathuri.URI]bool{}
	for _, change := range batch {
		if paths[change.Path] {
			w.Errorf("a batch tells %q twice: %v", change.Path, batch)
		}
		paths[change.Path] = true
		if !w.root.Contains(change.Path) {
			w.Errorf("a watch of %q tells %q", w.root, change.Path)
		}
		switch change.Kind {
		case env.Created, env.Modified, env.Removed, env.Rescan, env.Gone:
		default:
			w.Errorf("a change of kind %q", change.Kind)
		}
	}
}

// told tells whether one of kinds has been heard of path, or that one has to look anew there.
func (w *watching) told(path pathuri.URI, kinds ...env.ChangeKind) bool {
	return slices.ContainsFunc(w.seen, func(c env.Change) bool {
		return c.Path == path && slices.Contains(kinds, c.Kind) || c.Kind == env.Rescan && c.Path.Contains(path)
	})
}

// expect waits until one of kinds is told of each of paths.
func (w *watching) expect(kinds []env.ChangeKind, paths ...pathuri.URI) {
	w.Helper()
	for _, path := range paths {
		for !w.told(path, kinds...) {
			w.step(fmt.Sprintf("%v of %q", kinds, path))
		}
	}
}

// catchUp hears all that was done so far, for which a file is made in the directory dir.
func (w *watching) catchUp(dir pathuri.URI) {
	w.Helper()
	mark := w.under(dir, fmt.Sprintf("mark%d", w.batches))
	w.put(mark, "")
	w.expect(created, mark)
}

// forget catches up and begins anew with what has been heard.
func (w *watching) forget(dir pathuri.URI) {
	w.Helper()
	w.catchUp(dir)
	w.seen = nil
}

// wantNothingAt checks that nothing was told of what path contains.
func (w *watching) wantNothingAt(path pathuri.URI) {
	w.Helper()
	for _, change := range w.seen {
		if path.Contains(change.Path) && change.Kind != env.Rescan {
			w.Errorf("it tells %v", change)
		}
	}
}

var (
	created  = []env.ChangeKind{env.Created}
	modified = []env.ChangeKind{env.Modified}
	removed  = []env.ChangeKind{env.Removed}
	// replaced is what a file comes to that another is renamed to.
	replaced = []env.ChangeKind{env.Created, env.Modified}
)

var watchTests = []filesTest{
	{"what happens in a directory", func(r *filesRig) {
		for _, recursive := range []bool{false, true} {
			dir := r.mkdir(r.at(fmt.Sprint(recursive)))
			r.put(r.under(dir, "old"), "old")
			w := r.watching(dir, recursive)
			r.put(r.under(dir, "new"), "new")
			r.mkdir(r.under(dir, "d"))
			w.expect(created, r.under(dir, "new"), r.under(dir, "d"))
			w.forget(dir)
			for _, option := range []env.WriteOptions{{Mode: env.Append}, {Mode: env.Patch}} {
				r.putWith(r.under(dir, "old"), "more", option)
				w.expect(modified, r.under(dir, "old"))
				w.forget(dir)
			}
			r.must(r.files.SetAttributes(r.ctx, r.under(dir, "old"), env.Attributes{Size: new(int64(1))}))
			w.expect(modified, r.under(dir, "old"))
			w.forget(dir)
			r.must(r.files.SetAttributes(r.ctx, r.under(dir, "old"), env.Attributes{Modified: new(time.Unix(1e9, 0))}))
			w.expect(modified, r.under(dir, "old"))
			w.forget(dir)
			r.must(r.files.Remove(r.ctx, r.under(dir, "old"), env.RemoveOptions{}))
			r.must(r.files.Remove(r.ctx, r.under(dir, "d"), env.RemoveOptions{}))
			w.expect(removed, r.under(dir, "old"), r.under(dir, "d"))
		}
	}},
	{"atomic saves", func(r *filesRig) {
		file := r.at("f")
		r.put(file, "0")
		for _, path := range []pathuri.URI{r.dir, file} {
			w := r.watching(path, false)
			for i := range 3 {
				text := fmt.Sprint(i + 1)
				if r.must(r.files.Remove(r.ctx, r.at("temporary"), env.RemoveOptions{Force: true})); i == 1 {
					// As editors do it.
					r.put(r.at("temporary"), text)
					r.must(r.files.Rename(r.ctx, r.at("temporary"), file, env.RenameOptions{}))
				} else {
					r.put(file, text)
				}
				w.expect(replaced, file)
				r.wantContent(file, text)
				w.settle(file)
			}
		}
	}},
	{"renames", func(r *filesRig) {
		root := r.mkdir(r.at("w"))
		r.put(r.under(root, "a", "f"), "f")
		r.put(r.under(root, "b", "x"), "x")
		r.put(r.at("outside", "d", "g"), "g")
		w := r.watching(root, true)
		r.must(r.files.Rename(r.ctx, r.under(root, "a", "f"), r.under(root, "b", "f"), env.RenameOptions{}))
		w.expect(removed, r.under(root, "a", "f"))
		w.expect(created, r.under(root, "b", "f"))
		w.forget(root)
		r.must(r.files.Rename(r.ctx, r.under(root, "b"), r.under(root, "c"), env.RenameOptions{}))
		w.expect(removed, r.under(root, "b"))
		w.expect(created, r.under(root, "c"))
		w.forget(root)
		// It goes on under the new name, and only there.
		r.putWith(r.under(root, "c", "f"), "!", env.WriteOptions{Mode: env.Append})
		w.expect(modified, r.under(root, "c", "f"))
		w.wantNothingAt(r.under(root, "b"))
		w.forget(root)
		r.must(r.files.Rename(r.ctx, r.at("outside", "d"), r.under(root, "d"), env.RenameOptions{}))
		w.expect(created, r.under(root, "d"), r.under(root, "d", "g"))
		w.forget(root)
		r.must(r.files.Rename(r.ctx, r.under(root, "d"), r.at("outside", "d"), env.RenameOptions{}))
		w.expect(removed, r.under(root, "d"))
		w.forget(root)
		r.put(r.at("outside", "d", "later"), "x")
		w.catchUp(root)
		w.wantNothingAt(r.under(root, "d"))
	}},
	{"new directories with what is in them", func(r *filesRig) {
		root := r.mkdir(r.at("w"))
		w := r.watching(root, true)
		var paths []pathuri.URI
		for i := range 5 {
			deep := r.under(root, numbered(i), "a", "b", "f")
			r.put(deep, "x")
			paths = append(paths, deep, r.under(root, numbered(i), "a", "b"), r.under(root, numbered(i), "a"), r.under(root, numbered(i)))
		}
		w.expect(created, paths...)
		w.forget(root)
		for i := range 5 {
			deep := r.under(root, numbered(i), "a", "b", "f")
			r.putWith(deep, "!", env.WriteOptions{Mode: env.Append})
			w.expect(modified, deep)
		}
	}},
	{"not recursive", func(r *filesRig) {
		root := r.mkdir(r.at("w"))
		r.put(r.under(root, "d", "old"), "x")
		w := r.watching(root, false)
		r.put(r.under(root, "d", "new"), "x")
		r.put(r.under(root, "e", "new"), "x")
		r.putWith(r.under(root, "d", "old"), "x", env.WriteOptions{Mode: env.Append})
		r.put(r.under(root, "last"), "x")
		w.expect(created, r.under(root, "last"), r.under(root, "e"))
		for _, change := range w.seen {
			if name, _ := root.Rel(change.Path); strings.Contains(name, "/") {
				r.Errorf("it tells %v", change)
			}
		}
	}},
	{"links are not followed, but for the path itself", func(r *filesRig) {
		root := r.mkdir(r.at("w"))
		r.mkdir(r.at("far"))
		r.symlink("../far", r.under(root, "l"))
		r.symlink(".", r.under(root, "self"))
		r.symlink("none", r.under(root, "dangling"))
		link := r.symlink("w", r.at("lw"))
		for _, root := range []pathuri.URI{root, link} {
			w := r.watching(root, true)
			r.put(r.at("far", "f"+fmt.Sprint(len(root.String()))), "x")
			r.put(r.under(root, "ok"), "x")
			w.expect(replaced, r.under(root, "ok"))
			for _, change := range w.seen {
				if name, _ := root.Rel(change.Path); strings.Contains(name, "/") {
					r.Errorf("it tells %v", change)
				}
			}
			r.must(r.files.Remove(r.ctx, r.under(root, "ok"), env.RemoveOptions{}))
		}
	}},
	{"what may not be looked into", func(r *filesRig) {
		if r.ignoresModes() {
			r.Skip("this user is above permission bits")
		}
		root := r.mkdir(r.at("w"))
		r.put(r.under(root, "closed", "f"), "x")
		r.must(r.files.SetAttributes(r.ctx, r.under(root, "closed"), env.Attributes{Permissions: mode(0)}))
		w := r.watching(root, true)
		r.put(r.under(root, "ok"), "x")
		w.expect(created, r.under(root, "ok"))
		w.forget(root)
		// Whether it is watched from now on is left to the machine; that it has changed is told.
		r.must(r.files.SetAttributes(r.ctx, r.under(root, "closed"), env.Attributes{Permissions: mode(0o755)}))
		w.expect(replaced, r.under(root, "closed"))
	}},
	{"one file", func(r *filesRig) {
		file := r.at("f")
		r.put(file, "x")
		w := r.watching(file, false)
		r.put(r.at("g"), "not this")
		r.putWith(file, "!", env.WriteOptions{Mode: env.Append})
		w.expect(modified, file)
		r.must(r.files.Remove(r.ctx, file, env.RemoveOptions{}))
		w.expect([]env.ChangeKind{env.Removed, env.Gone}, file)
	}},
	{"nothing there", func(r *filesRig) {
		_, err := r.Watcher.Watch(r.ctx, r.at("none"), env.WatchOptions{Recursive: true})
		r.wantError("watch of none", err, fs.ErrNotExist)
		_, err = r.Watcher.Watch(r.ctx, pathuri.URI{}, env.WatchOptions{})
		r.wantError("watch of no path", err, env.ErrInvalid)
		over, cancel := context.WithCancel(r.ctx)
		cancel()
		_, err = r.Watcher.Watch(over, r.dir, env.WatchOptions{})
		r.wantError("watch too late", err, context.Canceled)
	}},
	{"the root goes", func(r *filesRig) {
		for name, end := range map[string]func(root pathuri.URI) error{
			"removed": func(root pathuri.URI) error {
				return r.files.Remove(r.ctx, root, env.RemoveOptions{Recursive: true})
			},
			"renamed": func(root pathuri.URI) error {
				return r.files.Rename(r.ctx, root, r.at("elsewhere"), env.RenameOptions{})
			},
		} {
			for _, recursive := range []bool{false, true} {
				root := r.mkdir(r.at(name))
				r.put(r.under(root, "d", "f"), "x")
				w := r.watching(root, recursive)
				r.must(end(root))
				for !w.told(root, env.Gone) || w.seen[len(w.seen)-1].Kind != env.Gone {
					w.step("gone")
				}
				if last := w.seen[len(w.seen)-1]; last.Path != root {
					r.Errorf("%s: the last change is %v", name, last)
				}
				w.late.Reset(patience)
				if batch, err, ok := w.next(); ok {
					r.Errorf("%s: after the end comes %v, %v", name, batch, err)
				}
				r.must(r.files.Remove(r.ctx, r.at("elsewhere"), env.RemoveOptions{Recursive: true, Force: true}))
			}
		}
	}},
	{"bursts", func(r *filesRig) {
		root := r.mkdir(r.at("w"))
		began := time.Now()
		w := r.watching(root, true)
		for burst := range 3 {
			for i := range 60 {
				r.put(r.under(root, numbered(i%10)), fmt.Sprint(i))
			}
			last := r.under(root, fmt.Sprintf("last%d", burst))
			r.put(last, "x")
			w.expect(created, last)
		}
		// A batch takes 50 ms to come together.
		if most := int(time.Since(began)/(40*time.Millisecond)) + 1; w.batches > most {
			r.Errorf("%d batches in %v", w.batches, time.Since(began))
		}
	}},
	{"breaking off and going on", func(r *filesRig) {
		root := r.mkdir(r.at("w"))
		watch, err := r.Watcher.Watch(r.ctx, root, env.WatchOptions{})
		r.must(err)
		defer watch.Close()
		short, cancel := context.WithCancel(r.ctx)
		cancel()
		var last error
		for _, err := range watch.Changes(short) {
			last = err
		}
		r.wantError("changes too late", last, context.Canceled)
		for i := range 3 {
			path := r.under(root, numbered(i))
			r.put(path, "x")
			w := &watching{filesRig: r, root: root}
			for batch, err := range watch.Changes(r.ctx) {
				r.must(err)
				w.check(batch)
				if w.seen = append(w.seen, batch...); w.told(path, env.Created, env.Modified) {
					break
				}
			}
			if !w.told(path, env.Created, env.Modified) {
				r.Fatalf("it ended without %q", path)
			}
		}
		// Close wakes whoever waits.
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range watch.Changes(r.ctx) {
			}
		}()
		r.must(watch.Close())
		r.quick("the end of a watch that was closed", func() { <-ended })
	}},
	{"many at once", func(r *filesRig) {
		var watches []*watching
		for i := range 30 {
			watches = append(watches, r.watching(r.mkdir(r.at(numbered(i))), i%2 == 0))
		}
		for i, w := range watches {
			r.put(r.under(w.root, "f"), fmt.Sprint(i))
		}
		for _, w := range watches {
			w.expect(created, r.under(w.root, "f"))
		}
	}},
}

// settle hears what is left to be told of a file that has been replaced: another change of it is made, seen, and
// nothing of before is left.
func (w *watching) settle(file pathuri.URI) {
	w.Helper()
	if w.root != file {
		w.forget(w.root)
		return
	}
	// A watch of one file tells nothing else: its own size is the mark.
	w.seen = nil
	w.must(w.files.SetAttributes(w.ctx, file, env.Attributes{Modified: new(time.Unix(1e9, 0))}))
	w.expect(replaced, file)
	w.seen = nil
}
