package envtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"time"

	"waldo/env"
)

var readTests = []filesTest{
	{"ranges", func(r *filesRig) {
		const text = "0123456789"
		file := r.at("f")
		r.put(file, text)
		for _, test := range []struct {
			offset, length int64
			want           string
		}{
			{0, 0, text}, {0, 10, text}, {0, 99, text}, {3, 0, text[3:]}, {3, 4, "3456"}, {9, 1, "9"}, {9, 5, "9"}, {10, 0, ""},
			{11, 0, ""}, {1 << 40, 5, ""},
		} {
			for _, holes := range []bool{false, true} {
				got, _, info, err := r.read(file, env.ReadOptions{Offset: test.offset, Length: test.length, Holes: holes})
				if string(got) != test.want || err != nil {
					r.Errorf("%d bytes from %d on: %q, %v, want %q", test.length, test.offset, got, err, test.want)
				}
				if !sameInfo(info, r.stat(file)) {
					r.Errorf("opened it is %+v, seen from outside %+v", info, r.stat(file))
				}
			}
		}
		for _, bad := range []env.ReadOptions{{Offset: -1}, {Length: -1}} {
			_, _, _, err := r.read(file, bad)
			r.wantError("a range below zero", err, env.ErrInvalid)
		}
	}},
	{"nothing in it", func(r *filesRig) {
		r.put(r.at("f"), "")
		if got, _, info, err := r.read(r.at("f"), env.ReadOptions{}); len(got) != 0 || info.Size != 0 || err != nil {
			r.Errorf("%q, %+v, %v", got, info, err)
		}
	}},
	{"what is no file", func(r *filesRig) {
		r.put(r.at("f"), "x")
		for name, want := range map[string]error{"none": fs.ErrNotExist, "d": env.ErrIsDirectory} {
			if name == "d" {
				r.mkdir(r.at(name))
			}
			_, _, err := env.ReadFile(r.ctx, r.files, r.at(name), 10)
			r.wantError("read of "+name, err, want)
		}
		_, _, err := env.ReadFile(r.ctx, r.files, r.at("f", "x"), 10)
		if r.posix() {
			r.wantError("read below a file", err, env.ErrNotDirectory)
		} else {
			r.wantError("read below a file", err)
		}
	}},
	{"through links", func(r *filesRig) {
		r.put(r.at("d", "f"), "text")
		r.symlink("l2", r.at("l1"))
		r.symlink("d/f", r.at("l2"))
		r.wantContent(r.at("l1"), "text")
		r.symlink("none", r.at("dangling"))
		_, _, err := env.ReadFile(r.ctx, r.files, r.at("dangling"), 10)
		r.wantError("read through a dangling link", err, fs.ErrNotExist)
	}},
	{"more than is taken", func(r *filesRig) {
		r.put(r.at("f"), "12345")
		_, _, err := env.ReadFile(r.ctx, r.files, r.at("f"), 4)
		r.wantError("read of five bytes into four", err, env.ErrTooLarge)
		_, _, err = env.ReadFile(r.ctx, r.files, r.at("f"), -1)
		r.wantError("read of less than nothing", err, env.ErrInvalid)
		r.put(r.at("empty"), "")
		if data, _, err := env.ReadFile(r.ctx, r.files, r.at("empty"), 0); len(data) != 0 || err != nil {
			r.Errorf("%q, %v", data, err)
		}
		if data, info, err := env.ReadFile(r.ctx, r.files, r.at("f"), 5); string(data) != "12345" || info.Size != 5 || err != nil {
			r.Errorf("%q, %+v, %v", data, info, err)
		}
	}},
	{"another version", func(r *filesRig) {
		file := r.at("f")
		version := r.put(file, "old text").Info.Version
		if now := r.stat(file).Version; version != now {
			r.Errorf("the version written is %q, and %q is there", version, now)
		}
		if got, _, _, err := r.read(file, env.ReadOptions{Offset: 4, Version: version}); string(got) != "text" || err != nil {
			r.Errorf("%q, %v", got, err)
		}
		r.put(file, "new content")
		got, _, _, err := r.read(file, env.ReadOptions{Offset: 4, Version: version})
		r.wantError("read of a version that is gone", err, env.ErrChanged)
		if len(got) > 0 {
			r.Errorf("and yet %q was read", got)
		}
	}},
	{"breaking off and going on", func(r *filesRig) {
		want := content(1, 3<<20)
		file := r.at("f")
		r.put(file, string(want))
		reader, err := r.files.Read(r.ctx, file, env.ReadOptions{})
		r.must(err)
		defer reader.Close()
		var got []byte
		for more := true; more; {
			more = false
			for chunk, err := range reader.Chunks() {
				r.must(err)
				r.checkChunk(chunk, int64(len(got)), env.ReadOptions{})
				if chunk.Framed != nil && !bytes.HasSuffix(chunk.Framed, chunk.Data) {
					r.Fatal("a chunk's frame is not its data")
				}
				got, more = append(got, chunk.Data...), true
				break
			}
		}
		if !bytes.Equal(got, want) {
			r.Errorf("%d bytes, want %d of other content", len(got), len(want))
		}
	}},
	{"holes", func(r *filesRig) {
		const hole, before, after = 6 << 20, "before", "after"
		file := r.at("f")
		w, err := r.files.Write(r.ctx, file, env.WriteOptions{Unsynced: true})
		r.must(err)
		defer w.Close()
		_, err = w.Write([]byte(before))
		r.must(errors.Join(err, w.Skip(0), w.Skip(hole)))
		_, err = w.Write([]byte(after))
		r.must(errors.Join(err, w.Skip(hole)))
		r.wantError("a hole below zero", w.Skip(-1), env.ErrInvalid)
		written, err := w.Commit()
		r.must(err)
		const size = 2*hole + int64(len(before)+len(after))
		if written.Info.Size != size || w.Taken() != size {
			r.Errorf("%d bytes were taken for a file of %d, want %d", w.Taken(), written.Info.Size, size)
		}
		want := before + string(make([]byte, hole)) + after + string(make([]byte, hole))
		for _, tell := range []bool{false, true} {
			got, holes, info, err := r.read(file, env.ReadOptions{Holes: tell})
			if string(got) != want || err != nil {
				r.Fatalf("%d bytes of other content, %v", len(got), err)
			}
			if allocated := info.Allocated; tell && allocated >= 0 && allocated < size/4 && holes < size/2 {
				r.Errorf("it takes %d bytes of %d, and its holes are told as %d", allocated, size, holes)
			}
		}
		// A range that begins and ends in holes.
		got, _, _, err := r.read(file, env.ReadOptions{Offset: hole - 5, Length: 100, Holes: true})
		if string(got) != want[hole-5:hole+95] || err != nil {
			r.Errorf("a range of it: %s, %v", shortened(got), err)
		}
	}},
	{"huge, and hardly there", func(r *filesRig) {
		const size = 1 << 40
		file := r.at("f")
		r.put(file, "x")
		if err := r.files.SetAttributes(r.ctx, file, env.Attributes{Size: new(int64(size))}); err != nil {
			r.Skipf("no such file here: %v", err)
		}
		info := r.stat(file)
		if info.Size != size {
			r.Errorf("its size is %d", info.Size)
		}
		if got, _, _, err := r.read(file, env.ReadOptions{Offset: size - 5, Length: 100}); string(got) != "\x00\x00\x00\x00\x00" || err != nil {
			r.Errorf("its end is %q, %v", got, err)
		}
		_, _, err := env.ReadFile(r.ctx, r.files, file, 1<<20)
		r.wantError("read of it", err, env.ErrTooLarge)
		if info.Allocated < 0 || info.Allocated > 1<<20 {
			return // its holes are not known, or it has none
		}
		reader, err := r.files.Read(r.ctx, file, env.ReadOptions{Holes: true})
		r.must(err)
		defer reader.Close()
		var at int64
		for chunk, err := range reader.Chunks() {
			r.must(err)
			r.checkChunk(chunk, at, env.ReadOptions{Holes: true})
			at += int64(len(chunk.Data)) + chunk.Hole
		}
		if at != size {
			r.Errorf("%d bytes of %d", at, size)
		}
	}},
}

