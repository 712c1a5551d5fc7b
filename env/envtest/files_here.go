package envtest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// hereTests are those that need what only the machine itself can make.
var hereTests = []filesTest{
	{"what is made here is there, and the reverse", func(r *filesRig) {
		r.must(os.WriteFile(r.native(r.at("f")), []byte("text"), 0o640))
		r.wantContent(r.at("f"), "text")
		want, err := os.Stat(r.native(r.at("f")))
		r.must(err)
		if got := r.stat(r.at("f")); got.Mode != want.Mode() || !got.Modified.Equal(want.ModTime()) {
			r.Errorf("%+v, want %v of %v", got, want.Mode(), want.ModTime())
		}
		// What is made gets the permission bits that any program's files get.
		r.must(os.WriteFile(r.native(r.at("program")), nil, 0o666))
		r.must(os.Mkdir(r.native(r.at("programs")), 0o777))
		r.put(r.at("ours"), "x")
		r.must(r.files.Mkdir(r.ctx, r.at("d"), env.MkdirOptions{}))
		r.put(r.at("parents", "f"), "x")
		for ours, theirs := range map[string]string{"ours": "program", "d": "programs", "parents": "programs"} {
			if got, want := r.stat(r.at(ours)).Mode, r.stat(r.at(theirs)).Mode; got != want {
				r.Errorf("%s has %v, a program's would have %v", ours, got, want)
			}
		}
		got, err := os.ReadFile(r.native(r.at("ours")))
		if string(got) != "x" || err != nil {
			r.Errorf("%q, %v", got, err)
		}
	}},
	{"what is no file is refused at once", func(r *filesRig) {
		if runtime.GOOS == "windows" {
			r.Skip("no such files")
		}
		dir, err := os.MkdirTemp("", "s") // short enough for a socket
		r.must(err)
		r.Cleanup(func() { os.RemoveAll(dir) })
		scratch := r.uri(dir)
		listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
		r.must(err)
		defer listener.Close()
		strange := map[pathuri.URI]fs.FileMode{r.under(scratch, "socket"): fs.ModeSocket, r.uri("/dev/null"): fs.ModeDevice | fs.ModeCharDevice}
		if makeFIFO(filepath.Join(dir, "fifo")) == nil {
			strange[r.under(scratch, "fifo")] = fs.ModeNamedPipe
		}
		r.put(r.under(scratch, "f"), "x")
		r.quick("a call on what is no file", func() {
			for path, kind := range strange {
				if info := r.lstat(path); info.Mode.Type() != kind {
					r.Errorf("%q is %v", path, info.Mode)
				}
				_, _, err := env.ReadFile(r.ctx, r.files, path, 10)
				r.wantError("read of "+path.String(), err, env.ErrNotRegular)
				for _, mode := range []env.WriteMode{env.Replace, env.Append, env.Patch} {
					_, err = env.WriteFile(r.ctx, r.files, path, []byte("x"), env.WriteOptions{Mode: mode})
					r.wantError(string(mode)+" of "+path.String(), err, env.ErrNotRegular)
				}
				err = r.files.SetAttributes(r.ctx, path, env.Attributes{Size: new(int64(0))})
				r.wantError("size of "+path.String(), err, env.ErrNotRegular)
				if r.lstat(path).Mode.Type() != kind {
					r.Errorf("%q is something else now", path)
				}
			}
		})
		// A tree that holds such things.
		got, err := entries(r.files.Walk(r.ctx, scratch, env.WalkOptions{}))
		if len(got) != len(strange)+1 || err != nil {
			r.Errorf("%d entries, %v", len(got), err)
		}
		r.quick("copying them", func() {
			// Each may have its own line in the error.
			err := r.files.Copy(r.ctx, scratch, r.at("copy"), env.CopyOptions{Recursive: true})
			if !errors.Is(err, env.ErrNotRegular) {
				r.Errorf("copy of what is no file: %v", err)
			}
		})
		r.wantTree(r.at("copy"), "f=x")
		if r.Watcher != nil {
			w := r.watching(scratch, true)
			r.put(r.under(scratch, "new"), "x")
			w.expect(created, r.under(scratch, "new"))
		}
		for path := range strange {
			if path != r.uri("/dev/null") {
				r.must(r.files.Remove(r.ctx, path, env.RemoveOptions{}))
			}
		}
	}},
	{"files that do not tell their size", func(r *filesRig) {
		for _, name := range []string{"/proc/version", "/proc/sys/kernel/ostype", "/proc/filesystems"} {
			want, err := os.ReadFile(name)
			if err != nil || len(want) == 0 {
				r.Skip("no such files here")
			}
			r.wantContent(r.uri(name), string(want))
			part, _, _, err := r.read(r.uri(name), env.ReadOptions{Offset: 2, Length: 3, Holes: true})
			if string(part) != string(want[2:5]) || err != nil {
				r.Errorf("a range of %s is %q, %v", name, part, err)
			}
		}
	}},
	{"a file that grows", func(r *filesRig) {
		path := r.native(r.at("f"))
		f, err := os.Create(path)
		r.must(err)
		defer f.Close()
		want := content(1, 4<<20)
		_, err = f.Write(want[:2<<20])
		r.must(err)
		reader, err := r.files.Read(r.ctx, r.at("f"), env.ReadOptions{})
		r.must(err)
		defer reader.Close()
		_, err = f.Write(want[2<<20:])
		r.must(err)
		var got []byte
		for chunk, err := range reader.Chunks() {
			if r.Cut && errors.Is(err, env.ErrChanged) {
				return
			}
			r.must(err)
			r.checkChunk(chunk, int64(len(got)), env.ReadOptions{})
			got = append(got, chunk.Data...)
		}
		if len(got) < 2<<20 || string(got) != string(want[:len(got)]) {
			r.Errorf("%d bytes of other content", len(got))
		}
	}},
	{"mount points", func(r *filesRig) {
		if runtime.GOOS != "linux" {
			r.Skip("none that is sure")
		}
		for _, o := range []env.RemoveOptions{{}, {Force: true}} {
			r.wantError("remove of a mount point", r.files.Remove(r.ctx, r.uri("/proc"), o))
		}
		r.wantError("rename of a mount point", r.files.Rename(r.ctx, r.uri("/proc"), r.at("proc"), env.RenameOptions{}))
	}},
	{"entries of another user's making, while they are listed", func(r *filesRig) {
		dir := r.native(r.mkdir(r.at("d")))
		r.put(r.at("d", "stays"), "x")
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() {
			var err error
			defer func() { done <- err }()
			for i := 0; err == nil; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err = os.WriteFile(filepath.Join(dir, numbered(i%500)), nil, 0o600); err == nil && i >= 250 {
					err = os.Remove(filepath.Join(dir, numbered((i-250)%500)))
				}
			}
		}()
		for range 30 {
			for name, steps := range map[string]func() ([]env.Entry, error){
				"list": func() ([]env.Entry, error) { return entries(r.files.List(r.ctx, r.at("d"))) },
				"walk": func() ([]env.Entry, error) { return entries(r.files.Walk(r.ctx, r.at("d"), env.WalkOptions{})) },
			} {
				got, err := steps()
				if err != nil || len(got) == 0 {
					r.Errorf("%s: %d entries, %v", name, len(got), err)
				}
				for _, entry := range got {
					if entry.Err != nil {
						r.Errorf("%s: %q: %v", name, entry.Path, entry.Err)
					}
				}
			}
		}
		close(stop)
		r.must(<-done)
	}},
	{"a reader that is waited for", func(r *filesRig) {
		// A read that nobody takes must not keep others waiting.
		r.put(r.at("large"), string(content(1, 16<<20)))
		reader, err := r.files.Read(r.ctx, r.at("large"), env.ReadOptions{})
		r.must(err)
		defer reader.Close()
		for _, err := range reader.Chunks() {
			r.must(err)
			break
		}
		ctx, cancel := context.WithTimeout(r.ctx, patience)
		defer cancel()
		r.put(r.at("small"), "x")
		if _, err := r.files.Stat(ctx, r.at("small"), true); err != nil {
			r.Error(err)
		}
	}},
	{"changes by others are told", func(r *filesRig) {
		if r.Watcher == nil {
			r.Skip("no watcher")
		}
		w := r.watching(r.dir, true)
		path := r.native(r.at("f"))
		r.must(os.WriteFile(path, []byte("x"), 0o600))
		w.expect(created, r.at("f"))
		w.forget(r.dir)
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		r.must(err)
		_, err = io.Copy(f, strings.NewReader("more"))
		r.must(errors.Join(err, f.Close()))
		w.expect(modified, r.at("f"))
		w.forget(r.dir)
		r.must(os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)))
		w.expect(modified, r.at("f"))
		r.must(os.RemoveAll(path))
		w.expect(removed, r.at("f"))
	}},
}
