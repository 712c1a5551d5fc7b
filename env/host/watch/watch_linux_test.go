package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"waldo/env"
	"waldo/pathuri"
)

// An observer reads what a watch tells.
type observer struct {
	t     *testing.T
	root  string
	watch env.Watch
	next  func() ([]env.Change, error, bool)
}

// syncs counts the files that were made for observers, which may look at the same directory.
var syncs atomic.Int64

func newWatcher(t *testing.T, o Options) *Watcher {
	w := New(o)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func uriOf(t *testing.T, path string) pathuri.URI {
	uri, err := pathuri.FromNative(path, pathuri.Posix)
	if err != nil {
		t.Fatal(err)
	}
	return uri
}

func observe(t *testing.T, w *Watcher, root string, options env.WatchOptions) *observer {
	t.Helper()
	one, err := w.Watch(t.Context(), uriOf(t, root), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 60*time.Second, errors.New("it was not told"))
	next, stop := iter.Pull2(one.Changes(ctx))
	t.Cleanup(func() {
		stop()
		cancel()
		if err := errors.Join(one.Close(), one.Close()); err != nil {
			t.Error(err)
		}
	})
	return &observer{t: t, root: root, watch: one, next: next}
}

// batch returns the next batch, with paths relative to the root.
func (o *observer) batch() []string {
	o.t.Helper()
	changes, err, ok := o.next()
	if err != nil || !ok {
		o.t.Fatalf("the changes ended: %v", err)
	}
	var told []string
	for _, c := range changes {
		native, err := c.Path.NativeFor(pathuri.Posix)
		if err != nil {
			o.t.Fatal(err)
		}
		path, ok := strings.CutPrefix(native, o.root)
		if !ok {
			o.t.Fatalf("told of %q, which is not below %q", native, o.root)
		}
		told = append(told, string(c.Kind)+" "+cmpOr(strings.TrimPrefix(path, "/"), "."))
	}
	sorted := slices.Clone(changes)
	if len(slices.CompactFunc(sorted, func(x, y env.Change) bool { return x.Path == y.Path })) != len(told) {
		o.t.Errorf("a path is told twice in a batch: %q", told)
	}
	return told
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// sync returns all that was told before a file that is made now. each, unless nil, is called with each batch.
func (o *observer) sync(each func([]string)) (told []string) {
	o.t.Helper()
	name := fmt.Sprint(".sync", syncs.Add(1))
	write(o.t, filepath.Join(o.root, name), "")
	for {
		batch := o.batch()
		done := false
		batch = slices.DeleteFunc(batch, func(line string) bool {
			done = done || line == "created "+name
			return strings.Contains(line, " .sync")
		})
		told = append(told, batch...)
		if each != nil {
			each(batch)
		}
		if done {
			return told
		}
		if slices.Contains(batch, "rescan .") {
			return append(told, o.sync(each)...)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// save writes as editors do.
func save(t *testing.T, path, content string) {
	t.Helper()
	temporary := filepath.Join(filepath.Dir(path), ".temporary~")
	write(t, temporary, content)
	must(t, os.Rename(temporary, path))
}

// swap lets a link lead elsewhere, as ln -sfn does.
func swap(t *testing.T, target, link string) {
	t.Helper()
	temporary := link + "~"
	must(t, os.Symlink(target, temporary))
	must(t, os.Rename(temporary, link))
}

// What is done in a watched directory, and what is told of it. The kinds told of a path may be spread over batches,
// so the last one counts; "?" marks what may be told as well.
func TestTree(t *testing.T) {
	tests := []struct {
		name  string
		setup func(t *testing.T, dir string)
		act   func(t *testing.T, dir string)
		want  []string
		flat  bool
	}{
		{name: "file", act: func(t *testing.T, dir string) { write(t, dir+"/x", "1") }, want: []string{"created x"}},
		{name: "append", setup: func(t *testing.T, dir string) { write(t, dir+"/x", "1") },
			act: func(t *testing.T, dir string) { write(t, dir+"/x", "2") }, want: []string{"modified x"}},
		{name: "permissions", setup: func(t *testing.T, dir string) { write(t, dir+"/x", "1") },
			act: func(t *testing.T, dir string) { must(t, os.Chmod(dir+"/x", 0o600)) }, want: []string{"modified x"}},
		{name: "time", setup: func(t *testing.T, dir string) { write(t, dir+"/x", "1") },
			act: func(t *testing.T, dir string) { must(t, os.Chtimes(dir+"/x", time.Time{}, time.Unix(1, 0))) }, want: []string{"modified x"}},
		{name: "removal", setup: func(t *testing.T, dir string) { write(t, dir+"/x", "1") },
			act: func(t *testing.T, dir string) { must(t, os.Remove(dir+"/x")) }, want: []string{"removed x"}},
		{name: "rename", setup: func(t *testing.T, dir string) { write(t, dir+"/x", "1") },
			act: func(t *testing.T, dir string) { must(t, os.Rename(dir+"/x", dir+"/y")) }, want: []string{"removed x", "created y"}},
		{name: "atomic save", setup: func(t *testing.T, dir string) { write(t, dir+"/x", "1") },
			act: func(t *testing.T, dir string) { save(t, dir+"/x", "2") }, want: []string{"removed .temporary~", "created x"}},
		{name: "odd names", act: func(t *testing.T, dir string) { write(t, dir+"/a\n\xff %", "1") }, want: []string{"created a\n\xff %"}},
		{name: "directories at once", act: func(t *testing.T, dir string) {
			mkdir(t, dir+"/a/b/c/d")
			write(t, dir+"/a/b/c/d/x", "1")
		}, want: []string{"created a", "created a/b", "created a/b/c", "created a/b/c/d", "created a/b/c/d/x"}},
		{name: "deep file later", setup: func(t *testing.T, dir string) { mkdir(t, dir+"/a/b/c") },
			act: func(t *testing.T, dir string) { write(t, dir+"/a/b/c/x", "1") }, want: []string{"created a/b/c/x"}},
		{name: "flat", setup: func(t *testing.T, dir string) { mkdir(t, dir+"/a") }, flat: true, act: func(t *testing.T, dir string) {
			write(t, dir+"/a/x", "1")
			mkdir(t, dir+"/b")
			write(t, dir+"/b/x", "1")
			write(t, dir+"/x", "1")
		}, want: []string{"created b", "created x"}},
		{name: "tree moved in", setup: func(t *testing.T, dir string) {
			mkdir(t, dir+"/../other/a/b")
			write(t, dir+"/../other/a/b/x", "1")
		}, act: func(t *testing.T, dir string) {
			must(t, os.Rename(dir+"/../other/a", dir+"/a"))
		}, want: []string{"created a", "created a/b", "created a/b/x"}},
		{name: "tree moved out", setup: func(t *testing.T, dir string) { mkdir(t, dir+"/a/b") }, act: func(t *testing.T, dir string) {
			must(t, os.Rename(dir+"/a", dir+"/../away"))
			write(t, dir+"/../away/x", "1")
			write(t, dir+"/../away/b/x", "1")
		}, want: []string{"removed a", "? removed a/b"}},
		{name: "tree moved within", setup: func(t *testing.T, dir string) { mkdir(t, dir+"/a/b") }, act: func(t *testing.T, dir string) {
			must(t, os.Rename(dir+"/a", dir+"/c"))
			write(t, dir+"/c/b/x", "1")
		}, want: []string{"removed a", "? removed a/b", "created c", "created c/b", "created c/b/x"}},
		{name: "tree moved into a new directory", setup: func(t *testing.T, dir string) { mkdir(t, dir+"/a/b") }, act: func(t *testing.T, dir string) {
			mkdir(t, dir+"/n")
			must(t, os.Rename(dir+"/a", dir+"/n/a"))
			write(t, dir+"/n/a/b/x", "1")
		}, want: []string{"removed a", "? removed a/b", "created n", "created n/a", "created n/a/b", "created n/a/b/x"}},
		{name: "directory made again", setup: func(t *testing.T, dir string) {
			mkdir(t, dir+"/a")
			write(t, dir+"/a/old", "1")
		}, act: func(t *testing.T, dir string) {
			must(t, os.RemoveAll(dir+"/a"))
			mkdir(t, dir+"/a")
			write(t, dir+"/a/x", "1")
		}, want: []string{"rescan|created a", "? removed a/old", "created a/x"}},
		{name: "links", setup: func(t *testing.T, dir string) { mkdir(t, dir+"/../other") }, act: func(t *testing.T, dir string) {
			for link, target := range map[string]string{"self": ".", "root": "/", "up": "..", "dangling": "nowhere", "out": "../other"} {
				must(t, os.Symlink(target, dir+"/"+link))
			}
			write(t, dir+"/../other/x", "1")
		}, want: []string{"created dangling", "created out", "created root", "created self", "created up"}},
		{name: "things that are no files", setup: func(t *testing.T, dir string) {
			must(t, unix.Mkfifo(dir+"/fifo", 0o600))
			must(t, os.Symlink("nowhere", dir+"/dangling"))
			must(t, os.Symlink("loop", dir+"/loop"))
			mkdir(t, dir+"/closed/in")
			must(t, os.Chmod(dir+"/closed", 0))
			t.Cleanup(func() { os.Chmod(dir+"/closed", 0o700) })
			listener, err := net.Listen("unix", dir+"/s")
			must(t, err)
			t.Cleanup(func() { listener.Close() })
		}, act: func(t *testing.T, dir string) {
			mkdir(t, dir+"/new")
			must(t, unix.Mkfifo(dir+"/new/fifo", 0o600))
			write(t, dir+"/ok", "1")
		}, want: []string{"created new", "created new/fifo", "created ok"}},
	}
	for _, mode := range []string{"events", "polling"} {
		for _, test := range tests {
			t.Run(mode+"/"+test.name, func(t *testing.T) {
				base, err := os.MkdirTemp("", "watch") // short enough for a socket
				must(t, err)
				t.Cleanup(func() { os.RemoveAll(base) })
				dir := filepath.Join(base, "dir")
				mkdir(t, dir)
				if test.setup != nil {
					test.setup(t, dir)
				}
				o := Options{}
				if mode == "polling" {
					o.Poll = 20 * time.Millisecond
				}
				w := newWatcher(t, o)
				observer := observe(t, w, dir, env.WatchOptions{Recursive: !test.flat})
				if mode == "polling" {
					observer.sync(nil) // it looked: a change of time is one after this
				}
				test.act(t, dir)
				last := map[string]string{}
				for _, line := range observer.sync(nil) {
					kind, path, _ := strings.Cut(line, " ")
					last[path] = kind
				}
				for _, want := range test.want {
					kind, path, _ := strings.Cut(want, " ")
					got, ok := last[path]
					delete(last, path)
					switch {
					case kind == "?":
						delete(last, strings.TrimPrefix(want, "? removed "))
					case mode == "polling" && (path == ".temporary~" || kind == "created" && got == "modified" || kind == "rescan|created"):
						// It came and went between two looks, or is the same name with another file.
					case !ok || !slices.Contains(strings.Split(kind, "|"), got):
						t.Errorf("%q is %q, want %q", path, got, kind)
					}
				}
				if len(last) > 0 {
					t.Errorf("told of more: %q", last)
				}
			})
		}
	}
}

// A file is told under the path that was asked for, whatever replaces it.
func TestFile(t *testing.T) {
	type act struct {
		name string
		do   func(t *testing.T, dir string)
		want string
	}
	tests := []struct {
		name  string
		file  string
		setup func(t *testing.T, dir string)
		acts  []act
	}{
		{"plain", "f", func(t *testing.T, dir string) { write(t, dir+"/f", "0") }, []act{
			{"save", func(t *testing.T, dir string) { save(t, dir+"/f", "1") }, "modified"},
			{"save again", func(t *testing.T, dir string) { save(t, dir+"/f", "2") }, "modified"},
			{"write", func(t *testing.T, dir string) { write(t, dir+"/g", ""); write(t, dir+"/f", "33") }, "modified"},
			{"remove", func(t *testing.T, dir string) { must(t, os.Remove(dir+"/f")) }, "removed"},
			{"make", func(t *testing.T, dir string) { write(t, dir+"/f", "4") }, "created"},
			{"remove and make", func(t *testing.T, dir string) { must(t, os.Remove(dir+"/f")); write(t, dir+"/f", "5") }, "modified|created"},
			{"move away", func(t *testing.T, dir string) { must(t, os.Rename(dir+"/f", dir+"/h")); write(t, dir+"/h", "") }, "removed"},
			{"move back", func(t *testing.T, dir string) { must(t, os.Rename(dir+"/h", dir+"/f")) }, "created"},
			{"directory vanishes", func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) }, "gone"},
		}},
		{"directory moves", "f", func(t *testing.T, dir string) { write(t, dir+"/f", "0") }, []act{
			{"move", func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+"2")); write(t, dir+"2/f", "1") }, "gone"},
		}},
		{"link", "link", func(t *testing.T, dir string) {
			write(t, dir+"/f0", "0")
			write(t, dir+"/f1", "01")
			must(t, os.Symlink("f0", dir+"/link"))
		}, []act{
			{"write the target", func(t *testing.T, dir string) { write(t, dir+"/f0", "000") }, "modified"},
			{"swap", func(t *testing.T, dir string) { swap(t, "f1", dir+"/link") }, "modified"},
			{"save the new target", func(t *testing.T, dir string) { save(t, dir+"/f1", "0001") }, "modified"},
			{"swap to nowhere", func(t *testing.T, dir string) { swap(t, "nowhere", dir+"/link") }, "removed"},
			{"nowhere appears", func(t *testing.T, dir string) { write(t, dir+"/nowhere", "1") }, "created"},
			{"remove the link", func(t *testing.T, dir string) { must(t, os.Remove(dir+"/link")) }, "removed"},
		}},
		{"as kubelet mounts", "conf", func(t *testing.T, dir string) {
			mkdir(t, dir+"/..1")
			write(t, dir+"/..1/conf", "0")
			must(t, os.Symlink("..1", dir+"/..data"))
			must(t, os.Symlink("..data/conf", dir+"/conf"))
		}, []act{
			{"update", func(t *testing.T, dir string) {
				mkdir(t, dir+"/..2")
				write(t, dir+"/..2/conf", "01")
				swap(t, "..2", dir+"/..data")
				must(t, os.RemoveAll(dir+"/..1"))
			}, "modified"},
			{"update again", func(t *testing.T, dir string) {
				mkdir(t, dir+"/..3")
				write(t, dir+"/..3/conf", "012")
				swap(t, "..3", dir+"/..data")
				must(t, os.RemoveAll(dir+"/..2"))
			}, "modified"},
			{"write", func(t *testing.T, dir string) { write(t, dir+"/..3/conf", "0123") }, "modified"},
			{"vanish", func(t *testing.T, dir string) { must(t, os.RemoveAll(dir+"/..3")) }, "removed"},
		}},
		{"link above", "now/conf", func(t *testing.T, dir string) {
			mkdir(t, dir+"/1")
			mkdir(t, dir+"/2")
			write(t, dir+"/1/conf", "0")
			write(t, dir+"/2/conf", "01")
			must(t, os.Symlink("1", dir+"/now"))
		}, []act{
			{"swap", func(t *testing.T, dir string) { swap(t, "2", dir+"/now"); must(t, os.RemoveAll(dir+"/1")) }, "modified"},
			{"save", func(t *testing.T, dir string) { save(t, dir+"/2/conf", "012") }, "modified"},
			{"swap to nowhere", func(t *testing.T, dir string) { swap(t, "3", dir+"/now") }, "gone"},
		}},
	}
	for _, mode := range []string{"events", "polling"} {
		for _, test := range tests {
			t.Run(mode+"/"+test.name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "dir")
				mkdir(t, dir)
				test.setup(t, dir)
				options := Options{}
				if mode == "polling" {
					options.Poll = 10 * time.Millisecond
				}
				o := observe(t, newWatcher(t, options), filepath.Join(dir, test.file), env.WatchOptions{})
				for _, act := range test.acts {
					act.do(t, dir)
					for {
						got := o.batch()
						if len(got) == 1 && slices.Contains(strings.Split(act.want, "|"), strings.TrimSuffix(got[0], " .")) {
							break
						}
						// What is left of a change before, or a step of this one, is followed by the one that is wanted.
						if !strings.HasSuffix(got[0], " .") || strings.HasPrefix(got[0], "gone") {
							t.Fatalf("%s: told %q, want %q", act.name, got, act.want)
						}
					}
				}
			})
		}
	}
}

