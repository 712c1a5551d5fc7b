package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

func TestCopyRefuses(t *testing.T) {
	for _, test := range []struct {
		name     string
		from, to string
		options  env.CopyOptions
		err      error
	}{
		{"into itself", "s", "s/b", env.CopyOptions{Recursive: true}, env.ErrInvalid},
		{"deep into itself", "s", "s/a/b", env.CopyOptions{Recursive: true}, env.ErrInvalid},
		{"onto itself", "s", "s", env.CopyOptions{Recursive: true}, env.ErrInvalid},
		{"by dots", "s", "s/../s/c", env.CopyOptions{Recursive: true}, env.ErrInvalid},
		{"by link", "s", "to-s/d", env.CopyOptions{Recursive: true}, env.ErrInvalid},
		{"by link below", "s", "to-a/d", env.CopyOptions{Recursive: true}, env.ErrInvalid},
		{"onto link to itself", "s", "to-s", env.CopyOptions{Recursive: true}, env.ErrInvalid},
		{"file onto itself", "f", "f", env.CopyOptions{}, env.ErrInvalid},
		{"file onto another name", "f", "hard", env.CopyOptions{}, env.ErrInvalid},
		{"file onto link to it", "f", "to-f", env.CopyOptions{}, env.ErrInvalid},
		{"link onto what it names", "to-f", "f", env.CopyOptions{}, env.ErrInvalid},
		{"link onto itself", "to-f", "to-f", env.CopyOptions{}, env.ErrInvalid},
		{"directory, not recursive", "s", "new", env.CopyOptions{}, env.ErrIsDirectory},
		{"directory onto file", "s", "f", env.CopyOptions{Recursive: true}, env.ErrNotDirectory},
		{"file onto directory", "f", "s", env.CopyOptions{}, env.ErrIsDirectory},
		{"link onto directory", "to-f", "s", env.CopyOptions{}, env.ErrIsDirectory},
		{"exclusive", "f", "g", env.CopyOptions{Exclusive: true}, fs.ErrExist},
		{"exclusive onto dangling", "f", "dangling", env.CopyOptions{Exclusive: true}, fs.ErrExist},
		{"exclusive directory", "s", "t", env.CopyOptions{Recursive: true, Exclusive: true}, fs.ErrExist},
		{"missing", "nothing", "new", env.CopyOptions{Recursive: true}, fs.ErrNotExist},
		{"to no directory", "f", "no/new", env.CopyOptions{}, fs.ErrNotExist},
		{"below a file", "f", "g/new", env.CopyOptions{}, env.ErrNotDirectory},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, confined := range []bool{false, true} {
				w := newWorld(t)
				w.put("s/a/x", "x")
				w.mkdir("t")
				w.put("f", "content")
				w.put("g", "other")
				w.ok(os.Link(w.native("f"), w.native("hard")))
				w.symlink("f", "to-f")
				w.symlink("s", "to-s")
				w.symlink("s/a", "to-a")
				w.symlink("nowhere", "dangling")
				f := w.Files
				if confined {
					f = w.Confined(w.uri("."))
				}
				w.unchanged(func() { is(t, f.Copy(t.Context(), w.uri(test.from), w.uri(test.to), test.options), test.err) })
			}
		})
	}
}

func TestCopy(t *testing.T) {
	when := time.Date(1968, 1, 2, 3, 4, 5, 678900, time.UTC)
	for _, confined := range []bool{false, true} {
		w := newWorld(t)
		w.put("s/a/x", "x")
		w.put("s/a/executable", strings.Repeat("long", 100<<10))
		w.put("s/empty", "")
		w.mkdir("s/none")
		w.symlink("../nowhere", "s/dangling")
		w.symlink(".", "s/self")
		w.ok(os.Chmod(w.native("s/a/executable"), 0o751))
		w.ok(os.Chtimes(w.native("s/a/x"), when, when))
		w.put("unrelated", "")
		f := w.Files
		if confined {
			f = w.Confined(w.uri("."))
		}
		is(t, f.Copy(t.Context(), w.uri("s"), w.uri("t"), env.CopyOptions{Recursive: true}), nil)
		from, to := &world{t, w.Files, w.native("s")}, &world{t, w.Files, w.native("t")}
		if a, b := from.tree(), to.tree(); a != b {
			t.Errorf("the copy is\n%s\nof\n%s", b, a)
		}
		if info, err := os.Stat(w.native("t/a/x")); err != nil || !info.ModTime().Equal(when) {
			t.Errorf("modified %v (%v), want %v", info.ModTime(), err, when)
		}
		// Again, onto what is there: merged, what is only there stays.
		w.put("t/a/x", "changed")
		w.put("t/own", "own")
		w.ok(os.Remove(w.native("t/self")))
		w.put("t/self", "no link")
		is(t, f.Copy(t.Context(), w.uri("s"), w.uri("t"), env.CopyOptions{Recursive: true}), nil)
		w.has("t/own", "own")
		w.ok(os.Remove(w.native("t/own")))
		if a, b := from.tree(), to.tree(); a != b {
			t.Errorf("the copy is\n%s\nof\n%s", b, a)
		}
		// Single ones.
		w.put("file", "old")
		w.symlink("file", "link")
		is(t, f.Copy(t.Context(), w.uri("s/a/x"), w.uri("link"), env.CopyOptions{}), nil)
		w.has("file", "x")
		is(t, f.Copy(t.Context(), w.uri("link"), w.uri("link2"), env.CopyOptions{Exclusive: true}), nil)
		if target, err := os.Readlink(w.native("link2")); err != nil || target != "file" {
			t.Errorf("the link's copy says %q (%v)", target, err)
		}
		is(t, f.Copy(t.Context(), w.uri("s/a/executable"), w.uri("new"), env.CopyOptions{Exclusive: true}), nil)
		w.has("new", strings.Repeat("long", 100<<10))
		w.noTemporaries()
	}
}

