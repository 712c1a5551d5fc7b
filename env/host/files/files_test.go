package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

// uri is a native path as a URI.
func uri(t testing.TB, native string) pathuri.URI {
	t.Helper()
	u, err := pathuri.FromNative(native, convention)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// world is a directory and files to work on it with.
type world struct {
	testing.TB
	*Files
	dir string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	before := openFiles()
	t.Cleanup(func() {
		if after := openFiles(); after > before {
			t.Errorf("%d descriptors are open, %d were before", after, before)
		}
	})
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, New(), dir}
}

// openFiles is how many descriptors this process has, where that can be told.
func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

func (w *world) native(name string) string { return filepath.Join(w.dir, filepath.FromSlash(name)) }

func (w *world) uri(name string) pathuri.URI {
	w.Helper()
	return uri(w, w.native(name))
}

func (w *world) put(name, content string) {
	w.Helper()
	w.ok(os.MkdirAll(filepath.Dir(w.native(name)), 0o755))
	w.ok(os.WriteFile(w.native(name), []byte(content), 0o644))
}

func (w *world) mkdir(name string) {
	w.Helper()
	w.ok(os.MkdirAll(w.native(name), 0o755))
}

func (w *world) symlink(target, name string) {
	w.Helper()
	if err := os.Symlink(target, w.native(name)); err != nil {
		w.Skipf("no symbolic links here: %v", err)
	}
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) content(name string) string {
	w.Helper()
	b, err := os.ReadFile(w.native(name))
	w.ok(err)
	return string(b)
}

// has fails unless the file has this content.
func (w *world) has(name, content string) {
	w.Helper()
	if got := w.content(name); got != content {
		w.Errorf("%s has %.80q, want %.80q", name, got, content)
	}
}

// tree describes all that is in the directory.
func (w *world) tree() string {
	w.Helper()
	var b strings.Builder
	w.ok(filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%q %v", path[len(w.dir):], info.Mode())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(content))
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, _ := os.Readlink(path)
			fmt.Fprintf(&b, " %q", target)
		}
		b.WriteByte('\n')
		return nil
	}))
	return b.String()
}

// unchanged fails unless do leaves the directory as it was.
func (w *world) unchanged(do func()) {
	w.Helper()
	before := w.tree()
	do()
	if after := w.tree(); after != before {
		w.Errorf("the tree has changed:\n%s\nbefore:\n%s", after, before)
	}
}

// is fails unless err is want; nil wants none.
func is(t testing.TB, err, want error) {
	t.Helper()
	if want == nil && err != nil || !errors.Is(err, want) {
		t.Errorf("error is %v, want %v", err, want)
	}
	if want != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("error has several lines: %v", err)
	}
}

// readAll reads a file as a consumer does; holes are written as "[n]".
func readAll(f *Files, ctx context.Context, path pathuri.URI, o env.ReadOptions) (string, error) {
	r, err := f.Read(ctx, path, o)
	if err != nil {
		return "", err
	}
	defer r.Close() //nolint:errcheck // a test
	var b bytes.Buffer
	next := o.Offset
	for chunk, err := range r.Chunks() {
		if err != nil {
			return b.String(), err
		}
		if chunk.Offset != next {
			return b.String(), fmt.Errorf("chunk at %d, want %d", chunk.Offset, next)
		}
		next += int64(len(chunk.Data)) + chunk.Hole
		if chunk.Hole > 0 {
			fmt.Fprintf(&b, "[%d]", chunk.Hole)
			continue
		}
		frame := make([]byte, wire.HeaderSize)
		wire.PutDataHeader(frame, 0, len(chunk.Data))
		if !bytes.Equal(chunk.Framed, append(frame, chunk.Data...)) {
			return b.String(), errors.New("the frame is not header and data")
		}
		b.Write(chunk.Data)
	}
	return b.String(), r.Close()
}