func TestManySaves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, "0")
	o := observe(t, newWatcher(t, Options{}), path, env.WatchOptions{})
	last := make(chan struct{})
	var saves sync.WaitGroup
	saves.Go(func() {
		for i := range 200 {
			if i == 199 {
				close(last)
			}
			if err := errors.Join(os.WriteFile(path+"~", fmt.Append(nil, i+1), 0o600), os.Rename(path+"~", path)); err != nil {
				t.Error(err)
			}
		}
	})
	defer saves.Wait()
	for batches := 1; ; batches++ {
		if got := o.batch(); len(got) != 1 || got[0] != "modified ." {
			t.Fatalf("told %q", got)
		}
		content, err := os.ReadFile(path)
		must(t, err)
		if string(content) == "200" {
			return
		}
		if batches > 200 {
			t.Fatalf("%d batches for 200 saves", batches)
		}
	}
}

// What ends a watch of a directory is told, and nothing is told after it.
func TestGone(t *testing.T) {
	for _, test := range []struct {
		name string
		root string
		act  func(t *testing.T, base string)
	}{
		{"removed", "d", func(t *testing.T, base string) { must(t, os.RemoveAll(base+"/d")) }},
		{"removed and made again", "d", func(t *testing.T, base string) {
			must(t, os.RemoveAll(base+"/d"))
			mkdir(t, base+"/d")
			write(t, base+"/d/x", "")
		}},
		{"removed while somebody stands in it", "d", func(t *testing.T, base string) {
			f, err := os.Open(base + "/d")
			must(t, err)
			t.Cleanup(func() { f.Close() })
			must(t, os.RemoveAll(base+"/d"))
		}},
		{"renamed", "d", func(t *testing.T, base string) {
			must(t, os.Rename(base+"/d", base+"/d2"))
			write(t, base+"/d2/y", "")
		}},
		{"renamed above", "up/d", func(t *testing.T, base string) {
			must(t, os.Rename(base+"/up", base+"/up2"))
			write(t, base+"/up2/d/y", "")
		}},
		{"link led elsewhere", "link", func(t *testing.T, base string) { swap(t, "up", base+"/link") }},
	} {
		for _, mode := range []string{"events", "polling"} {
			t.Run(mode+"/"+test.name, func(t *testing.T) {
				base := t.TempDir()
				mkdir(t, base+"/d/sub")
				mkdir(t, base+"/up/d")
				must(t, os.Symlink("d", base+"/link"))
				options := Options{}
				if mode == "polling" {
					options.Poll = 10 * time.Millisecond
				}
				o := observe(t, newWatcher(t, options), filepath.Join(base, test.root), env.WatchOptions{Recursive: true})
				o.sync(nil)
				test.act(t, base)
				for {
					got := o.batch()
					if len(got) == 1 && got[0] == "gone ." {
						break
					}
					if mode == "polling" && slices.Contains(got, "created x") {
						return // the new directory has the old one's number, so it goes on with that
					}
					for _, line := range got {
						if !strings.HasPrefix(line, "removed ") && !strings.HasPrefix(line, "modified .sync") {
							t.Errorf("told %q before it is gone", line)
						}
					}
				}
				if got, err, ok := o.next(); ok {
					t.Errorf("told %v, %v after it is gone", got, err)
				}
			})
		}
	}
}