var writeTests = []filesTest{
	{"a new file", func(r *filesRig) {
		file := r.at("f")
		written, err := env.WriteFile(r.ctx, r.files, file, []byte("text"), env.WriteOptions{})
		r.must(err)
		if info := r.stat(file); !sameInfo(written.Info, info) || info.Size != 4 {
			r.Errorf("written is %+v, and there is %+v", written.Info, info)
		}
		r.wantTree(r.dir, "f=text")
		r.put(r.at("empty"), "")
		r.wantContent(r.at("empty"), "")
		// However a file is made, its permission bits are those that the machine gives.
		bits := r.stat(file).Mode
		for _, mode := range []env.WriteMode{env.Exclusive, env.Append} {
			other := r.at(string(mode))
			r.putWith(other, "x", env.WriteOptions{Mode: mode})
			if got := r.stat(other).Mode; got != bits {
				r.Errorf("a file made by %s has %v, by replace %v", mode, got, bits)
			}
		}
		if r.posix() && bits&0o600 != 0o600 {
			r.Errorf("a new file has %v", bits)
		}
	}},
	{"replace", func(r *filesRig) {
		file := r.at("f")
		for _, bits := range []fs.FileMode{0o755, 0o640, 0o600} {
			r.putWith(file, "old", env.WriteOptions{Permissions: &bits})
			for _, text := range []string{"new content", "new", ""} {
				written := r.put(file, text)
				info := r.stat(file)
				if r.posix() && (info.Mode != bits || written.InPlace) {
					r.Errorf("a file with %v has %v now, in place %v", bits, info.Mode, written.InPlace)
				}
				if info.Size != int64(len(text)) {
					r.Errorf("size %d, want %d", info.Size, len(text))
				}
				r.wantTree(r.dir, "f="+text)
			}
		}
	}},
	{"replace keeps names", func(r *filesRig) {
		r.put(r.at("a"), "old")
		r.hardlink(r.at("a"), r.at("b"))
		written := r.put(r.at("a"), "new content")
		r.wantTree(r.dir, "a=new content", "b=new content")
		if links := r.stat(r.at("a")).Links; links != 0 && links != 2 || !written.InPlace {
			r.Errorf("it has %d names, written in place %v", links, written.InPlace)
		}
		link := r.symlink("a", r.at("c"))
		r.put(link, "by link")
		r.wantTree(r.dir, "a=by link", "b=by link", "c→a")
		r.put(r.at("d", "f"), "old")
		far := r.symlink("d/f", r.at("e"))
		r.put(far, "far")
		r.wantTree(r.dir, "a=by link", "b=by link", "c→a", "d/", "d/f=far", "e→d/f")
		dangling := r.symlink("d/g", r.at("h"))
		r.put(dangling, "made")
		r.wantTree(r.dir, "a=by link", "b=by link", "c→a", "d/", "d/f=far", "d/g=made", "e→d/f", "h→d/g")
	}},
	{"nothing before the commit, and nothing without", func(r *filesRig) {
		r.put(r.at("old"), "old")
		before := r.stat(r.at("old"))
		for name, mode := range map[string]env.WriteMode{"old": env.Replace, "new": env.Replace, "other": env.Exclusive} {
			w, err := r.files.Write(r.ctx, r.at(name), env.WriteOptions{Mode: mode})
			r.must(err)
			const size = 1 << 20
			_, err = w.Write(content(1, size))
			r.must(err)
			r.eventually("all is taken", func() bool { return w.Taken() == size })
			r.wantContent(r.at("old"), "old")
			r.must(errors.Join(w.Close(), w.Close()))
			r.wantTree(r.dir, "old=old")
			if _, err := w.Write([]byte("x")); err == nil {
				r.Error("a write after the end")
			}
			if _, err := w.Commit(); err == nil {
				r.Error("a commit after the end")
			}
		}
		if after := r.stat(r.at("old")); !sameInfo(after, before) {
			r.Errorf("what stays was %+v and is %+v", before, after)
		}
		w, err := r.files.Write(r.ctx, r.at("new"), env.WriteOptions{})
		r.must(err)
		_, err = w.Commit()
		r.must(errors.Join(err, w.Close(), w.Close()))
		r.wantTree(r.dir, "new=", "old=old")
	}},
	{"exclusive", func(r *filesRig) {
		file := r.at("f")
		write := func(text string) error {
			_, err := env.WriteFile(r.ctx, r.files, file, []byte(text), env.WriteOptions{Mode: env.Exclusive})
			return err
		}
		r.must(write("first"))
		r.wantError("the second time", write("second"), fs.ErrExist)
		r.wantTree(r.dir, "f=first")
		r.mkdir(r.at("d"))
		_, err := env.WriteFile(r.ctx, r.files, r.at("d"), nil, env.WriteOptions{Mode: env.Exclusive})
		r.wantError("where a directory is", err, fs.ErrExist)
		link := r.symlink("none", r.at("l"))
		_, err = env.WriteFile(r.ctx, r.files, link, nil, env.WriteOptions{Mode: env.Exclusive})
		r.wantError("where a dangling link is", err, fs.ErrExist)
		r.wantTree(r.dir, "d/", "f=first", "l→none")
	}},
	{"exclusive at the same time", func(r *filesRig) {
		file, won := r.at("f"), make(chan int, 8)
		r.parallel(8, func(i int) error {
			_, err := env.WriteFile(r.ctx, r.files, file, []byte(numbered(i)), env.WriteOptions{Mode: env.Exclusive})
			if err == nil {
				won <- i
			}
			if errors.Is(err, fs.ErrExist) {
				return nil
			}
			return err
		})
		if len(won) != 1 {
			r.Fatalf("%d have made it", len(won))
		}
		r.wantTree(r.dir, "f="+numbered(<-won))
	}},
	{"append", func(r *filesRig) {
		file, appending := r.at("f"), env.WriteOptions{Mode: env.Append}
		r.putWith(file, "one", appending)
		written := r.putWith(file, " two", appending)
		r.wantContent(file, "one two")
		if written.Info.Size != 7 {
			r.Errorf("it says %+v", written.Info)
		}
		w, err := r.files.Write(r.ctx, file, appending)
		r.must(err)
		_, err = w.Write([]byte(" three"))
		r.must(err)
		r.eventually("it is taken", func() bool { return w.Taken() == 6 })
		r.must(w.Close())
		r.wantTree(r.dir, "f=one two three")
		w, err = r.files.Write(r.ctx, file, appending)
		r.must(err)
		r.must(w.Skip(3))
		_, err = w.Write([]byte("."))
		r.must(err)
		_, err = w.Commit()
		r.must(errors.Join(err, w.Close()))
		r.wantContent(file, "one two three\x00\x00\x00.")
		link := r.symlink("f", r.at("l"))
		r.putWith(link, "!", appending)
		r.wantContent(file, "one two three\x00\x00\x00.!")
	}},
	{"patch", func(r *filesRig) {
		file := r.at("f")
		patch := func(offset int64) env.WriteOptions { return env.WriteOptions{Mode: env.Patch, Offset: offset} }
		_, err := env.WriteFile(r.ctx, r.files, file, []byte("x"), patch(0))
		r.wantError("a patch of none", err, fs.ErrNotExist)
		r.putWith(file, "0123456789", env.WriteOptions{Permissions: mode(0o640)})
		r.putWith(file, "ab", patch(3))
		r.wantContent(file, "012ab56789")
		r.putWith(file, "cd", patch(9))
		r.wantContent(file, "012ab5678cd")
		r.putWith(file, "e", patch(13))
		r.wantContent(file, "012ab5678cd\x00\x00e")
		if info := r.stat(file); info.Size != 14 || r.posix() && info.Mode != 0o640 {
			r.Errorf("it is %+v", info)
		}
		w, err := r.files.Write(r.ctx, file, patch(1))
		r.must(err)
		r.must(w.Skip(3))
		_, err = w.Write([]byte("z"))
		r.must(err)
		r.eventually("it is taken", func() bool { return w.Taken() == 4 })
		r.must(w.Close())
		r.wantContent(file, "0\x00\x00\x00z5678cd\x00\x00e")
		_, err = env.WriteFile(r.ctx, r.files, file, []byte("x"), patch(-1))
		r.wantError("a patch below zero", err, env.ErrInvalid)
	}},
	{"where nothing can be written", func(r *filesRig) {
		r.put(r.at("f"), "text")
		r.mkdir(r.at("d"))
		r.wantUnchanged("writing", func() error {
			for _, mode := range []env.WriteMode{env.Replace, env.Append, env.Patch} {
				_, err := env.WriteFile(r.ctx, r.files, r.at("d"), []byte("x"), env.WriteOptions{Mode: mode})
				r.wantError(string(mode)+" of a directory", err, env.ErrIsDirectory)
				_, err = env.WriteFile(r.ctx, r.files, r.at("none", "f"), []byte("x"), env.WriteOptions{Mode: mode})
				r.wantError(string(mode)+" in none", err, fs.ErrNotExist)
				_, err = env.WriteFile(r.ctx, r.files, r.at("f", "x"), []byte("x"), env.WriteOptions{Mode: mode})
				if r.posix() {
					r.wantError(string(mode)+" below a file", err, env.ErrNotDirectory)
				} else {
					r.wantError(string(mode)+" below a file", err)
				}
			}
			_, err := env.WriteFile(r.ctx, r.files, r.at("g"), nil, env.WriteOptions{Mode: "sideways"})
			return err
		}, env.ErrInvalid)
	}},
	{"parents", func(r *filesRig) {
		parents := env.WriteOptions{Parents: true}
		for _, mode := range []env.WriteMode{env.Replace, env.Exclusive, env.Append} {
			parents.Mode = mode
			_, err := env.WriteFile(r.ctx, r.files, r.at("a", "b", string(mode)), []byte("x"), parents)
			r.must(err)
		}
		r.wantTree(r.dir, "a/", "a/b/", "a/b/append=x", "a/b/exclusive=x", "a/b/replace=x")
		r.put(r.at("f"), "text")
		_, err := env.WriteFile(r.ctx, r.files, r.at("f", "x", "y"), []byte("x"), env.WriteOptions{Parents: true})
		r.wantError("parents below a file", err, env.ErrNotDirectory)
		r.wantContent(r.at("f"), "text")
	}},
	{"permissions and time", func(r *filesRig) {
		for i, mode := range []env.WriteMode{env.Replace, env.Exclusive, env.Append, env.Replace, env.Patch} {
			name := r.at([]string{"replace", "exclusive", "append", "replace", "replace"}[i])
			bits := []fs.FileMode{0o666, 0o600, 0o777, 0o644, 0o604}[i]
			when := time.Date([]int{1969, 1970, 2001, 2026, 2037}[i], 3, 4, 5, 6, 7, 123_456_000, time.UTC)
			written := r.putWith(name, "x", env.WriteOptions{Mode: mode, Permissions: &bits, Modified: when})
			for _, info := range []env.FileInfo{written.Info, r.stat(name)} {
				if r.posix() && info.Mode != bits {
					r.Errorf("%s with %v made %v", mode, bits, info.Mode)
				}
				if !sameTime(info.Modified, when) {
					r.Errorf("%s as of %v is of %v", mode, when, info.Modified)
				}
			}
		}
	}},
	{"large", func(r *filesRig) {
		const size = 8<<20 + 12345
		file, want := r.at("f"), content(2, size)
		r.put(file, "old")
		w, err := r.files.Write(r.ctx, file, env.WriteOptions{Mode: env.Replace})
		r.must(err)
		defer w.Close()
		for rest, step := want, 1; len(rest) > 0; step = step*3%(1<<20) + 1 {
			part := rest[:min(step, len(rest))]
			if n, err := w.Write(part); n != len(part) || err != nil {
				r.Fatalf("write took %d of %d, %v", n, len(part), err)
			}
			if taken := w.Taken(); taken < 0 || taken > int64(size-len(rest)+len(part)) {
				r.Fatalf("%d bytes are taken of %d", taken, size-len(rest)+len(part))
			}
			rest = rest[len(part):]
		}
		written, err := w.Commit()
		r.must(err)
		if written.Info.Size != size || w.Taken() != size {
			r.Errorf("%d bytes were taken for a file of %d", w.Taken(), written.Info.Size)
		}
		got, _, err := env.ReadFile(r.ctx, r.files, file, size)
		r.must(err)
		if sha256.Sum256(got) != sha256.Sum256(want) {
			r.Errorf("%d bytes of other content", len(got))
		}
		part, _, _, err := r.read(file, env.ReadOptions{Offset: 5 << 20, Length: 1 << 20})
		if !bytes.Equal(part, want[5<<20:6<<20]) || err != nil {
			r.Errorf("a range of it: %d bytes, %v", len(part), err)
		}
	}},
	{"many", func(r *filesRig) {
		r.parallel(300, func(i int) error {
			path, err := r.dir.JoinName(numbered(i))
			if err != nil {
				return err
			}
			want := content(uint64(i), i*7)
			if _, err := env.WriteFile(r.ctx, r.files, path, want, env.WriteOptions{Unsynced: true}); err != nil {
				return err
			}
			got, _, err := env.ReadFile(r.ctx, r.files, path, 1<<20)
			if err == nil && !bytes.Equal(got, want) {
				r.Errorf("%q has other content", path)
			}
			return err
		})
		r.must(r.files.Sync(r.ctx, r.dir))
	}},
	{"the same file by many", func(r *filesRig) {
		// Each content is there as a whole or not at all.
		file, size := r.at("f"), 100_000
		r.put(file, string(content(0, size)))
		r.parallel(40, func(i int) error {
			if i%2 == 0 {
				_, err := env.WriteFile(r.ctx, r.files, file, content(uint64(i), size), env.WriteOptions{Unsynced: true})
				return err
			}
			got, _, err := env.ReadFile(r.ctx, r.files, file, 1<<20)
			if err != nil {
				if errors.Is(err, env.ErrChanged) {
					return nil // a cut, and another file when it was over
				}
				return err
			}
			for seed := 0; seed < 40; seed += 2 {
				if bytes.Equal(got, content(uint64(seed), size)) {
					return nil
				}
			}
			r.Errorf("%d bytes that nobody wrote", len(got))
			return nil
		})
		r.wantTree(r.dir, "f")
	}},
	{"without permission", func(r *filesRig) {
		if r.ignoresModes() {
			r.Skip("this user is above permission bits")
		}
		r.putWith(r.at("f"), "old", env.WriteOptions{Permissions: mode(0o444)})
		for _, mode := range []env.WriteMode{env.Replace, env.Append, env.Patch} {
			_, err := env.WriteFile(r.ctx, r.files, r.at("f"), []byte("new"), env.WriteOptions{Mode: mode})
			r.wantError(string(mode)+" of a file that is not to be written", err, fs.ErrPermission)
		}
		r.wantTree(r.dir, "f=old")
		// A file that may be written in a directory that may not.
		dir := r.at("d")
		r.put(r.under(dir, "g"), "old")
		r.must(r.files.SetAttributes(r.ctx, dir, env.Attributes{Permissions: mode(0o555)}))
		written, err := env.WriteFile(r.ctx, r.files, r.under(dir, "g"), []byte("new"), env.WriteOptions{})
		_, refused := env.WriteFile(r.ctx, r.files, r.under(dir, "h"), []byte("new"), env.WriteOptions{})
		r.must(r.files.SetAttributes(r.ctx, dir, env.Attributes{Permissions: mode(0o755)}))
		if err != nil || !written.InPlace {
			r.Errorf("%+v, %v", written, err)
		}
		r.wantError("a new file there", refused, fs.ErrPermission)
		r.wantTree(dir, "g=new")
		// Files of one's own that may not be read.
		r.putWith(r.at("k"), "x", env.WriteOptions{Permissions: mode(0)})
		_, _, err = env.ReadFile(r.ctx, r.files, r.at("k"), 10)
		r.wantError("read", err, fs.ErrPermission)
		r.must(r.files.Remove(r.ctx, r.at("k"), env.RemoveOptions{}))
	}},
}

