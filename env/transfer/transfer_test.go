package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"waldo/env"
	"waldo/env/envtest/fake"
	"waldo/pathuri"
)

func TestTree(t *testing.T) {
	content := map[string]string{"/s/a": "1", "/s/d/b": "2", "/s/d/e/f/c": "3", "/s/d/empty": "", "/s/none/": "", "/s/\xff": "4", "/s/d/ü": "5"}
	whole := []string{"./", "a=1", "d/", "d/b=2", "d/e/", "d/e/f/", "d/e/f/c=3", "d/empty=", "d/link→../a", "d/ü=5", "none/", "\xff=4"}
	for name, test := range map[string]struct {
		there map[string]string
		to    string
		want  []string
	}{
		"new":                      {nil, "/t", whole},
		"new, with what is above":  {nil, "/x/y/t", whole},
		"what else is there stays": {map[string]string{"/t/d/more": "6", "/t/a": "old"}, "/t", slices.Concat(whole[:9], []string{"d/more=6"}, whole[9:])},
	} {
		t.Run(name, func(t *testing.T) {
			source, target := posix(content), posix(test.there)
			symlink(t, source, "../a", "/s/d/link")
			var progress Progress
			err := Copy(t.Context(), end(t, source, "/s"), end(t, target, test.to), Options{Recursive: true, Progress: &progress})
			if err != nil {
				t.Fatal(err)
			}
			want(t, "the copy", tree(t, target, test.to), test.want...)
			files, size := progress.Done()
			ofFiles, ofSize, all := progress.Found()
			if files != 7 || size != 5 || ofFiles != files || ofSize != size || !all {
				t.Errorf("%d files and %d bytes of %d and %d, all: %v; want 7 and 5", files, size, ofFiles, ofSize, all)
			}
		})
	}
}

func TestFromWindows(t *testing.T) {
	source, target := fake.New(pathuri.Windows), fake.New(pathuri.Posix)
	source.Tree(map[string]string{`C:\s\a`: "1", `C:\s\d\B`: "2"})
	chmod(t, source, `C:\s\a`, 0o666)
	chmod(t, source, `C:\s\d`, 0o777)
	if err := Copy(t.Context(), end(t, source, `C:\s`), end(t, target, "/t"), Options{Recursive: true}); err != nil {
		t.Fatal(err)
	}
	want(t, "the copy", tree(t, target, "/t"), "./", "a=1", "d/", "d/B=2")
	want(t, "permissions, which mean nothing there", modes(t, target, "/t"), ". 755", "a 644", "d 755", "d/B 644")
}

func TestToWindows(t *testing.T) {
	source, target := posix(map[string]string{
		"/s/Makefile": "1", "/s/makefile": "2", `/s/a\b`: "3", "/s/a:b": "4", "/s/aux": "5", "/s/con/deep/f": "6", "/s/dot.": "7", "/s/ok/f": "8", "/s/\xff": "9",
		"/s/x?/f": "10", "/s/x?/g": "11",
	}), fake.New(pathuri.Windows)
	err := Copy(t.Context(), end(t, source, "/s"), end(t, target, `C:\t`), Options{Recursive: true})
	want(t, "the copy", tree(t, target, `C:\t`), "./", "Makefile=1", "ok/", "ok/f=8")
	if !errors.Is(err, env.ErrInvalid) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("error %v", err)
	}
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != 8 { // what is in a directory that cannot be is not told of
		t.Errorf("%d errors, want 8:\n%v", len(lines), err)
	}
	for _, name := range []string{"/s/makefile", `a\\b`, "a:b", "aux", "con", "dot.", `\xff`, "x?"} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, name) }) {
			t.Errorf("nothing of %s in:\n%v", name, err)
		}
	}
}