// A mirror is what a consumer knows who believes what he is told.
type mirror struct {
	t     *testing.T
	root  string
	files map[string]string
}

func newMirror(t *testing.T, root string) *mirror {
	m := &mirror{t: t, root: root, files: map[string]string{}}
	m.walk(root)
	return m
}

func (m *mirror) walk(path string) {
	err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			m.look(path)
		}
		return nil
	})
	if err != nil {
		m.t.Error(err)
	}
}

func (m *mirror) look(path string) {
	if strings.HasPrefix(filepath.Base(path), ".sync") {
		return
	}
	info, err := os.Lstat(path)
	if err != nil {
		m.forget(path)
		return
	}
	state := info.Mode().String()
	if info.Mode().IsRegular() {
		state += fmt.Sprint(info.Size(), info.ModTime().UnixNano())
	}
	m.files[path] = state
}

func (m *mirror) forget(path string) {
	directory := strings.HasPrefix(m.files[path], "d")
	delete(m.files, path)
	if !directory {
		return
	}
	for other := range m.files {
		if strings.HasPrefix(other, path+"/") {
			delete(m.files, other)
		}
	}
}

func (m *mirror) tell(batch []string) {
	for _, line := range batch {
		kind, name, _ := strings.Cut(line, " ")
		path := filepath.Join(m.root, name)
		switch env.ChangeKind(kind) {
		case env.Created, env.Modified:
			m.look(path)
		case env.Removed:
			m.forget(path)
			m.look(path)
		case env.Rescan:
			m.forget(path)
			m.walk(path)
		default:
			m.t.Errorf("told %q", line)
		}
	}
}