var contextTests = []filesTest{
	{"over before the call", func(r *filesRig) {
		over, cancel := context.WithCancel(r.ctx)
		cancel()
		r.put(r.at("fine"), "fine")
		rig := *r
		rig.ctx = over
		before := r.tree(r.dir)
		for name, err := range rig.calls(r.files, r.at("new")) {
			r.wantError(name, err, context.Canceled)
		}
		for name, err := range rig.calls(r.files, r.at("fine")) {
			r.wantError(name, err, context.Canceled)
		}
		r.wantTree(r.dir, before...)
		late, cancel := context.WithDeadline(r.ctx, time.Unix(1, 0))
		defer cancel()
		_, err := r.files.Stat(late, r.at("fine"), true)
		r.wantError("stat too late", err, context.DeadlineExceeded)
	}},
	{"over while reading", func(r *filesRig) {
		file := r.at("f")
		r.put(file, string(content(1, 4<<20)))
		ctx, cancel := context.WithCancel(r.ctx)
		defer cancel()
		reader, err := r.files.Read(ctx, file, env.ReadOptions{})
		r.must(err)
		defer reader.Close()
		for chunk, err := range reader.Chunks() {
			r.must(err)
			if len(chunk.Data) > 0 {
				break
			}
		}
		cancel()
		var last error
		for _, err := range reader.Chunks() {
			last = err
		}
		r.wantError("the last step", last, context.Canceled)
	}},
	{"over while writing", func(r *filesRig) {
		file := r.at("f")
		r.put(file, "old")
		ctx, cancel := context.WithCancel(r.ctx)
		defer cancel()
		w, err := r.files.Write(ctx, file, env.WriteOptions{})
		r.must(err)
		_, err = w.Write(content(1, 1<<20))
		r.must(err)
		cancel()
		_, err = w.Commit()
		r.wantError("commit", err, context.Canceled)
		w.Close() // what it says is not the point
		r.eventually("what was begun is gone", func() bool { return len(r.tree(r.dir)) == 1 })
		r.wantTree(r.dir, "f=old")
	}},
	{"over while listing", func(r *filesRig) {
		for i := range 3 {
			r.put(r.at(numbered(i)), "x")
		}
		for name, steps := range map[string]func(ctx context.Context) error{
			"list": func(ctx context.Context) error { _, err := entries(r.files.List(ctx, r.dir)); return err },
			"walk": func(ctx context.Context) error {
				_, err := entries(r.files.Walk(ctx, r.dir, env.WalkOptions{}))
				return err
			},
		} {
			ctx, cancel := context.WithCancel(r.ctx)
			cancel()
			r.wantError(name, steps(ctx), context.Canceled)
		}
	}},
}