func TestCopyHoles(t *testing.T) {
	w := newWorld(t)
	const size = 64 << 20
	file, err := os.Create(w.native("s"))
	w.ok(err)
	for _, at := range []int64{1 << 20, 33 << 20} {
		_, err = file.WriteAt([]byte("data"), at)
		w.ok(err)
	}
	w.ok(file.Truncate(size))
	w.ok(file.Close())
	before, err := w.Stat(t.Context(), w.uri("s"), true)
	w.ok(err)
	if before.Allocated < 0 || before.Allocated >= size/2 {
		t.Skipf("no holes on this file system: %d of %d bytes allocated", before.Allocated, size)
	}
	is(t, w.Copy(t.Context(), w.uri("s"), w.uri("t"), env.CopyOptions{}), nil)
	after, err := w.Stat(t.Context(), w.uri("t"), true)
	w.ok(err)
	if after.Size != size || after.Allocated > before.Allocated+1<<20 {
		t.Errorf("the copy has %d bytes, %d of them allocated; want %d and %d", after.Size, after.Allocated, size, before.Allocated)
	}
	if w.content("s") != w.content("t") {
		t.Error("the copy is not the same")
	}
	got, err := readAll(w.Files, t.Context(), w.uri("t"), env.ReadOptions{Holes: true})
	w.ok(err)
	if len(got) > 1<<20 || strings.Count(got, "data") != 2 || !strings.HasPrefix(got, "[") || !strings.HasSuffix(got, "]") {
		t.Errorf("read with holes: %d bytes, %.40q … %q", len(got), got, got[max(0, len(got)-20):])
	}
	// A window within a hole, and one over its end.
	for _, test := range []struct {
		offset, length int64
		want           string
	}{{5 << 20, 1000, "[1000]"}, {33<<20 + 2, 2, "ta"}, {size - 10, 100, "[10]"}} {
		got, err := readAll(w.Files, t.Context(), w.uri("t"), env.ReadOptions{Holes: true, Offset: test.offset, Length: test.length})
		if err != nil || got != test.want {
			t.Errorf("%d from %d: %.40q (%v), want %q", test.length, test.offset, got, err, test.want)
		}
	}
}

func TestCopyCanceled(t *testing.T) {
	w := newWorld(t)
	w.put("s/a", "a")
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the reason")
	c := copier{ctx: ctx, from: w.uri("s"), options: env.CopyOptions{Recursive: true}}
	source, err := w.find(w.uri("s"), w.native("s"), hold)
	w.ok(err)
	defer source.close()
	target, err := w.find(w.uri("t"), w.native("t"), hold)
	w.ok(err)
	defer target.close()
	cancel(reason)
	is(t, c.directory(source, target, nil), reason)
	if names, err := os.ReadDir(w.native("t")); err != nil || len(names) != 0 {
		t.Errorf("copied %v (%v)", names, err)
	}
}

// A link cycle and a link to the root are told, not followed.
func TestCycles(t *testing.T) {
	w := newWorld(t)
	w.mkdir("d")
	w.symlink(".", "d/self")
	w.symlink(string(filepath.Separator), "d/root")
	w.symlink("..", "d/up")
	w.put("d/file", "x")
	is(t, w.Copy(t.Context(), w.uri("d"), w.uri("t"), env.CopyOptions{Recursive: true}), nil)
	entries := 0
	for _, err := range w.List(t.Context(), w.uri("t")) {
		w.ok(err)
		entries++
	}
	if entries != 4 {
		t.Errorf("%d entries were copied, want 4", entries)
	}
	is(t, w.Remove(t.Context(), w.uri("d"), env.RemoveOptions{Recursive: true}), nil)
	w.has("t/file", "x")
}