// write writes a file in one go.
func write(f *Files, ctx context.Context, path pathuri.URI, content string, o env.WriteOptions) (env.Written, error) {
	w, err := f.Write(ctx, path, o)
	if err != nil {
		return env.Written{}, err
	}
	defer w.Close() //nolint:errcheck // a test
	if _, err := w.Write([]byte(content)); err != nil {
		return env.Written{}, err
	}
	return w.Commit()
}

func TestBadPath(t *testing.T) {
	foreign := "file:///C:/x"
	if convention == pathuri.Windows {
		foreign = "file:///x"
	}
	other, err := pathuri.Parse(foreign)
	if err != nil {
		t.Fatal(err)
	}
	nul, err := pathuri.Parse("file:///%00/bad/path/L2EAYg")
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the reason")
	cancel(reason)
	good := newWorld(t).uri("x")
	for _, test := range []struct {
		name string
		ctx  context.Context
		path pathuri.URI
		want error
	}{
		{"none", t.Context(), pathuri.URI{}, env.ErrInvalid},
		{"foreign", t.Context(), other, pathuri.ErrConvention},
		{"NUL", t.Context(), nul, nil},
		{"context over", ended, good, reason},
	} {
		f := New()
		calls := map[string]func() error{
			"stat":         func() error { _, err := f.Stat(test.ctx, test.path, true); return err },
			"read link":    func() error { _, err := f.ReadLink(test.ctx, test.path); return err },
			"canonicalize": func() error { _, err := f.Canonicalize(test.ctx, test.path); return err },
			"list": func() error {
				for _, err := range f.List(test.ctx, test.path) {
					return err
				}
				return nil
			},
			"read":           func() error { _, err := f.Read(test.ctx, test.path, env.ReadOptions{}); return err },
			"write":          func() error { _, err := f.Write(test.ctx, test.path, env.WriteOptions{}); return err },
			"mkdir":          func() error { return f.Mkdir(test.ctx, test.path, env.MkdirOptions{Parents: true}) },
			"remove":         func() error { return f.Remove(test.ctx, test.path, env.RemoveOptions{Force: true}) },
			"rename from":    func() error { return f.Rename(test.ctx, test.path, good, env.RenameOptions{}) },
			"rename to":      func() error { return f.Rename(test.ctx, good, test.path, env.RenameOptions{}) },
			"copy from":      func() error { return f.Copy(test.ctx, test.path, good, env.CopyOptions{}) },
			"copy to":        func() error { return f.Copy(test.ctx, good, test.path, env.CopyOptions{}) },
			"symlink":        func() error { return f.Symlink(test.ctx, "x", test.path) },
			"link":           func() error { return f.Link(test.ctx, test.path, good) },
			"set attributes": func() error { return f.SetAttributes(test.ctx, test.path, env.Attributes{}) },
			"sync":           func() error { return f.Sync(test.ctx, test.path) },
		}
		for call, do := range calls {
			err := do()
			if err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%s of %s: %v, want %v", call, test.name, err, test.want)
			}
		}
	}
}