func (m *mirror) check() {
	m.t.Helper()
	if diff := cmp.Diff(newMirror(m.t, m.root).files, m.files); diff != "" {
		m.t.Errorf("what was told does not explain what is there (-there +told):\n%.4000s", diff)
	}
}

// 5,000 files in 200 directories, made, changed and removed as a checkout does.
func TestMassChange(t *testing.T) {
	root := t.TempDir()
	o := observe(t, newWatcher(t, Options{}), root, env.WatchOptions{Recursive: true})
	m := newMirror(t, root)
	path := func(i int) string { return fmt.Sprintf("%s/%d/sub%d/f%d", root, i%20, i%200, i) }
	step := func(name string, do func()) {
		done := make(chan struct{})
		go func() { defer close(done); do() }()
		<-done
		told := o.sync(m.tell)
		t.Logf("%s: %d changes told, rescan: %v", name, len(told), slices.Contains(told, "rescan ."))
		m.check()
	}
	step("make", func() {
		for i := range 5000 {
			mkdir(t, filepath.Dir(path(i)))
			write(t, path(i), "0")
		}
	})
	step("change", func() {
		for i := range 5000 {
			switch i % 3 {
			case 0:
				write(t, path(i), "changed")
			case 1:
				save(t, path(i), "saved")
			default:
				must(t, os.Remove(path(i)))
			}
		}
	})
	step("move", func() {
		for i := range 20 {
			must(t, os.Rename(fmt.Sprint(root, "/", i), fmt.Sprint(root, "/moved", i)))
		}
		for i := range 20 {
			write(t, fmt.Sprintf("%s/moved%d/sub%d/late", root, i, i), "1")
		}
	})
	step("remove", func() {
		for i := range 20 {
			must(t, os.RemoveAll(fmt.Sprint(root, "/moved", i)))
		}
	})
	if len(m.files) != 1 {
		t.Errorf("%d files are left", len(m.files))
	}
}

