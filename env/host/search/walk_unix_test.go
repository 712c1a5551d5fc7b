//go:build unix

package search

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"waldo/env"
	"waldo/pathuri"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build makes files: "a/" is a directory, "a>b" a link, "a|" a FIFO, "a" a file that holds its name.
func build(t testing.TB, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if link, target, ok := strings.Cut(name, ">"); ok {
			must(t, os.Symlink(target, filepath.Join(dir, link)))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch {
		case strings.HasSuffix(name, "/"):
			must(t, os.MkdirAll(path, 0o755))
		case strings.HasSuffix(name, "|"):
			must(t, unix.Mkfifo(strings.TrimSuffix(path, "|"), 0o640))
		default:
			must(t, os.WriteFile(path, []byte(name), 0o644))
		}
	}
	return dir
}

// walkAll returns what a walk tells: lines like those of build, "!" before an entry with an error.
func walkAll(ctx context.Context, t testing.TB, root string, options env.WalkOptions) ([]string, error) {
	t.Helper()
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	must(t, err)
	var lines []string
	for entry, err := range Walk(ctx, uri, func() (*os.File, error) { return os.Open(root) }, options) {
		if err != nil {
			return lines, err
		}
		native, err := entry.Path.NativeFor(pathuri.Posix)
		must(t, err)
		line := strings.TrimPrefix(strings.TrimPrefix(native, root), "/")
		switch {
		case entry.Err != nil:
			line = "!" + line
		case entry.Info.Mode.IsDir():
			line += "/"
		case entry.Info.Mode&fs.ModeNamedPipe != 0:
			line += "|"
		case entry.Info.Mode&fs.ModeSymlink != 0:
			line += ">" + entry.Target
		}
		if entry.Err == nil {
			stat := os.Lstat
			if native == root {
				stat = os.Stat
			}
			info, err := stat(native)
			must(t, err)
			system := info.Sys().(*syscall.Stat_t)
			want := env.FileInfo{Size: info.Size(), Mode: info.Mode(), Modified: info.ModTime(),
				Allocated: int64(system.Blocks) * 512, Links: uint64(system.Nlink)}
			if diff := cmp.Diff(want, entry.Info); diff != "" {
				t.Errorf("%q: %s", native, diff)
			}
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func TestWalk(t *testing.T) {
	for _, test := range []struct {
		name    string
		files   []string
		root    string
		options env.WalkOptions
		want    []string
		err     string // part of the limit that bit
	}{
		{name: "order is that of bytes", files: []string{"b/x", "b.c", "a/", "B", "é", "b/\xff", "b/ "},
			want: []string{"/", "B", "a/", "b/", "b/ ", "b/x", "b/\xff", "b.c", "é"}},
		{name: "links are told", files: []string{"self>.", "root>/", "up>..", "dangling>no\nwhere", "loop>loop", "d/in", "to>d", "deep/", "deep/up>../.."},
			want: []string{"/", "d/", "d/in", "dangling>no\nwhere", "deep/", "deep/up>../..", "loop>loop", "root>/", "self>.", "to>d", "up>.."}},
		{name: "no files", files: []string{"fifo|", "d/fifo|"}, want: []string{"/", "d/", "d/fifo|", "fifo|"}},
		{name: "root is a link", files: []string{"d/x", "to>d"}, root: "to", want: []string{"/", "x"}},
		{name: "root is a file", files: []string{"x"}, root: "x", want: []string{""}},
		{name: "long target", files: []string{"x>" + strings.Repeat("y/", 1000)}, want: []string{"/", "x>" + strings.Repeat("y/", 1000)}},
		{name: "depth", files: []string{"a/b/c", "x"}, options: env.WalkOptions{MaxDepth: 1}, want: []string{"/", "a/", "x"}},
		{name: "depth is enough", files: []string{"a/b", "x"}, options: env.WalkOptions{MaxDepth: 2}, want: []string{"/", "a/", "a/b", "x"}},
		{name: "entries", files: []string{"a/b", "x"}, options: env.WalkOptions{MaxEntries: 3}, want: []string{"/", "a/", "a/b"}, err: "more than 3 entries"},
		{name: "entries are enough", files: []string{"a/b", "x"}, options: env.WalkOptions{MaxEntries: 4}, want: []string{"/", "a/", "a/b", "x"}},
		{name: "time", files: []string{"a"}, options: env.WalkOptions{MaxTime: 1}, err: "took 1ns"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := filepath.Join(build(t, test.files...), test.root)
			got, err := walkAll(t.Context(), t, root, test.options)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			switch {
			case test.err == "" && err != nil:
				t.Error(err)
			case test.err != "" && (!errors.Is(err, env.ErrLimit) || !strings.Contains(err.Error(), test.err)):
				t.Errorf("error %v, want a limit: %s", err, test.err)
			}
		})
	}
}

func TestWalkFails(t *testing.T) {
	dir := build(t, "a", "b")
	if got, err := walkAll(t.Context(), t, dir+"/none", env.WalkOptions{}); got != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("walk of nothing: %q, %v", got, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	uri, err := pathuri.FromNative(dir, pathuri.Posix)
	must(t, err)
	told := 0
	for _, err := range Walk(ctx, uri, func() (*os.File, error) { return os.Open(dir) }, env.WalkOptions{}) {
		if told++; told == 2 {
			cancel(errors.New("enough"))
		}
		if (told == 3) != (err != nil) || err != nil && err.Error() != "enough" {
			t.Errorf("step %d: %v", told, err)
		}
	}
	if told != 3 {
		t.Errorf("%d steps", told)
	}
}

func TestWalkUnreadable(t *testing.T) {
	dir := build(t, "a/x", "b/x", "c")
	must(t, os.Chmod(dir+"/a", 0))
	must(t, os.Chmod(dir+"/b", 0o444)) // its names may be read, and no more
	t.Cleanup(func() { os.Chmod(dir+"/a", 0o755); os.Chmod(dir+"/b", 0o755) })
	if f, err := os.Open(dir + "/a"); err == nil {
		f.Close()
		t.Skip("this user may read what nobody may")
	}
	got, err := walkAll(t.Context(), t, dir, env.WalkOptions{})
	if diff := cmp.Diff([]string{"/", "a/", "!a", "b/", "!b/x", "c"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// openFiles counts the descriptors of this process.
func openFiles() (n int) {
	for fd := range 1024 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			n++
		}
	}
	return n
}

// A tree that is deeper than directories are held open, and than a path may be long.
func TestWalkDeep(t *testing.T) {
	root := t.TempDir()
	const depth = 1200
	fd, err := unix.Open(root, openFlags, 0)
	must(t, err)
	for i := range depth {
		must(t, unix.Mkdirat(fd, "deeper", 0o755))
		file, err := unix.Openat(fd, "z", unix.O_CREAT|unix.O_WRONLY, 0o600)
		must(t, err)
		must(t, unix.Close(file))
		next, err := unix.Openat(fd, "deeper", openFlags, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = next
		_ = i
	}
	must(t, unix.Close(fd))
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	must(t, err)
	before, most := openFiles(), 0
	told := 0
	var files []int
	for entry, err := range Walk(t.Context(), uri, func() (*os.File, error) { return os.Open(root) }, env.WalkOptions{}) {
		must(t, err)
		must(t, entry.Err)
		if told++; told%100 == 0 {
			most = max(most, openFiles())
		}
		if name, _ := entry.Path.Base(); name == "z" {
			files = append(files, strings.Count(entry.Path.String(), "/deeper"))
		}
	}
	if told != 1+2*depth {
		t.Errorf("%d entries, want %d", told, 1+2*depth)
	}
	for i, at := range files {
		if at != depth-1-i {
			t.Fatalf("file %d is at depth %d", i, at)
		}
	}
	if most > before+maxOpen+2 {
		t.Errorf("%d files were open, and %d before", most, before)
	}
	if after := openFiles(); after != before {
		t.Errorf("%d files are open, and %d were before", after, before)
	}
}

// A directory that is moved while the walk is deep in it: what cannot be reached any more is told, and what can be is
// walked.
func TestWalkMoved(t *testing.T) {
	root := t.TempDir()
	deep := root
	for range maxOpen + 10 {
		deep += "/d"
	}
	must(t, os.MkdirAll(deep, 0o755))
	must(t, os.WriteFile(root+"/d/z", nil, 0o600))
	must(t, os.WriteFile(root+"/z", nil, 0o600))
	must(t, os.WriteFile(root+"/d/d/z", nil, 0o600))
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	must(t, err)
	var got []string
	for entry, err := range Walk(t.Context(), uri, func() (*os.File, error) { return os.Open(root) }, env.WalkOptions{}) {
		must(t, err)
		native, err := entry.Path.Native()
		must(t, err)
		if native == deep {
			must(t, os.Rename(root+"/d/d/d", root+"/moved1"))
			must(t, os.Rename(root+"/d/d", root+"/moved2"))
		}
		if len(native) < len(root)+8 && (entry.Err != nil || strings.HasSuffix(native, "z")) {
			got = append(got, fmt.Sprint(strings.TrimPrefix(native, root), " ", errors.Is(entry.Err, env.ErrChanged)))
		}
	}
	if diff := cmp.Diff([]string{"/d/d true", "/d/z false", "/z false"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Breaking off leaves nothing open.
func TestWalkBreak(t *testing.T) {
	root := build(t, "a/b/c/d", "x")
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	must(t, err)
	before := openFiles()
	for n := 1; n < 7; n++ {
		told := 0
		for range Walk(t.Context(), uri, func() (*os.File, error) { return os.Open(root) }, env.WalkOptions{}) {
			if told++; told == n {
				break
			}
		}
		if after := openFiles(); after != before || told != min(n, 6) {
			t.Errorf("after %d entries %d files are open, and %d were before", told, after, before)
		}
	}
}

// A directory that is swapped for a link all the time never leads out.
func TestWalkSwapped(t *testing.T) {
	outside := build(t, "secret")
	root := build(t, "d/a", "other")
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			err := errors.Join(os.Rename(root+"/d", root+"/e"), os.Symlink(outside, root+"/d"), os.Remove(root+"/d"), os.Rename(root+"/e", root+"/d"))
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	must(t, err)
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); {
		for entry, err := range Walk(t.Context(), uri, func() (*os.File, error) { return os.Open(root) }, env.WalkOptions{}) {
			if err != nil || entry.Err != nil {
				t.Errorf("%v, %v", err, entry.Err)
			}
			if name, _ := entry.Path.Base(); name == "secret" {
				t.Fatal("it led out")
			}
		}
	}
	close(done)
	swapper.Wait()
}

// Entries that vanish while they are told are left out.
func TestWalkVanishing(t *testing.T) {
	root := build(t, "a", "b/x", "c>a", "d")
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	must(t, err)
	var got []string
	for entry, err := range Walk(t.Context(), uri, func() (*os.File, error) { return os.Open(root) }, env.WalkOptions{}) {
		must(t, err)
		must(t, entry.Err)
		name, _ := entry.Path.Base()
		got = append(got, name)
		if name == "a" {
			must(t, errors.Join(os.RemoveAll(root+"/b"), os.Remove(root+"/c")))
		}
	}
	if !slices.Equal(got[1:], []string{"a", "d"}) {
		t.Errorf("told %q", got)
	}
}

func BenchmarkWalk(b *testing.B) {
	root := b.TempDir()
	const count = 100_000
	for i := range count / 100 {
		dir := fmt.Sprintf("%s/%02d/%02d", root, i/50, i%50)
		must(b, os.MkdirAll(dir, 0o755))
		for j := range 100 {
			f, err := os.Create(fmt.Sprintf("%s/file-%02d.go", dir, j))
			must(b, err)
			must(b, f.Close())
		}
	}
	uri, err := pathuri.FromNative(root, pathuri.Posix)
	must(b, err)
	b.ReportAllocs()
	told := 0
	for b.Loop() {
		told = 0
		for _, err := range Walk(b.Context(), uri, func() (*os.File, error) { return os.Open(root) }, env.WalkOptions{}) {
			must(b, err)
			told++
		}
	}
	b.ReportMetric(float64(told), "entries")
}