func TestWhatFailsIsToldAndTheRestCopied(t *testing.T) {
	source, target := posix(map[string]string{
		"/s/a": "1", "/s/b/c": "2", "/s/b/d": "3", "/s/e/f": "4", "/s/g": "5", "/s/h": "6", "/s/i/j": "7",
	}), posix(map[string]string{"/t/h": "old", "/t/i": "a file"})
	source.Fail(uri(t, "/s/b/c"), fs.ErrPermission)
	source.Fail(uri(t, "/s/e"), fs.ErrPermission)
	target.Fail(uri(t, "/t/g"), env.ErrLimit)
	from := &other{Files: source, read: func(path pathuri.URI, reader env.FileReader) env.FileReader {
		if path == uri(t, "/s/h") {
			return failing{reader, env.ErrChanged}
		}
		return reader
	}}
	var progress Progress
	err := Copy(t.Context(), End{from, uri(t, "/s")}, end(t, target, "/t"), Options{Recursive: true, Progress: &progress})
	for _, each := range []error{fs.ErrPermission, env.ErrLimit, env.ErrChanged, env.ErrNotDirectory} {
		if !errors.Is(err, each) {
			t.Errorf("no %v in %v", each, err)
		}
	}
	if n := strings.Count(fmt.Sprint(err), "\n") + 1; n != 5 {
		t.Errorf("%d errors, want 5: %v", n, err)
	}
	target.Fail(uri(t, "/t/g"), nil)
	want(t, "the copy", tree(t, target, "/t"), "./", "a=1", "b/", "b/d=3", "e/", "h=old", "i=a file")
	if files, size := progress.Done(); files != 2 || size != 2 {
		t.Errorf("%d files and %d bytes, want 2 and 2", files, size)
	}
}

func TestManyErrors(t *testing.T) {
	content := make(map[string]string)
	for i := range 30 {
		content[fmt.Sprintf("/s/%02d", i)] = "x"
	}
	source, target := posix(content), posix(nil)
	for path := range content {
		source.Fail(uri(t, path), fs.ErrPermission)
	}
	err := Copy(t.Context(), end(t, source, "/s"), end(t, target, "/t"), Options{Recursive: true})
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != 21 || lines[20] != "and 10 more" {
		t.Errorf("%d lines, want 20 and the rest summed up: %v", len(lines), err)
	}
}

func TestWalkThatFails(t *testing.T) {
	source, target := posix(map[string]string{"/s/a": "1", "/s/d/b": "2", "/s/e/c": "3"}), posix(nil)
	chmod(t, source, "/s/d", 0o555)
	symlink(t, source, "a", "/s/b")
	broken := errors.New("broken")
	from := &other{Files: source, walk: func(root pathuri.URI) iter.Seq2[env.Entry, error] {
		return func(yield func(env.Entry, error) bool) {
			for entry, err := range source.Walk(t.Context(), root, env.WalkOptions{}) {
				if entry.Path == uri(t, "/s/e/c") {
					yield(env.Entry{}, broken)
					return
				}
				if !yield(entry, err) {
					return
				}
			}
		}
	}}
	var progress Progress
	err := Copy(t.Context(), End{from, uri(t, "/s")}, end(t, target, "/t"), Options{Recursive: true, Progress: &progress})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	want(t, "the copy", tree(t, target, "/t"), "./", "a=1", "b→a", "d/", "d/b=2", "e/")
	want(t, "permissions", modes(t, target, "/t"), ". 755", "a 644", "b 777", "d 555", "d/b 644", "e 755")
	if _, _, all := progress.Found(); !all {
		t.Error("the count is not the last word, though nothing more comes")
	}
}