// Directories that are made, moved into one another, swapped and removed all at the same time, by several hands.
func TestRandomTree(t *testing.T) {
	root := filepath.Join(t.TempDir(), "r")
	mkdir(t, root)
	outside := t.TempDir()
	// One watch alone and, which share what the kernel tells, it and more: of the same tree by another name, and of
	// one that directories come from and go to.
	t.Run("alone", func(t *testing.T) { testRandomTree(t, root, outside, false, 8) })
	t.Run("shared", func(t *testing.T) { testRandomTree(t, root, outside, true, 3) })
}

func testRandomTree(t *testing.T, root, outside string, others bool, rounds int) {
	type pair struct {
		*observer
		*mirror
	}
	w := newWatcher(t, Options{})
	pairs := []pair{{observe(t, w, root, env.WatchOptions{Recursive: true}), newMirror(t, root)}}
	if others {
		link := filepath.Join(t.TempDir(), "l")
		must(t, os.Symlink(filepath.Dir(root), link))
		for _, path := range []string{filepath.Join(link, filepath.Base(root)), outside} {
			pairs = append(pairs, pair{observe(t, w, path, env.WatchOptions{Recursive: true}), newMirror(t, path)})
		}
	}
	m := pairs[0].mirror
	check := func() (told []string) {
		t.Helper()
		for i, p := range pairs {
			lines := p.sync(p.tell)
			p.check()
			if i == 0 {
				told = lines
			}
		}
		return told
	}
	for round := range rounds {
		var hands sync.WaitGroup
		for hand := range 3 {
			random := rand.New(rand.NewPCG(uint64(round), uint64(hand)))
			name := func() string {
				path := root
				for range 1 + random.IntN(4) {
					path += "/" + string(rune('a'+random.IntN(4)))
				}
				return path
			}
			hands.Go(func() {
				for i := range 300 {
					// Errors are as good as successes here.
					switch random.IntN(10) {
					case 0, 1, 2:
						os.MkdirAll(name(), 0o755)
					case 3, 4:
						os.WriteFile(name()+".txt", []byte("x"), 0o644)
					case 5, 6:
						os.Rename(name(), name())
					case 7:
						os.RemoveAll(name())
					case 8:
						unix.Renameat2(unix.AT_FDCWD, name(), unix.AT_FDCWD, name(), unix.RENAME_EXCHANGE)
					case 9:
						away := fmt.Sprint(outside, "/", round, hand, i)
						os.Rename(name(), away)
						os.WriteFile(away+"/stale", nil, 0o644)
						if random.IntN(2) == 0 {
							os.Rename(away, name())
						}
					}
				}
			})
		}
		hands.Wait()
		check()
		// It is still watched everywhere: a new file in each directory is told.
		for path := range m.files {
			if info, err := os.Lstat(path); err == nil && info.IsDir() {
				write(t, path+"/probe", "")
			}
		}
		told := check()
		if slices.Contains(told, "rescan .") {
			t.Errorf("round %d: the kernel's queue was lost", round)
		}
		for path := range m.files {
			if filepath.Base(path) == "probe" {
				os.Remove(path)
			}
		}
		check()
	}
}