func TestStat(t *testing.T) {
	w := newWorld(t)
	w.put("file", "12345")
	w.put("empty", "")
	w.mkdir("dir")
	w.symlink("file", "link")
	w.symlink("nothing", "dangling")
	w.symlink("loop", "loop")
	old := time.Date(1969, 1, 1, 0, 0, 0, 123456700, time.UTC)
	w.put("old", "x")
	w.ok(w.SetAttributes(t.Context(), w.uri("old"), env.Attributes{Modified: &old}))
	sparse, err := os.Create(w.native("sparse"))
	w.ok(err)
	truncated := sparse.Truncate(1 << 40)
	w.ok(sparse.Close())
	for _, test := range []struct {
		name   string
		follow bool
		kind   fs.FileMode
		size   int64
		err    error
	}{
		{"file", false, 0, 5, nil},
		{"file", true, 0, 5, nil},
		{"empty", true, 0, 0, nil},
		{"dir", true, fs.ModeDir, -1, nil},
		{"link", true, 0, 5, nil},
		{"link", false, fs.ModeSymlink, -1, nil},
		{"dangling", false, fs.ModeSymlink, -1, nil},
		{"dangling", true, 0, 0, fs.ErrNotExist},
		{"loop", false, fs.ModeSymlink, -1, nil},
		{"loop", true, 0, 0, env.ErrInvalid},
		{"nothing", true, 0, 0, fs.ErrNotExist},
		{"file/x", true, 0, 0, env.ErrNotDirectory},
		{strings.Repeat("n", 300), true, 0, 0, env.ErrInvalid},
		{"sparse", true, 0, 1 << 40, nil},
	} {
		if test.name == "sparse" && truncated != nil {
			continue // said below
		}
		for _, f := range []*Files{w.Files, w.Confined(w.uri("."))} {
			info, err := f.Stat(t.Context(), w.uri(test.name), test.follow)
			is(t, err, test.err)
			if err != nil {
				continue
			}
			if info.Mode.Type() != test.kind || test.size >= 0 && info.Size != test.size {
				t.Errorf("%s (follow %v) is %v of %d bytes, want %v of %d", test.name, test.follow, info.Mode, info.Size, test.kind, test.size)
			}
			if info.Version == "" {
				t.Errorf("%s has no version", test.name)
			}
		}
	}
	info, err := w.Stat(t.Context(), w.uri("old"), true)
	w.ok(err)
	if !info.Modified.Equal(old) {
		t.Errorf("modified %v, want %v", info.Modified, old)
	}
	if truncated != nil {
		t.Skipf("no file of 1 TiB here: %v", truncated)
	}
	if info, err := w.Stat(t.Context(), w.uri("sparse"), true); err != nil || info.Allocated > 1<<20 {
		t.Errorf("a hole takes %d bytes (%v)", info.Allocated, err)
	}
}

func TestVersion(t *testing.T) {
	w := newWorld(t)
	w.put("f", "one")
	version := func() string {
		info, err := w.Stat(t.Context(), w.uri("f"), true)
		w.ok(err)
		return info.Version
	}
	first := version()
	if again := version(); again != first {
		t.Errorf("version %q, then %q of the same", first, again)
	}
	if _, err := readAll(w.Files, t.Context(), w.uri("f"), env.ReadOptions{Version: first}); err != nil {
		t.Error(err)
	}
	written, err := write(w.Files, t.Context(), w.uri("f"), "two", env.WriteOptions{})
	w.ok(err)
	second := version()
	if second == first || second != written.Info.Version {
		t.Errorf("version %q, before %q, written %q", second, first, written.Info.Version)
	}
	_, err = readAll(w.Files, t.Context(), w.uri("f"), env.ReadOptions{Version: first})
	is(t, err, env.ErrChanged)
}

func TestRead(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("0123456789abcdef", 40<<10) // 640 KiB
	w.put("short", "hello")
	w.put("empty", "")
	w.put("long", long)
	w.put("edge", long[:smallChunk])
	w.mkdir("dir")
	w.symlink("short", "link")
	for _, test := range []struct {
		name           string
		offset, length int64
		want           string
		err            error
	}{
		{"short", 0, 0, "hello", nil},
		{"link", 0, 0, "hello", nil},
		{"short", 1, 3, "ell", nil},
		{"short", 4, 100, "o", nil},
		{"short", 5, 0, "", nil},
		{"short", 1 << 40, 0, "", nil},
		{"empty", 0, 0, "", nil},
		{"long", 0, 0, long, nil},
		{"long", 1, int64(len(long)), long[1:], nil},
		{"long", smallChunk, 3, long[smallChunk : smallChunk+3], nil},
		{"edge", 0, 0, long[:smallChunk], nil},
		{"short", -1, 0, "", env.ErrInvalid},
		{"short", 0, -1, "", env.ErrInvalid},
		{"dir", 0, 0, "", env.ErrIsDirectory},
		{"nothing", 0, 0, "", fs.ErrNotExist},
		{"short/x", 0, 0, "", env.ErrNotDirectory},
	} {
		for _, f := range []*Files{w.Files, w.Confined(w.uri("."))} {
			for _, holes := range []bool{false, true} {
				got, err := readAll(f, t.Context(), w.uri(test.name), env.ReadOptions{Offset: test.offset, Length: test.length, Holes: holes})
				is(t, err, test.err)
				if got != test.want {
					t.Errorf("%s from %d, %d bytes: %.40q (%d), want %.40q (%d)", test.name, test.offset, test.length, got, len(got), test.want, len(test.want))
				}
			}
		}
	}
}