// TestHostileSource: whatever a source tells of, nothing is made or changed outside the target.
func TestHostileSource(t *testing.T) {
	dir, file, linkMode := fs.ModeDir|0o755, fs.FileMode(0o644), fs.ModeSymlink|0o777
	entry := func(native string, mode fs.FileMode, target string) env.Entry {
		return env.Entry{Path: uri(t, native), Info: env.FileInfo{Mode: mode, Size: 1}, Target: target}
	}
	root := entry("/s", dir, "")
	for name, test := range map[string]struct {
		entries []env.Entry
		there   map[string]string // links at the target
		want    []string
		errors  int
	}{
		"a link, then a file through it": {
			entries: []env.Entry{root, entry("/s/a", linkMode, "/outside"), entry("/s/a/f", file, "")},
			want:    []string{"./", "a→/outside"}, errors: 1,
		},
		"a directory, a link in its place, a file": {
			entries: []env.Entry{root, entry("/s/a", dir, ""), entry("/s/a", linkMode, "/outside"), entry("/s/a/f", file, "")},
			want:    []string{"./", "a/", "a/f=x"}, errors: 1,
		},
		"a link, a directory in its place, a file": {
			entries: []env.Entry{root, entry("/s/a", linkMode, "/outside"), entry("/s/a", dir, ""), entry("/s/a/f", file, "")},
			want:    []string{"./", "a/", "a/f=x"}, errors: 1,
		},
		"a link, then a link through it": {
			entries: []env.Entry{root, entry("/s/a", linkMode, "/outside"), entry("/s/a/l", linkMode, "x")},
			want:    []string{"./", "a→/outside"}, errors: 1,
		},
		"a link twice": {
			entries: []env.Entry{root, entry("/s/a", linkMode, "/outside"), entry("/s/a", linkMode, "/outside/f")},
			want:    []string{"./", "a→/outside"}, // either
		},
		"a link instead of the root": {
			entries: []env.Entry{entry("/s", linkMode, "/outside"), entry("/s/f", file, "")},
			want:    []string{"./", "f=x"},
		},
		"entries outside": {
			entries: []env.Entry{root, entry("/outside/f", file, ""), entry("/f", file, ""), entry("/", dir, ""), entry("/g", file, ""), entry("/s/x/f", file, "")},
			want:    []string{"./"}, errors: 4, // what is in the directory that cannot be is not told of
		},
		"no root": {
			entries: []env.Entry{entry("/s/f", file, "")},
			want:    []string{"./"}, errors: 1,
		},
		"links at the target that lead out": {
			entries: []env.Entry{root, entry("/s/d", dir, ""), entry("/s/d/f", file, ""), entry("/s/f", file, ""), entry("/s/l", linkMode, "new")},
			there:   map[string]string{"d": "/outside", "f": "/outside/f", "l": "/outside/f"},
			want:    []string{"./", "d→/outside", "f→/outside/f", "l→new"}, errors: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := posix(map[string]string{"/s/a/f": "x", "/s/f": "x", "/s/d/f": "x", "/outside/f": "x", "/f": "x", "/g": "x", "/s/x/f": "x"})
			target := posix(map[string]string{"/outside/f": "kept", "/t/": ""})
			for at, to := range test.there {
				symlink(t, target, to, "/t/"+at)
			}
			from := &other{Files: source, walk: func(pathuri.URI) iter.Seq2[env.Entry, error] {
				return func(yield func(env.Entry, error) bool) {
					for _, entry := range test.entries {
						if !yield(entry, nil) {
							return
						}
					}
				}
			}}
			err := Copy(t.Context(), End{from, uri(t, "/s")}, end(t, target, "/t"), Options{Recursive: true})
			n := 0
			if err != nil {
				n = strings.Count(err.Error(), "\n") + 1
			}
			if n != test.errors {
				t.Errorf("%d errors, want %d: %v", n, test.errors, err)
			}
			got := tree(t, target, "/t")
			if name == "a link twice" {
				got[1] = strings.TrimSuffix(got[1], "/f")
			}
			want(t, "the copy", got, test.want...)
			want(t, "outside", tree(t, target, "/outside"), "./", "f=kept")
			want(t, "names at the top", topNames(t, target), "home", "outside", "t", "tmp")
		})
	}
}

