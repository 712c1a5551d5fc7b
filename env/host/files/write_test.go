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

// noTemporaries fails if a temporary file was left.
func (w *world) noTemporaries() {
	w.Helper()
	w.ok(filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if strings.HasPrefix(d.Name(), ".waldo-") {
			w.Errorf("%s was left", path)
		}
		return err
	}))
}

func TestWrite(t *testing.T) {
	for _, test := range []struct {
		name    string
		path    string
		options env.WriteOptions
		content string
		target  string // where the content is looked for; the path
		want    string
		inPlace bool
		err     error
	}{
		{"new", "new", env.WriteOptions{}, "x", "", "x", false, nil},
		{"new, empty", "new", env.WriteOptions{}, "", "", "", false, nil},
		{"new, exclusive", "new", env.WriteOptions{Mode: env.Exclusive}, "x", "", "x", false, nil},
		{"replace", "file", env.WriteOptions{Mode: env.Replace}, "x", "", "x", false, nil},
		{"replace by nothing", "file", env.WriteOptions{}, "", "", "", false, nil},
		{"by link", "link", env.WriteOptions{}, "x", "file", "x", false, nil},
		{"by link to link", "link2", env.WriteOptions{}, "x", "file", "x", false, nil},
		{"by dangling link", "dangling", env.WriteOptions{}, "x", "dir/made", "x", false, nil},
		{"further name", "hard1", env.WriteOptions{}, "x", "hard2", "x", true, nil},
		{"further name, shorter and longer", "hard1", env.WriteOptions{}, strings.Repeat("y", 99), "hard2", strings.Repeat("y", 99), true, nil},
		{"exists, exclusive", "file", env.WriteOptions{Mode: env.Exclusive}, "x", "", "", false, fs.ErrExist},
		{"dangling, exclusive", "dangling", env.WriteOptions{Mode: env.Exclusive}, "x", "", "", false, fs.ErrExist},
		{"directory, exclusive", "dir", env.WriteOptions{Mode: env.Exclusive}, "x", "", "", false, fs.ErrExist},
		{"append", "file", env.WriteOptions{Mode: env.Append}, "x", "", "contentx", false, nil},
		{"append to new", "new", env.WriteOptions{Mode: env.Append}, "x", "", "x", false, nil},
		{"append by link", "link", env.WriteOptions{Mode: env.Append}, "x", "file", "contentx", false, nil},
		{"patch", "file", env.WriteOptions{Mode: env.Patch, Offset: 3}, "X", "", "conXent", false, nil},
		{"patch at the start", "file", env.WriteOptions{Mode: env.Patch}, "X", "", "Xontent", false, nil},
		{"patch behind the end", "file", env.WriteOptions{Mode: env.Patch, Offset: 9}, "X", "", "content\x00\x00X", false, nil},
		{"patch of nothing", "new", env.WriteOptions{Mode: env.Patch}, "X", "", "", false, fs.ErrNotExist},
		{"directory", "dir", env.WriteOptions{}, "x", "", "", false, env.ErrIsDirectory},
		{"root", ".", env.WriteOptions{}, "x", "", "", false, env.ErrIsDirectory},
		{"loop", "loop", env.WriteOptions{}, "x", "", "", false, env.ErrInvalid},
		{"no directory", "a/b", env.WriteOptions{}, "x", "", "", false, fs.ErrNotExist},
		{"parents", "a/b/c", env.WriteOptions{Parents: true}, "x", "", "x", false, nil},
		{"parents, exclusive", "a/b/c", env.WriteOptions{Mode: env.Exclusive, Parents: true}, "x", "", "x", false, nil},
		{"parents, append", "a/b/c", env.WriteOptions{Mode: env.Append, Parents: true}, "x", "", "x", false, nil},
		{"below file", "file/x", env.WriteOptions{Parents: true}, "x", "", "", false, env.ErrNotDirectory},
		{"bad mode", "file", env.WriteOptions{Mode: "fast"}, "x", "", "", false, env.ErrInvalid},
		{"bad offset", "file", env.WriteOptions{Offset: 1}, "x", "", "", false, env.ErrInvalid},
		{"negative offset", "file", env.WriteOptions{Mode: env.Patch, Offset: -1}, "x", "", "", false, env.ErrInvalid},
		{"long name", strings.Repeat("n", 300), env.WriteOptions{}, "x", "", "", false, env.ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, confined := range []bool{false, true} {
				w := newWorld(t)
				w.put("file", "content")
				w.put("hard1", "content")
				w.ok(os.Link(w.native("hard1"), w.native("hard2")))
				w.mkdir("dir")
				w.symlink("file", "link")
				w.symlink("dir/../link", "link2")
				w.symlink("dir/made", "dangling")
				w.symlink("loop", "loop")
				f := w.Files
				if confined {
					f = w.Confined(w.uri("."))
				}
				test.options.Unsynced = confined
				do := func() env.Written {
					written, err := write(f, t.Context(), w.uri(test.path), test.content, test.options)
					is(t, err, test.err)
					return written
				}
				if test.err != nil {
					w.unchanged(func() { do() })
					continue
				}
				written := do()
				if written.InPlace != test.inPlace || written.Info.Size != int64(len(test.want)) {
					t.Errorf("written %+v, want %d bytes, in place %v", written, len(test.want), test.inPlace)
				}
				if test.target == "" {
					test.target = test.path
				}
				w.has(test.target, test.want)
				info, err := f.Stat(t.Context(), w.uri(test.target), false)
				w.ok(err)
				if info.Version != written.Info.Version {
					t.Errorf("version %q, written %q", info.Version, written.Info.Version)
				}
				w.noTemporaries()
				for _, link := range []string{"link", "link2", "dangling"} {
					if info, err := os.Lstat(w.native(link)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
						t.Errorf("%s is no link any more: %v", link, err)
					}
				}
			}
		})
	}
}