// A small file does not cost the memory of a long one.
func TestReadSmall(t *testing.T) {
	w := newWorld(t)
	w.put("small", "content")
	var before, after runtime.MemStats
	const rounds = 200
	runtime.ReadMemStats(&before)
	for range rounds {
		if _, err := readAll(w.Files, t.Context(), w.uri("small"), env.ReadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / rounds; each > 64<<10 {
		t.Errorf("%d bytes were allocated for each", each)
	}
}

func TestReadGoesOn(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("0123456789abcdef", 40<<10)
	w.put("long", long)
	r, err := w.Read(t.Context(), w.uri("long"), env.ReadOptions{})
	w.ok(err)
	defer r.Close() //nolint:errcheck // a test
	var got []byte
	for range 100 {
		for chunk, err := range r.Chunks() {
			w.ok(err)
			got = append(got, chunk.Data...)
			break
		}
	}
	if string(got) != long {
		t.Errorf("%d bytes in pieces, want %d", len(got), len(long))
	}
	// It grows: what comes behind the end is still read.
	file, err := os.OpenFile(w.native("long"), os.O_APPEND|os.O_WRONLY, 0)
	w.ok(err)
	_, err = file.WriteString("more")
	w.ok(err)
	w.ok(file.Close())
	for chunk, err := range r.Chunks() {
		w.ok(err)
		if string(chunk.Data) != "more" {
			t.Errorf("read %q of what was added", chunk.Data)
		}
	}
	w.ok(r.Close())
	for _, err := range r.Chunks() {
		is(t, err, fs.ErrClosed)
	}
}

func TestReadCanceled(t *testing.T) {
	w := newWorld(t)
	w.put("long", strings.Repeat("x", 1<<20))
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the reason")
	r, err := w.Read(ctx, w.uri("long"), env.ReadOptions{})
	w.ok(err)
	defer r.Close() //nolint:errcheck // a test
	steps := 0
	for _, err := range r.Chunks() {
		if steps++; steps == 1 {
			w.ok(err)
			cancel(reason)
			continue
		}
		is(t, err, reason)
	}
	cancel(nil)
	if steps != 2 {
		t.Errorf("%d steps, want 2", steps)
	}
}

func TestList(t *testing.T) {
	w := newWorld(t)
	w.put("d/file", "abc")
	w.mkdir("d/sub")
	w.symlink("nothing", "d/dangling")
	w.symlink("loop", "d/loop")
	w.symlink(".", "d/self")
	w.symlink("d", "to-d")
	for _, name := range []string{"d", "to-d"} {
		for _, f := range []*Files{w.Files, w.Confined(w.uri("."))} {
			var got []string
			for entry, err := range f.List(t.Context(), w.uri(name)) {
				w.ok(err)
				w.ok(entry.Err)
				base, _ := entry.Path.Base()
				got = append(got, fmt.Sprint(base, " ", entry.Info.Mode.Type(), " ", entry.Target))
			}
			slices.Sort(got)
			want := []string{"dangling L--------- nothing", "file ---------- ", "loop L--------- loop", "self L--------- .", "sub d--------- "}
			if !slices.Equal(got, want) {
				t.Errorf("%s holds %q, want %q", name, got, want)
			}
		}
	}
	for _, test := range []struct {
		name string
		err  error
	}{{"d/file", env.ErrNotDirectory}, {"nothing", fs.ErrNotExist}, {"d/loop", env.ErrInvalid}} {
		steps := 0
		for _, err := range w.List(t.Context(), w.uri(test.name)) {
			steps++
			is(t, err, test.err)
		}
		if steps != 1 {
			t.Errorf("listing %s: %d steps, want 1", test.name, steps)
		}
	}
	for range w.List(t.Context(), w.uri("d")) {
		break // and nothing stays open
	}
}

// What comes and goes while a directory is listed is left out, never an error.
func TestListWhileChanging(t *testing.T) {
	w := newWorld(t)
	w.put("ok", "")
	w.symlink("x", "dangling")
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := w.native(fmt.Sprint("t", i%500))
			if os.WriteFile(name, nil, 0o600) == nil {
				os.Remove(name) //nolint:errcheck // a test
			}
		}
	}()
	for range 50 {
		found := 0
		for entry, err := range w.List(t.Context(), w.uri(".")) {
			w.ok(err)
			w.ok(entry.Err)
			if base, _ := entry.Path.Base(); base == "ok" || base == "dangling" {
				found++
			}
		}
		if found != 2 {
			t.Errorf("%d of the 2 that stay were listed", found)
		}
	}
	close(stop)
	<-done
}