func topNames(t *testing.T, m *fake.Machine) (names []string) {
	for entry, err := range m.List(t.Context(), uri(t, "/")) {
		if err != nil {
			t.Fatal(err)
		}
		name, _ := entry.Path.Base()
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestLinks(t *testing.T) {
	source := posix(map[string]string{"/s/d/f": "1", "/s/g": "2"})
	for at, to := range map[string]string{"/s/a": "g", "/s/b": "/nowhere", "/s/c": "d", "/s/e": "d"} {
		symlink(t, source, to, at)
	}
	target := posix(map[string]string{"/t/a": "a file", "/t/c/": "", "/t/e/full": "3"})
	symlink(t, target, "old", "/t/b")
	var linked, late atomic.Int32
	target.Hook(func(_ context.Context, call fake.Call) error {
		switch call.Op {
		case "symlink":
			linked.Add(1)
		case "mkdir", "write":
			late.Add(linked.Load())
		}
		return nil
	})
	err := Copy(t.Context(), end(t, source, "/s"), end(t, target, "/t"), Options{Recursive: true})
	target.Hook(nil)
	if n := strings.Count(fmt.Sprint(err), "\n") + 1; !errors.Is(err, env.ErrIsDirectory) || n != 2 {
		t.Errorf("%d errors, want 2: %v", n, err)
	}
	want(t, "the copy", tree(t, target, "/t"), "./", "a→g", "b→/nowhere", "c/", "d/", "d/f=1", "e/", "e/full=3", "g=2")
	if linked.Load() == 0 || late.Load() != 0 {
		t.Errorf("%d links, and files or directories behind them", linked.Load())
	}
}

func TestPermissions(t *testing.T) {
	source := posix(map[string]string{
		"/s/run": "1", "/s/private/f": "2", "/s/read/f": "3", "/s/none/deep/f": "4", "/s/there/f": "5", "/s/there/new/f": "6", "/s/there/inner/f": "7",
	})
	for path, bits := range map[string]fs.FileMode{
		"/s": 0o750, "/s/run": 0o711, "/s/private": 0o700, "/s/read": 0o555, "/s/none": 0, "/s/none/deep": 0, "/s/read/f": 0o444, "/s/there/f": 0o600,
		"/s/there": 0o777, "/s/there/inner": 0o777,
	} {
		chmod(t, source, path, bits)
	}
	there := func() *fake.Machine {
		m := posix(map[string]string{"/t/there/f": "old", "/t/there/inner/f": "old"})
		for path, bits := range map[string]fs.FileMode{"/t": 0o711, "/t/there": 0o710, "/t/there/f": 0o640, "/t/there/inner": 0o701} {
			chmod(t, m, path, bits)
		}
		return m
	}
	for name, test := range map[string]struct {
		target   *fake.Machine
		preserve bool
		want     []string
	}{
		"new": {posix(nil), false, []string{
			". 750", "none 0", "none/deep 0", "none/deep/f 644", "private 700", "private/f 644", "read 555", "read/f 444", "run 711",
			"there 777", "there/f 600", "there/inner 777", "there/inner/f 644", "there/new 755", "there/new/f 644",
		}},
		"what is there keeps its own": {there(), false, []string{
			". 711", "none 0", "none/deep 0", "none/deep/f 644", "private 700", "private/f 644", "read 555", "read/f 444", "run 711",
			"there 710", "there/f 640", "there/inner 701", "there/inner/f 644", "there/new 755", "there/new/f 644",
		}},
		"preserved": {there(), true, []string{
			". 750", "none 0", "none/deep 0", "none/deep/f 644", "private 700", "private/f 644", "read 555", "read/f 444", "run 711",
			"there 777", "there/f 600", "there/inner 777", "there/inner/f 644", "there/new 755", "there/new/f 644",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			// While it is under way nobody else may look into what is new.
			var seen atomic.Int32
			test.target.Hook(func(ctx context.Context, call fake.Call) error {
				if call.Op != "write" {
					return nil
				}
				for directory := range call.Path.Ancestors() {
					info, err := test.target.Stat(ctx, directory, true)
					if err == nil && info.Mode.IsDir() && info.Mode.Perm()&0o077 == 0 {
						return nil
					}
				}
				if !strings.HasSuffix(call.Path.Display(), "there/f") && !strings.HasSuffix(call.Path.Display(), "/run") && !strings.HasSuffix(call.Path.Display(), "inner/f") {
					seen.Add(1)
				}
				return nil
			})
			err := Copy(t.Context(), end(t, source, "/s"), end(t, test.target, "/t"), Options{Recursive: true, Preserve: test.preserve})
			test.target.Hook(nil)
			if err != nil {
				t.Fatal(err)
			}
			want(t, "permissions", modes(t, test.target, "/t"), test.want...)
			if seen.Load() != 0 {
				t.Errorf("%d files of new directories could be seen by others", seen.Load())
			}
		})
	}
}

func TestPermissionBits(t *testing.T) {
	all := fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky | 0o755
	for preserve, want := range map[bool]fs.FileMode{false: 0o755, true: all} {
		c := copying{preserve: preserve}
		if got := c.permissions(all | fs.ModeDir); got != want {
			t.Errorf("preserving %v: %v, want %v", preserve, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	source := posix(map[string]string{"/s/d/f": "1", "/s/e/": ""})
	when := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	paths := []string{"/s/d/f", "/s/d", "/s/e", "/s"}
	for i, path := range paths {
		at := when.Add(time.Duration(i) * time.Hour)
		if err := source.SetAttributes(t.Context(), uri(t, path), env.Attributes{Modified: &at}); err != nil {
			t.Fatal(err)
		}
	}
	for _, preserve := range []bool{true, false} {
		target := posix(nil)
		if err := Copy(t.Context(), end(t, source, "/s"), end(t, target, "/t"), Options{Recursive: true, Preserve: preserve}); err != nil {
			t.Fatal(err)
		}
		for i, path := range paths {
			info, err := target.Stat(t.Context(), uri(t, strings.Replace(path, "/s", "/t", 1)), false)
			if err != nil {
				t.Fatal(err)
			}
			if same := info.Modified.Equal(when.Add(time.Duration(i) * time.Hour)); same != preserve {
				t.Errorf("%s has the time %v, preserving: %v", path, info.Modified, preserve)
			}
		}
	}
}

func TestHoles(t *testing.T) {
	source, target := posix(nil), posix(nil)
	w, err := source.Write(t.Context(), uri(t, "/s/sparse"), env.WriteOptions{Parents: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := w.Skip(1 << 30); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("x"), 8192)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Skip(1 << 30); err != nil {
		t.Fatal(err)
	}
	written, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/s", "/s/sparse"} {
		var progress Progress
		to := strings.Replace(path, "/s", "/t", 1)
		if err := Copy(t.Context(), end(t, source, path), end(t, target, to), Options{Recursive: true, Progress: &progress}); err != nil {
			t.Fatal(err)
		}
		got, err := target.Stat(t.Context(), uri(t, "/t/sparse"), false)
		if err != nil || got.Size != written.Info.Size || got.Allocated != written.Info.Allocated {
			t.Errorf("%s: %d bytes in %d of %d in %d, %v", path, got.Size, got.Allocated, written.Info.Size, written.Info.Allocated, err)
		}
		if _, n := progress.Done(); n != written.Info.Size {
			t.Errorf("%s: %d bytes counted of %d", path, n, written.Info.Size)
		}
	}
}

// TestUnderWay: many files are under way at a time, and never too many, nor too large ones.
func TestUnderWay(t *testing.T) {
	for name, test := range map[string]struct{ files, size, want int }{
		"small":  {2000, 10, 2000/batchFiles + 1}, // of each batch one
		"larger": {600, smallFile + 1, maxFiles},
		"large":  {80, 1 << 20, maxBytes / fileBytes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				content := make(map[string]string)
				text := strings.Repeat("x", test.size)
				for i := range test.files {
					content[fmt.Sprintf("/s/%d", i)] = text
				}
				source, target := posix(content), posix(nil)
				gate := make(chan struct{})
				var now, most atomic.Int32
				target.Hook(func(_ context.Context, call fake.Call) error {
					if call.Op == "write" {
						n := now.Add(1)
						most.Store(max(most.Load(), n)) // it only grows while the gate is closed
						<-gate
						now.Add(-1)
					}
					return nil
				})
				done := make(chan error)
				go func() {
					done <- Copy(t.Context(), end(t, source, "/s"), end(t, target, "/t"), Options{Recursive: true})
				}()
				synctest.Wait() // until nothing moves any more
				if n := int(now.Load()); n != test.want {
					t.Errorf("%d files under way, want %d", n, test.want)
				}
				close(gate)
				if err := <-done; err != nil {
					t.Error(err)
				}
				if n := int(most.Load()); n > test.want {
					t.Errorf("%d files under way at some time", n)
				}
				if n := len(tree(t, target, "/t")) - 1; n != test.files {
					t.Errorf("%d files, want %d", n, test.files)
				}
			})
		})
	}
}

// TestCancel: a copy that is given up returns at once, and leaves whole files and nothing else.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := make(map[string]string)
		for i := range 800 {
			content[fmt.Sprintf("/s/%d/%d", i/50, i)] = strings.Repeat("x", 70_000) // two chunks
		}
		source, target := posix(content), posix(nil)
		stopped := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		var written atomic.Int32
		target.Hook(func(ctx context.Context, call fake.Call) error {
			if call.Op != "write" || written.Add(1) <= 100 {
				return nil
			}
			cancel(stopped)
			<-ctx.Done() // it hangs, as a network can
			return context.Cause(ctx)
		})
		began := time.Now()
		var progress Progress
		err := Copy(ctx, end(t, source, "/s"), end(t, target, "/t"), Options{Recursive: true, Progress: &progress})
		if !errors.Is(err, stopped) || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		target.Hook(nil)
		files := int64(0)
		for _, line := range tree(t, target, "/t") {
			if _, size, file := strings.Cut(line, "="); file {
				files++
				if size != "70000 bytes" {
					t.Errorf("a part of a file: %s", line)
				}
			}
		}
		if done, size := progress.Done(); done != files || size != files*70_000 || files == 0 {
			t.Errorf("%d files and %d bytes counted, %d files there", done, size, files)
		}
	})
}