// When the kernel's queue overflows, that is told, and what comes after is told as ever, in directories too that
// were made while nothing was heard.
func TestOverflow(t *testing.T) {
	root := t.TempDir()
	w := newWatcher(t, Options{})
	o := observe(t, w, root, env.WatchOptions{Recursive: true})
	m := newMirror(t, root)
	stop := holdEvents(t, w)
	mkdir(t, root+"/missed")
	names := [2]string{root + "/x", root + "/y"}
	write(t, names[0], "")
	for i := range 50_000 { // two events each
		must(t, os.Rename(names[i%2], names[1-i%2]))
	}
	mkdir(t, root+"/missed/too")
	stop()
	for told := []string(nil); !slices.Contains(told, "rescan ."); {
		told = o.batch()
		m.tell(told)
	}
	write(t, root+"/missed/too/last", "")
	told := o.sync(m.tell)
	if !slices.Contains(told, "created missed/too/last") && !slices.Contains(told, "rescan .") {
		t.Errorf("the last change is not told, but %q", told)
	}
	m.check()
	write(t, root+"/missed/too/later", "")
	if told := o.sync(m.tell); !slices.Contains(told, "created missed/too/later") {
		t.Errorf("a later change is not told, but %q", told)
	}
}

// holdEvents keeps the only watch's goroutine from taking events, until what it returns is called.
func holdEvents(t *testing.T, w *Watcher) (release func()) {
	// The batch's lock is where it waits: nothing else it does can be held from outside.
	for one := range w.watches {
		one.batch.mu.Lock()
		return one.batch.mu.Unlock
	}
	t.Fatal("there is no watch")
	return nil
}

// Watches share what the kernel tells: each is told in its own words, also when another one ends; and nothing that
// happened before it began, even if the kernel has not said it yet.
func TestShared(t *testing.T) {
	root := t.TempDir()
	mkdir(t, root+"/sub")
	link := filepath.Join(t.TempDir(), "l")
	must(t, os.Symlink(root, link))
	w := newWatcher(t, Options{})
	all := []*observer{
		observe(t, w, root, env.WatchOptions{Recursive: true}),
		observe(t, w, link, env.WatchOptions{Recursive: true}),
		observe(t, w, root+"/sub", env.WatchOptions{}),
		observe(t, w, link+"/sub", env.WatchOptions{}),
	}
	await := func(o *observer, line string) {
		t.Helper()
		for !slices.Contains(o.batch(), line) {
		}
	}
	write(t, root+"/sub/x", "")
	for i, o := range all {
		await(o, []string{"created sub/x", "created sub/x", "created x", "created x"}[i])
	}
	must(t, all[2].watch.Close())
	must(t, all[0].watch.Close())
	write(t, root+"/sub/y", "")
	await(all[1], "created sub/y")
	await(all[3], "created y")
	must(t, os.Rename(root+"/sub", root+"/moved"))
	await(all[3], "gone .")
	write(t, root+"/moved/z", "")
	await(all[1], "created moved/z")

	i := w.kernel.instance
	late, err := w.kernel.newSource()
	must(t, err)
	defer late.close()
	i.mu.Lock() // nothing is read
	mkdir(t, root+"/before")
	wd, err := unix.InotifyAddWatch(i.fd, root, interest)
	must(t, err)
	i.enter(late, root, int32(wd))
	mkdir(t, root+"/after")
	i.mu.Unlock()
	if event := <-late.events(); event.Name != root+"/after" {
		t.Errorf("told %v", event)
	}
	await(all[1], "created after")
}