func TestMkdir(t *testing.T) {
	mode := func(m fs.FileMode) *fs.FileMode { return &m }
	for _, test := range []struct {
		name    string
		path    string
		options env.MkdirOptions
		err     error
	}{
		{"new", "new", env.MkdirOptions{}, nil},
		{"mode", "new", env.MkdirOptions{Permissions: mode(0o777)}, nil},
		{"exists", "dir", env.MkdirOptions{}, fs.ErrExist},
		{"exists, parents", "dir", env.MkdirOptions{Parents: true}, nil},
		{"link to one, parents", "to-dir", env.MkdirOptions{Parents: true}, nil},
		{"file", "file", env.MkdirOptions{}, fs.ErrExist},
		{"file, parents", "file", env.MkdirOptions{Parents: true}, fs.ErrExist},
		{"dangling, parents", "dangling", env.MkdirOptions{Parents: true}, fs.ErrExist},
		{"below file", "file/x", env.MkdirOptions{}, env.ErrNotDirectory},
		{"below file, parents", "file/x", env.MkdirOptions{Parents: true}, env.ErrNotDirectory},
		{"no parent", "a/b/c", env.MkdirOptions{}, fs.ErrNotExist},
		{"parents", "a/b/c", env.MkdirOptions{Parents: true}, nil},
		{"parents by link", "to-dir/b/c", env.MkdirOptions{Parents: true}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, confined := range []bool{false, true} {
				w := newWorld(t)
				w.mkdir("dir")
				w.put("file", "")
				w.symlink("dir", "to-dir")
				w.symlink("nothing", "dangling")
				f := w.Files
				if confined {
					f = w.Confined(w.uri("."))
				}
				is(t, f.Mkdir(t.Context(), w.uri(test.path), test.options), test.err)
				if test.err != nil {
					continue
				}
				info, err := os.Stat(w.native(test.path))
				if err != nil || !info.IsDir() {
					t.Errorf("no directory was made: %v", err)
				}
				if want := test.options.Permissions; err == nil && want != nil && convention == pathuri.Posix && info.Mode().Perm() != *want {
					t.Errorf("mode %v, want %v", info.Mode().Perm(), *want)
				}
			}
		})
	}
}