// TestProgressOfWhatGrows: a file that is longer than it was when it was found is all there in the count.
func TestProgressOfWhatGrows(t *testing.T) {
	source, target := posix(map[string]string{"/s/log": "one"}), posix(nil)
	source.Hook(func(ctx context.Context, call fake.Call) error {
		if call.Op != "read" {
			return nil
		}
		source.Hook(nil)
		_, err := env.WriteFile(ctx, source, call.Path, []byte("one two"), env.WriteOptions{})
		return err
	})
	var progress Progress
	if err := Copy(t.Context(), end(t, source, "/s"), end(t, target, "/t"), Options{Recursive: true, Progress: &progress}); err != nil {
		t.Fatal(err)
	}
	_, size := progress.Done()
	if _, of, _ := progress.Found(); size != 7 || of != 7 {
		t.Errorf("%d bytes of %d, want 7", size, of)
	}
}

func TestOne(t *testing.T) {
	for name, test := range map[string]struct {
		from, to  string
		recursive bool
		want      []string
		err       error
	}{
		"a file":                          {from: "/s/f", to: "/t/g", want: []string{"./", "d/", "g=1", "there=old"}},
		"a file that is there":            {from: "/s/f", to: "/t/there", want: []string{"./", "d/", "there=1"}},
		"a link is followed":              {from: "/s/l", to: "/t/g", want: []string{"./", "d/", "g=1", "there=old"}},
		"a link, recursively":             {from: "/s/l", to: "/t/g", recursive: true, want: []string{"./", "d/", "g→f", "there=old"}},
		"a link over a file":              {from: "/s/l", to: "/t/there", recursive: true, want: []string{"./", "d/", "there→f"}},
		"a link over a directory":         {from: "/s/l", to: "/t/d", recursive: true, err: env.ErrIsDirectory},
		"a file over a directory":         {from: "/s/f", to: "/t/d", err: env.ErrIsDirectory},
		"a directory over a file":         {from: "/s", to: "/t/there", recursive: true, err: env.ErrNotDirectory},
		"a directory, not recursively":    {from: "/s", to: "/t/g", err: env.ErrIsDirectory},
		"into a directory that is not":    {from: "/s/f", to: "/t/no/g", err: fs.ErrNotExist},
		"nothing":                         {from: "/s/no", to: "/t/g", err: fs.ErrNotExist},
		"a link that leads nowhere":       {from: "/s/x", to: "/t/g", err: fs.ErrNotExist},
		"such a link, recursively":        {from: "/s/x", to: "/t/g", recursive: true, want: []string{"./", "d/", "g→no", "there=old"}},
		"a directory through a link":      {from: "/s/up", to: "/t/g", err: env.ErrIsDirectory},
		"such a link itself, recursively": {from: "/s/up", to: "/t/g", recursive: true, want: []string{"./", "d/", "g→../s", "there=old"}},
	} {
		t.Run(name, func(t *testing.T) {
			source, target := posix(map[string]string{"/s/f": "1"}), posix(map[string]string{"/t/there": "old", "/t/d/": ""})
			symlink(t, source, "f", "/s/l")
			symlink(t, source, "no", "/s/x")
			symlink(t, source, "../s", "/s/up")
			var progress Progress
			err := Copy(t.Context(), end(t, source, test.from), end(t, target, test.to), Options{Recursive: test.recursive, Progress: &progress})
			if !errors.Is(err, test.err) || (err != nil) != (test.err != nil) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if test.err != nil {
				test.want = []string{"./", "d/", "there=old"}
			} else if files, _ := progress.Done(); files != 1 {
				t.Errorf("%d files counted", files)
			}
			want(t, "the target", tree(t, target, "/t"), test.want...)
		})
	}
}