// Before the commit nothing is to be seen, and without one nothing ever was.
func TestWriteGivenUp(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	for _, path := range []string{"file", "new"} {
		w.unchanged(func() {
			writer, err := w.Write(t.Context(), w.uri(path), env.WriteOptions{})
			w.ok(err)
			_, err = writer.Write([]byte("half of it"))
			w.ok(err)
			if writer.Taken() != 10 {
				t.Errorf("taken %d", writer.Taken())
			}
			if path == "file" {
				w.has("file", "content")
			}
			is(t, writer.Close(), nil)
			is(t, writer.Close(), nil)
			_, err = writer.Write([]byte("x"))
			is(t, err, fs.ErrClosed)
			_, err = writer.Commit()
			is(t, err, fs.ErrClosed)
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the reason")
	w.unchanged(func() {
		writer, err := w.Write(ctx, w.uri("file"), env.WriteOptions{})
		w.ok(err)
		_, err = writer.Write([]byte("half of it"))
		w.ok(err)
		cancel(reason)
		_, err = writer.Write([]byte("half of it"))
		is(t, err, reason)
		is(t, writer.Skip(1), reason)
		_, err = writer.Commit()
		is(t, err, reason)
		is(t, writer.Close(), nil)
	})
}

func TestExclusiveOnce(t *testing.T) {
	w := newWorld(t)
	one, err := w.Write(t.Context(), w.uri("new"), env.WriteOptions{Mode: env.Exclusive})
	w.ok(err)
	defer one.Close() //nolint:errcheck // a test
	two, err := w.Write(t.Context(), w.uri("new"), env.WriteOptions{Mode: env.Exclusive})
	w.ok(err)
	defer two.Close() //nolint:errcheck // a test
	_, err = one.Write([]byte("one"))
	w.ok(err)
	_, err = two.Write([]byte("two"))
	w.ok(err)
	_, err = one.Commit()
	is(t, err, nil)
	_, err = two.Commit()
	is(t, err, fs.ErrExist)
	w.ok(two.Close())
	w.has("new", "one")
	w.noTemporaries()
}

func TestSkip(t *testing.T) {
	const n = 1 << 20
	zeros := strings.Repeat("\x00", n)
	for _, test := range []struct {
		name    string
		path    string
		options env.WriteOptions
		do      func(t *testing.T, w env.FileWriter)
		want    string
	}{
		{"new", "new", env.WriteOptions{}, func(t *testing.T, w env.FileWriter) {
			is(t, w.Skip(n), nil)
			w.Write([]byte("x")) //nolint:errcheck // the content is looked at
			is(t, w.Skip(n), nil)
		}, zeros + "x" + zeros},
		{"hole alone", "new", env.WriteOptions{}, func(t *testing.T, w env.FileWriter) { is(t, w.Skip(n), nil) }, zeros},
		{"nothing", "new", env.WriteOptions{}, func(t *testing.T, w env.FileWriter) { is(t, w.Skip(0), nil) }, ""},
		{"in place", "hard", env.WriteOptions{}, func(t *testing.T, w env.FileWriter) { is(t, w.Skip(3), nil) }, "\x00\x00\x00"},
		{"in place, over and beyond", "hard", env.WriteOptions{}, func(t *testing.T, w env.FileWriter) {
			w.Write([]byte("x")) //nolint:errcheck // the content is looked at
			is(t, w.Skip(n-1), nil)
		}, "x" + zeros[1:]},
		{"patch", "file", env.WriteOptions{Mode: env.Patch, Offset: 1}, func(t *testing.T, w env.FileWriter) { is(t, w.Skip(2), nil) }, "c\x00\x00tent"},
		{"patch beyond", "file", env.WriteOptions{Mode: env.Patch, Offset: 7}, func(t *testing.T, w env.FileWriter) { is(t, w.Skip(n), nil) }, "content" + zeros},
		{"append", "file", env.WriteOptions{Mode: env.Append}, func(t *testing.T, w env.FileWriter) {
			is(t, w.Skip(n), nil)
			w.Write([]byte("x")) //nolint:errcheck // the content is looked at
		}, "content" + zeros + "x"},
		{"negative", "file", env.WriteOptions{Mode: env.Append}, func(t *testing.T, w env.FileWriter) { is(t, w.Skip(-1), env.ErrInvalid) }, "content"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.put("file", "content")
			w.put("hard", "content")
			w.ok(os.Link(w.native("hard"), w.native("hard2")))
			writer, err := w.Write(t.Context(), w.uri(test.path), test.options)
			w.ok(err)
			defer writer.Close() //nolint:errcheck // a test
			test.do(t, writer)
			written, err := writer.Commit()
			w.ok(err)
			w.has(test.path, test.want)
			if len(test.want) >= n && written.Info.Allocated >= n && convention == pathuri.Posix {
				t.Errorf("%d bytes were allocated for holes", written.Info.Allocated)
			}
		})
	}
}

func TestWriteAttributes(t *testing.T) {
	mode := fs.FileMode(0o604)
	when := time.Date(1969, 7, 20, 20, 17, 40, 500, time.UTC)
	for _, path := range []string{"file", "hard", "new"} {
		for _, m := range []env.WriteMode{env.Replace, env.Append, env.Patch, env.Exclusive} {
			if m == env.Exclusive != (path == "new") {
				continue
			}
			w := newWorld(t)
			w.put("file", "content")
			w.put("hard", "content")
			w.ok(os.Link(w.native("hard"), w.native("hard2")))
			written, err := write(w.Files, t.Context(), w.uri(path), "x", env.WriteOptions{Mode: m, Permissions: &mode, Modified: when})
			w.ok(err)
			info, err := os.Stat(w.native(path))
			w.ok(err)
			if !info.ModTime().Equal(when) || !written.Info.Modified.Equal(when) || convention == pathuri.Posix && info.Mode() != mode {
				t.Errorf("%s of %s: %v at %v, written %+v", m, path, info.Mode(), info.ModTime(), written)
			}
		}
	}
}