func TestRemove(t *testing.T) {
	for _, test := range []struct {
		name    string
		path    string
		options env.RemoveOptions
		err     error
	}{
		{"file", "file", env.RemoveOptions{}, nil},
		{"link", "link", env.RemoveOptions{}, nil},
		{"dangling", "dangling", env.RemoveOptions{}, nil},
		{"link to directory", "to-full", env.RemoveOptions{Recursive: true}, nil},
		{"empty", "empty", env.RemoveOptions{}, nil},
		{"full", "full", env.RemoveOptions{}, env.ErrNotEmpty},
		{"full, recursive", "full", env.RemoveOptions{Recursive: true}, nil},
		{"missing", "nothing", env.RemoveOptions{}, fs.ErrNotExist},
		{"missing, recursive", "nothing", env.RemoveOptions{Recursive: true}, fs.ErrNotExist},
		{"missing, force", "nothing/at/all", env.RemoveOptions{Force: true}, nil},
		{"full, force", "full", env.RemoveOptions{Force: true}, env.ErrNotEmpty},
		{"below file", "file/x", env.RemoveOptions{Force: true}, env.ErrNotDirectory},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, confined := range []bool{false, true} {
				w := newWorld(t)
				w.put("file", "")
				w.mkdir("empty")
				w.mkdir("kept")
				w.put("kept/canary", "alive")
				w.put("full/a/b/c", "")
				w.mkdir("full/many")
				for i := 0; test.options.Recursive && i < 600; i++ {
					w.ok(os.WriteFile(w.native(fmt.Sprintf("full/many/%d", i)), nil, 0o644))
				}
				w.symlink("file", "link")
				w.symlink("nothing", "dangling")
				w.symlink("full", "to-full")
				w.symlink("../../kept", "full/a/out")
				f := w.Files
				if confined {
					f = w.Confined(w.uri("."))
				}
				do := func() { is(t, f.Remove(t.Context(), w.uri(test.path), test.options), test.err) }
				if test.err != nil || test.path == "nothing/at/all" {
					w.unchanged(do)
				} else {
					do()
					if _, err := os.Lstat(w.native(test.path)); !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("it is still there: %v", err)
					}
				}
				w.has("kept/canary", "alive")
			}
		})
	}
}

func TestRemoveRefuses(t *testing.T) {
	w := newWorld(t)
	w.put("root/file", "")
	w.put("beside", "")
	confined := w.Confined(w.uri("root"))
	w.unchanged(func() {
		for _, o := range []env.RemoveOptions{{}, {Recursive: true}, {Recursive: true, Force: true}} {
			is(t, confined.Remove(t.Context(), w.uri("root"), o), fs.ErrPermission)
			is(t, confined.Remove(t.Context(), w.uri("beside"), o), fs.ErrPermission)
			is(t, confined.Remove(t.Context(), w.uri("."), o), fs.ErrPermission)
		}
	})
	top, ok := w.uri("."), true
	for next := top; ok; next, ok = top.Parent() {
		top = next
	}
	// Not recursive: were it not refused, nothing would be lost either.
	is(t, w.Remove(t.Context(), top, env.RemoveOptions{}), fs.ErrPermission)
}

func TestRemoveCanceled(t *testing.T) {
	w := newWorld(t)
	w.put("d/f", "")
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("the reason")
	r := remover{ctx: ctx, top: w.uri("d")}
	cancel(reason)
	p, err := w.find(w.uri("d"), w.native("d"), hold)
	w.ok(err)
	defer p.close()
	w.unchanged(func() { is(t, r.remove(p, true), reason) })
}