func TestOneMachine(t *testing.T) {
	m := posix(map[string]string{"/s/d/f": "1"})
	symlink(t, m, "d/f", "/s/l")
	read := false
	m.Hook(func(_ context.Context, call fake.Call) error {
		read = read || call.Op == "read"
		return nil
	})
	var progress Progress
	if err := Copy(t.Context(), end(t, m, "/s"), end(t, m, "/t"), Options{Recursive: true, Progress: &progress}); err != nil {
		t.Fatal(err)
	}
	if err := Copy(t.Context(), end(t, m, "/s/l"), end(t, m, "/t/g"), Options{}); err != nil {
		t.Fatal(err)
	}
	if read {
		t.Error("content left the machine")
	}
	m.Hook(nil)
	want(t, "the copy", tree(t, m, "/t"), "./", "d/", "d/f=1", "g=1", "l→d/f")
	// What cannot be compared is copied as between two.
	if err := Copy(t.Context(), End{m.Within(uri(t, "/s")), uri(t, "/s")}, End{m.Within(uri(t, "/")), uri(t, "/u")}, Options{Recursive: true}); err != nil {
		t.Fatal(err)
	}
	want(t, "the copy", tree(t, m, "/u"), "./", "d/", "d/f=1", "l→d/f")
}

// TestIntoItself: two names of one machine do not have a tree copied into itself.
func TestIntoItself(t *testing.T) {
	for _, to := range []string{"/s", "/s/new", "/s/d", "/s/d/new"} {
		m := posix(map[string]string{"/s/d/f": "1", "/u/d/f": "1"})
		before := tree(t, m, "/")
		err := Copy(t.Context(), End{&other{Files: m}, uri(t, "/s")}, end(t, m, to), Options{Recursive: true})
		if !errors.Is(err, env.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "into itself") {
			t.Errorf("to %s: error %v", to, err)
		}
		want(t, "after "+to, tree(t, m, "/"), before...)
	}
	m := posix(map[string]string{"/s/d/f": "1"})
	if err := Copy(t.Context(), End{&other{Files: m}, uri(t, "/s")}, end(t, m, "/s-more"), Options{Recursive: true}); err != nil {
		t.Error(err)
	}
	want(t, "beside it", tree(t, m, "/s-more"), "./", "d/", "d/f=1")
}