// Confined, links that stay work and those that lead out do not, whatever is asked.
func TestConfined(t *testing.T) {
	w := newWorld(t)
	w.put("root/in/file", "inside")
	w.put("out/canary", "outside")
	w.mkdir("rooted")
	w.symlink("in", "root/stays")
	w.symlink("in/../in/./file", "root/file")
	w.symlink(w.native("root/in"), "root/absolute")
	w.symlink(w.native("root")+"ed", "root/alike")
	w.symlink("../out", "root/leaves")
	w.symlink("../../root/in", "root/in/returns")
	w.symlink(w.native("out/canary"), "root/canary")
	w.symlink("in", "root/x")
	f := w.Confined(w.uri("root"))
	allowed := []string{"root/in/file", "root/stays/file", "root/file", "root/x/file"}
	if convention == pathuri.Posix {
		allowed = append(allowed, "root/absolute/file")
	}
	for _, path := range allowed {
		got, err := readAll(f, t.Context(), w.uri(path), env.ReadOptions{})
		if err != nil || got != "inside" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
		if _, err := write(f, t.Context(), w.uri(path), "inside", env.WriteOptions{Unsynced: true}); err != nil {
			t.Errorf("writing %s: %v", path, err)
		}
		if got, err := f.Canonicalize(t.Context(), w.uri(path)); err != nil || got != w.uri("root/in/file") {
			t.Errorf("%s is %v, %v", path, got, err)
		}
	}
	w.unchanged(func() {
		for _, path := range []string{"out/canary", "root/leaves/canary", "root/canary", "root/in/returns/file", "root/alike/x", "rooted/x", "root/../out/canary"} {
			u := w.uri(path)
			mode := fs.FileMode(0o777)
			for call, do := range map[string]func() error{
				"stat":         func() error { _, err := f.Stat(t.Context(), u, true); return err },
				"canonicalize": func() error { _, err := f.Canonicalize(t.Context(), u); return err },
				"read":         func() error { _, err := f.Read(t.Context(), u, env.ReadOptions{}); return err },
				"replace":      func() error { _, err := write(f, t.Context(), u, "x", env.WriteOptions{}); return err },
				"append":       func() error { _, err := write(f, t.Context(), u, "x", env.WriteOptions{Mode: env.Append}); return err },
				"patch":        func() error { _, err := write(f, t.Context(), u, "x", env.WriteOptions{Mode: env.Patch}); return err },
				"list": func() error {
					for _, err := range f.List(t.Context(), u) {
						return err
					}
					return nil
				},
				"attributes": func() error { return f.SetAttributes(t.Context(), u, env.Attributes{Permissions: &mode}) },
				"copy to":    func() error { return f.Copy(t.Context(), w.uri("root/in/file"), u, env.CopyOptions{}) },
				"sync":       func() error { return f.Sync(t.Context(), u) },
			} {
				if err := do(); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%s of %s: %v, want %v", call, path, err, fs.ErrPermission)
				}
			}
			if path == "root/canary" {
				continue // the link itself is inside
			}
			for call, do := range map[string]func() error{
				"remove":    func() error { return f.Remove(t.Context(), u, env.RemoveOptions{Recursive: true}) },
				"rename":    func() error { return f.Rename(t.Context(), u, w.uri("root/new"), env.RenameOptions{}) },
				"rename to": func() error { return f.Rename(t.Context(), w.uri("root/in/file"), u, env.RenameOptions{}) },
				"copy":      func() error { return f.Copy(t.Context(), u, w.uri("root/new"), env.CopyOptions{Recursive: true}) },
				"link":      func() error { return f.Link(t.Context(), u, w.uri("root/new")) },
				"link to":   func() error { return f.Link(t.Context(), w.uri("root/in/file"), u) },
				"symlink":   func() error { return f.Symlink(t.Context(), "x", u) },
				"mkdir":     func() error { return f.Mkdir(t.Context(), u, env.MkdirOptions{Parents: true}) },
				"exclusive": func() error {
					_, err := write(f, t.Context(), u, "x", env.WriteOptions{Mode: env.Exclusive})
					return err
				},
				"read link":   func() error { _, err := f.ReadLink(t.Context(), u); return err },
				"with parent": func() error { _, err := write(f, t.Context(), u, "x", env.WriteOptions{Parents: true}); return err },
			} {
				if err := do(); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%s of %s: %v, want %v", call, path, err, fs.ErrPermission)
				}
			}
		}
		// Confined twice is confined to both.
		narrow := f.Confined(w.uri("root/in"))
		if got, err := readAll(narrow, t.Context(), w.uri("root/in/file"), env.ReadOptions{}); err != nil || got != "inside" {
			t.Errorf("confined twice: %q, %v", got, err)
		}
		for _, wrong := range []*Files{f.Confined(w.uri("out")), f.Confined(w.uri("root/leaves")), narrow} {
			for _, path := range []string{"out/canary", "root/leaves/canary", "root/file"} {
				_, err := wrong.Stat(t.Context(), w.uri(path), true)
				is(t, err, fs.ErrPermission)
			}
		}
	})
	w.mkdir("root/made")
	if _, err := write(w.Confined(w.uri("root/none")), t.Context(), w.uri("root/none/x"), "", env.WriteOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("confined to what is missing: %v", err)
	}
}