func TestRename(t *testing.T) {
	for _, test := range []struct {
		name      string
		from, to  string
		exclusive bool
		err       error
	}{
		{"new", "file", "new", false, nil},
		{"new, exclusive", "file", "new", true, nil},
		{"over file", "file", "other", false, nil},
		{"over file, exclusive", "file", "other", true, fs.ErrExist},
		{"over dangling link, exclusive", "file", "dangling", true, fs.ErrExist},
		{"over link", "file", "link", false, nil},
		{"link", "link", "new", false, nil},
		{"link, exclusive", "link", "new", true, nil},
		{"directory", "dir", "new", false, nil},
		{"directory, exclusive", "dir", "new", true, nil},
		{"directory over empty, exclusive", "dir", "empty", true, fs.ErrExist},
		{"directory into itself", "dir", "dir/sub", false, env.ErrInvalid},
		{"file over directory", "file", "dir", false, env.ErrIsDirectory},
		{"directory over file", "dir", "file", false, env.ErrNotDirectory},
		{"directory over full", "dir", "full", false, env.ErrNotEmpty},
		{"missing", "nothing", "new", false, fs.ErrNotExist},
		{"missing, exclusive", "nothing", "new", true, fs.ErrNotExist},
		{"no such directory", "file", "no/new", false, fs.ErrNotExist},
		{"root", ".", "new", false, env.ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, confined := range []bool{false, true} {
				if test.from == "." && !confined {
					continue
				}
				w := newWorld(t)
				w.put("file", "content")
				w.put("other", "other")
				w.put("dir/f", "")
				w.put("full/f", "")
				w.mkdir("empty")
				w.symlink("other", "link")
				w.symlink("nothing", "dangling")
				f := w.Files
				if confined {
					f = w.Confined(w.uri("."))
				}
				do := func() {
					is(t, f.Rename(t.Context(), w.uri(test.from), w.uri(test.to), env.RenameOptions{Exclusive: test.exclusive}), test.err)
				}
				if test.err != nil {
					if convention == pathuri.Windows && (test.name == "file over directory" || test.name == "directory over file") {
						continue // another error there
					}
					w.unchanged(do)
					continue
				}
				before, err := os.Lstat(w.native(test.from))
				w.ok(err)
				do()
				after, err := os.Lstat(w.native(test.to))
				w.ok(err)
				if !os.SameFile(before, after) {
					t.Error("another file is there now")
				}
				if _, err := os.Lstat(w.native(test.from)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the old name is still there: %v", err)
				}
			}
		})
	}
}

// An exclusive rename by two steps must be as careful as one by the kernel.
func TestRenameByLink(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	w.put("other", "other")
	w.put("dir/f", "")
	w.mkdir("empty")
	for _, test := range []struct {
		from, to string
		err      error
	}{
		{"file", "other", fs.ErrExist}, {"dir", "other", fs.ErrExist}, {"dir", "empty", fs.ErrExist},
		{"file", "new", nil}, {"dir", "new-dir", nil}, {"nothing", "x", fs.ErrNotExist}, {"new-dir", "new-dir/x", env.ErrInvalid},
	} {
		err := renameByLink(place{name: w.native(test.from)}, place{name: w.native(test.to)})
		if err != nil {
			err = contractual(bare(err))
		}
		is(t, err, test.err)
	}
	w.has("new", "content")
	w.has("new-dir/f", "")
	w.has("other", "other")
}

func TestLinks(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	w.mkdir("dir")
	for _, f := range []*Files{w.Files, w.Confined(w.uri("."))} {
		for _, target := range []string{"file", "no/where", "../.././/x", "/etc"} {
			is(t, f.Symlink(t.Context(), target, w.uri("s")), nil)
			got, err := f.ReadLink(t.Context(), w.uri("s"))
			if convention == pathuri.Posix && (err != nil || got != target) {
				t.Errorf("target %q (%v), want %q", got, err, target)
			}
			is(t, f.Symlink(t.Context(), target, w.uri("s")), fs.ErrExist)
			is(t, f.Link(t.Context(), w.uri("s"), w.uri("s2")), nil) // a link is not followed
			if info, err := os.Lstat(w.native("s2")); err != nil || info.Mode()&fs.ModeSymlink == 0 {
				t.Errorf("the name of a link is %v (%v)", info, err)
			}
			w.ok(f.Remove(t.Context(), w.uri("s"), env.RemoveOptions{}))
			w.ok(f.Remove(t.Context(), w.uri("s2"), env.RemoveOptions{}))
		}
		is(t, f.Symlink(t.Context(), "", w.uri("s")), env.ErrInvalid)
		is(t, f.Symlink(t.Context(), "a\x00b", w.uri("s")), env.ErrInvalid)
		_, err := f.ReadLink(t.Context(), w.uri("file"))
		is(t, err, env.ErrInvalid)
		_, err = f.ReadLink(t.Context(), w.uri("dir"))
		is(t, err, env.ErrInvalid)
		_, err = f.ReadLink(t.Context(), w.uri("nothing"))
		is(t, err, fs.ErrNotExist)
		is(t, f.Link(t.Context(), w.uri("file"), w.uri("second")), nil)
		is(t, f.Link(t.Context(), w.uri("file"), w.uri("second")), fs.ErrExist)
		is(t, f.Link(t.Context(), w.uri("nothing"), w.uri("third")), fs.ErrNotExist)
		if info, err := f.Stat(t.Context(), w.uri("second"), false); err != nil || convention == pathuri.Posix && info.Links != 2 {
			t.Errorf("second name: %v, %v", info, err)
		}
		w.ok(f.Remove(t.Context(), w.uri("second"), env.RemoveOptions{}))
	}
}