// A directory that could not be read is watched once it can be.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() != 0 {
		testUnreadable(t)
		return
	}
	asNobody(t, "unreadable")
}

func testUnreadable(t testing.TB) {
	root, err := os.MkdirTemp("", "watch")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	if err := os.MkdirAll(root+"/closed/in", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root+"/closed", 0); err != nil {
		t.Fatal(err)
	}
	w := New(Options{})
	defer w.Close()
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	if err != nil {
		t.Fatal(err)
	}
	one, err := w.Watch(context.Background(), uri, env.WatchOptions{Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root+"/closed", 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	wanted := map[string]bool{"/closed": true, "/closed/in": true, "/closed/in/x": true}
	for changes, err := range one.Changes(ctx) {
		if err != nil {
			t.Fatalf("%v are not told: %v", wanted, err)
		}
		for _, c := range changes {
			native, _ := c.Path.Native()
			delete(wanted, strings.TrimPrefix(native, root))
			if strings.HasSuffix(native, "/in") {
				if err := os.WriteFile(native+"/x", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(wanted) == 0 {
			break
		}
	}
	closed, err := pathuri.FromNative(root+"/closed", pathuri.Posix)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root+"/closed", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Watch(context.Background(), closed, env.WatchOptions{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("watch of what may not be read: %v", err)
	}
	os.Chmod(root+"/closed", 0o700)
}

// asNobody runs a role of this test in a process of another user.
func asNobody(t *testing.T, role string) {
	command := exec.Command("/proc/self/exe", "-test.run=^$")
	command.Env = append(os.Environ(), "WATCH_TEST_ROLE="+role, "TMPDIR=/tmp")
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	text, err := command.CombinedOutput()
	if err != nil && len(text) == 0 {
		t.Skipf("no process of another user: %v", err)
	}
	if err != nil {
		t.Errorf("%v: %s", err, text)
	}
}

// The kernel's limits, in a user namespace that has some of its own.
func TestKernelLimits(t *testing.T) {
	probe := func(role string) ([]byte, error) {
		command := exec.Command("/proc/self/exe", "-test.run=^$")
		command.Env = append(os.Environ(), "WATCH_TEST_ROLE="+role)
		command.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		return command.CombinedOutput()
	}
	if text, err := probe("limitable"); err != nil {
		t.Skipf("no user namespace with limits of its own: %v %s", err, text)
	}
	for _, role := range []string{"watches", "later", "instances"} {
		t.Run(role, func(t *testing.T) {
			if text, err := probe(role); err != nil {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

// helper is a process with other rights or limits.
func helper(role string) {
	fail := func(format string, args ...any) {
		fmt.Printf(format+"\n", args...)
		os.Exit(1)
	}
	limit := func(name string, value int) {
		if err := os.WriteFile("/proc/sys/user/"+name, fmt.Append(nil, value), 0); err != nil {
			fail("%v", err)
		}
	}
	if role == "limitable" {
		limit("max_inotify_watches", 1000)
		return
	}
	if role == "unreadable" {
		result := testing.Benchmark(func(b *testing.B) {
			if b.N == 1 {
				testUnreadable(b)
			}
		})
		if result.N == 0 {
			fail("failed")
		}
		return
	}
	root, err := os.MkdirTemp("", "watch")
	if err != nil {
		fail("%v", err)
	}
	defer os.RemoveAll(root)
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	if err != nil {
		fail("%v", err)
	}
	for i := range 20 {
		os.Mkdir(fmt.Sprint(root, "/", i), 0o700)
	}
	w := New(Options{})
	check := func(err error, words ...string) {
		if !errors.Is(err, env.ErrLimit) {
			fail("it is no limit: %v", err)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				fail("%q does not say %q", err, word)
			}
		}
	}
	switch role {
	case "watches":
		limit("max_inotify_watches", 10)
		_, err := w.Watch(context.Background(), uri, env.WatchOptions{Recursive: true})
		check(err, "max_inotify_watches is 10", "this watch has 9 directories", "sysctl -w user.max_inotify_watches=", "smaller directory", root)
		one, err := w.Watch(context.Background(), uri, env.WatchOptions{})
		if err != nil {
			fail("what failed was not undone: %v", err)
		}
		one.Close()
	case "later":
		limit("max_inotify_watches", 25)
		one, err := w.Watch(context.Background(), uri, env.WatchOptions{Recursive: true})
		if err != nil {
			fail("%v", err)
		}
		for i := range 10 {
			os.Mkdir(fmt.Sprint(root, "/0/", i), 0o700)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		told := 0
		for changes, err := range one.Changes(ctx) {
			if err != nil {
				check(err, "max_inotify_watches is 25", "24 directories")
				break
			}
			told += len(changes)
		}
		if told == 0 {
			fail("what was seen before is not told")
		}
	case "instances": // one is enough, and given back
		for range 2 {
			limit("max_inotify_instances", 1)
			watches := make([]env.Watch, 200)
			for i := range watches {
				if watches[i], err = w.Watch(context.Background(), uri, env.WatchOptions{Recursive: true}); err != nil {
					fail("watch %d: %v", i, err)
				}
			}
			for _, one := range watches {
				one.Close()
			}
		}
		limit("max_inotify_instances", 0)
		_, err = w.Watch(context.Background(), uri, env.WatchOptions{})
		check(err, "max_inotify_instances is 0", "sysctl -w user.max_inotify_instances=", root)
	}
	w.Close()
}

// A file system that is mounted or unmounted at or below the root.
func TestMounts(t *testing.T) {
	base := t.TempDir()
	mkdir(t, base+"/m")
	mount := func(path string) {
		if err := unix.Mount("none", path, "tmpfs", 0, ""); err != nil {
			t.Skipf("no mounting: %v", err)
		}
		t.Cleanup(func() { unix.Unmount(path, unix.MNT_DETACH) })
	}
	mount(base + "/m")
	mkdir(t, base+"/m/sub")
	w := newWatcher(t, Options{})
	o := observe(t, w, base+"/m", env.WatchOptions{Recursive: true})
	mount(base + "/m/sub")
	for !slices.Contains(o.batch(), "rescan .") {
	}
	write(t, base+"/m/sub/x", "")
	if told := o.sync(nil); !slices.Contains(told, "created sub/x") {
		t.Errorf("told %q", told)
	}
	must(t, unix.Unmount(base+"/m/sub", unix.MNT_DETACH))
	for !slices.Contains(o.batch(), "rescan .") {
	}
	must(t, unix.Unmount(base+"/m", unix.MNT_DETACH))
	for !slices.Contains(o.batch(), "gone .") {
	}
}

// /proc tells nothing, and is looked at.
func TestFileSystemWithoutEvents(t *testing.T) {
	w := newWatcher(t, Options{})
	o := observe(t, w, "/proc/self/task", env.WatchOptions{})
	if !o.watch.(*watch).polling {
		t.Error("/proc is not polled")
	}
}

func TestRefused(t *testing.T) {
	w := newWatcher(t, Options{Limit: 2})
	dir := t.TempDir()
	_, err := w.Watch(t.Context(), uriOf(t, dir+"/none"), env.WatchOptions{})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir+"/none") {
		t.Errorf("watch of nothing: %v", err)
	}
	if _, err := w.Watch(t.Context(), pathuri.URI{}, env.WatchOptions{}); !errors.Is(err, env.ErrInvalid) {
		t.Errorf("watch of no path: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more"))
	if _, err := w.Watch(ctx, uriOf(t, dir), env.WatchOptions{}); err == nil || err.Error() != "no more" {
		t.Errorf("canceled: %v", err)
	}
	one := observe(t, w, dir, env.WatchOptions{})
	two := observe(t, w, dir, env.WatchOptions{})
	if _, err := w.Watch(t.Context(), uriOf(t, dir), env.WatchOptions{}); !errors.Is(err, env.ErrLimit) {
		t.Errorf("a third: %v", err)
	}
	must(t, one.watch.Close())
	if _, err, ok := one.next(); !errors.Is(err, fs.ErrClosed) || !ok {
		t.Errorf("changes of a closed watch: %v", err)
	}
	three := observe(t, w, dir, env.WatchOptions{})
	must(t, w.Close())
	for _, o := range []*observer{two, three} {
		if _, err, ok := o.next(); !errors.Is(err, errShutdown) || !ok {
			t.Errorf("changes after the server's end: %v", err)
		}
	}
	if _, err := w.Watch(t.Context(), uriOf(t, dir), env.WatchOptions{}); !errors.Is(err, errShutdown) {
		t.Errorf("watch after the server's end: %v", err)
	}
}

// Breaking off and ranging again goes on.
func TestChangesAgain(t *testing.T) {
	dir := t.TempDir()
	w := newWatcher(t, Options{})
	one, err := w.Watch(t.Context(), uriOf(t, dir), env.WatchOptions{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range one.Changes(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for i := range 3 {
		want := uriOf(t, fmt.Sprint(dir, "/", i))
		write(t, fmt.Sprint(dir, "/", i), "")
		for changes, err := range one.Changes(t.Context()) {
			must(t, err)
			if changes[0].Path != want || changes[0].Kind != env.Created {
				t.Errorf("told %v", changes)
			}
			break
		}
	}
}

func BenchmarkArm(b *testing.B) {
	root := b.TempDir()
	const directories = 100_000
	for i := range 100 {
		for j := range directories / 100 {
			if err := os.MkdirAll(fmt.Sprintf("%s/project-%02d/directory-%03d/%02d", root, i, j/50, j%50), 0o755); err != nil {
				b.Fatal(err)
			}
		}
	}
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	if err != nil {
		b.Fatal(err)
	}
	w := New(Options{})
	defer w.Close()
	for b.Loop() {
		before := heap()
		one, err := w.Watch(b.Context(), uri, env.WatchOptions{Recursive: true})
		if err != nil {
			b.Skipf("%v", err)
		}
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
		begun := time.Now()
		one.Close()
		b.ReportMetric(time.Since(begun).Seconds(), "s-to-close")
		b.StartTimer()
	}
}