func TestCanonicalize(t *testing.T) {
	w := newWorld(t)
	w.put("d/e/file", "")
	w.symlink("d/e", "short")
	w.symlink("../d/./e/../e", "d/dots")
	w.symlink("d", "to-d")
	w.symlink("loop", "loop")
	for _, test := range []struct {
		path, want string
		err        error
	}{
		{"d/e/file", "d/e/file", nil},
		{"short/file", "d/e/file", nil},
		{"short", "d/e", nil},
		{"to-d/dots/file", "d/e/file", nil},
		{".", ".", nil},
		{"loop", "", env.ErrInvalid},
		{"nothing", "", fs.ErrNotExist},
		{"d/e/file/x", "", env.ErrNotDirectory},
	} {
		for _, f := range []*Files{w.Files, w.Confined(w.uri("."))} {
			got, err := f.Canonicalize(t.Context(), w.uri(test.path))
			is(t, err, test.err)
			if err == nil && got != w.uri(test.want) {
				t.Errorf("%s is %v, want %v", test.path, got, w.uri(test.want))
			}
		}
	}
}

func TestSetAttributes(t *testing.T) {
	w := newWorld(t)
	w.put("file", "0123456789")
	w.symlink("file", "link")
	w.mkdir("dir")
	size := func(n int64) *int64 { return &n }
	mode := func(m fs.FileMode) *fs.FileMode { return &m }
	when := time.Date(1955, 11, 5, 6, 0, 0, 987654300, time.UTC)
	for _, f := range []*Files{w.Files, w.Confined(w.uri("."))} {
		is(t, f.SetAttributes(t.Context(), w.uri("link"), env.Attributes{Size: size(4)}), nil)
		w.has("file", "0123")
		is(t, f.SetAttributes(t.Context(), w.uri("link"), env.Attributes{Size: size(10), Permissions: mode(0o600), Modified: &when, Accessed: &when}), nil)
		w.has("file", "0123\x00\x00\x00\x00\x00\x00")
		info, err := f.Stat(t.Context(), w.uri("file"), true)
		w.ok(err)
		if !info.Modified.Equal(when) || convention == pathuri.Posix && info.Mode != 0o600 {
			t.Errorf("mode %v, modified %v", info.Mode, info.Modified)
		}
		is(t, f.SetAttributes(t.Context(), w.uri("dir"), env.Attributes{Modified: &when}), nil)
		if info, err := f.Stat(t.Context(), w.uri("dir"), true); err != nil || !info.Modified.Equal(when) {
			t.Errorf("modified %v (%v)", info.Modified, err)
		}
		is(t, f.SetAttributes(t.Context(), w.uri("dir"), env.Attributes{Size: size(0)}), env.ErrIsDirectory)
		is(t, f.SetAttributes(t.Context(), w.uri("file"), env.Attributes{Size: size(-1)}), env.ErrInvalid)
		is(t, f.SetAttributes(t.Context(), w.uri("nothing"), env.Attributes{}), fs.ErrNotExist)
		w.put("file", "0123456789")
	}
}

func TestSync(t *testing.T) {
	w := newWorld(t)
	w.put("file", "")
	w.mkdir("dir")
	for _, f := range []*Files{w.Files, w.Confined(w.uri("."))} {
		is(t, f.Sync(t.Context(), w.uri("file")), nil)
		is(t, f.Sync(t.Context(), w.uri("dir")), nil)
		is(t, f.Sync(t.Context(), w.uri("nothing")), fs.ErrNotExist)
	}
}
