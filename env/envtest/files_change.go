package envtest

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

var changeTests = []filesTest{
	{"mkdir", func(r *filesRig) {
		mkdir := func(path pathuri.URI, parents bool) error {
			return r.files.Mkdir(r.ctx, path, env.MkdirOptions{Parents: parents})
		}
		r.must(mkdir(r.at("d"), false))
		r.wantError("mkdir of what is there", mkdir(r.at("d"), false), fs.ErrExist)
		r.must(mkdir(r.at("d"), true))
		r.wantError("mkdir in none", mkdir(r.at("a", "b"), false), fs.ErrNotExist)
		r.must(mkdir(r.at("a", "b", "c"), true))
		r.must(mkdir(r.at("a", "b", "c", "d"), true))
		r.wantTree(r.dir, "a/", "a/b/", "a/b/c/", "a/b/c/d/", "d/")
		r.put(r.at("f"), "text")
		for _, parents := range []bool{false, true} {
			r.wantError("mkdir where a file is", mkdir(r.at("f"), parents), fs.ErrExist)
			if err := mkdir(r.at("f", "x"), parents); r.posix() {
				r.wantError("mkdir below a file", err, env.ErrNotDirectory)
			} else {
				r.wantError("mkdir below a file", err)
			}
		}
		r.wantError("mkdir far below a file", mkdir(r.at("f", "x", "y"), true), env.ErrNotDirectory)
		r.wantContent(r.at("f"), "text")
		for _, bits := range []fs.FileMode{0o700, 0o755, 0o777} {
			path := r.at("p", bits.String())
			r.must(r.files.Mkdir(r.ctx, path, env.MkdirOptions{Parents: true, Permissions: &bits}))
			if got := r.stat(path).Mode; r.posix() && got != bits|fs.ModeDir {
				r.Errorf("a directory with %v has %v", bits, got)
			}
		}
		link := r.symlink("none", r.at("l"))
		r.wantError("mkdir where a dangling link is", mkdir(link, false), fs.ErrExist)
		r.symlink("a", r.at("m"))
		r.must(mkdir(r.at("m", "new", "er"), true))
		if !r.stat(r.at("a", "new", "er")).Mode.IsDir() {
			r.Error("a directory was not made through a link")
		}
	}},
	{"mkdir at the same time", func(r *filesRig) {
		r.parallel(40, func(i int) error {
			path := r.at("a", "b", "c", numbered(i%4))
			return r.files.Mkdir(r.ctx, path, env.MkdirOptions{Parents: true})
		})
		r.wantTree(r.dir, "a/", "a/b/", "a/b/c/", "a/b/c/n0000/", "a/b/c/n0001/", "a/b/c/n0002/", "a/b/c/n0003/")
	}},
	{"remove", func(r *filesRig) {
		remove := func(path pathuri.URI, o env.RemoveOptions) error { return r.files.Remove(r.ctx, path, o) }
		r.put(r.at("f"), "x")
		r.mkdir(r.at("e"))
		r.put(r.at("d", "a", "b"), "x")
		r.put(r.at("d", "c"), "x")
		r.put(r.at("keep", "f"), "kept")
		r.wantError("remove of none", remove(r.at("none"), env.RemoveOptions{}), fs.ErrNotExist)
		r.wantError("remove of none and below", remove(r.at("none"), env.RemoveOptions{Recursive: true}), fs.ErrNotExist)
		r.must(remove(r.at("none"), env.RemoveOptions{Force: true}))
		r.must(remove(r.at("none", "at", "all"), env.RemoveOptions{Force: true, Recursive: true}))
		r.wantUnchanged("remove of what holds something", func() error { return remove(r.at("d"), env.RemoveOptions{}) }, env.ErrNotEmpty)
		r.wantUnchanged("forced remove of what holds something", func() error { return remove(r.at("d"), env.RemoveOptions{Force: true}) }, env.ErrNotEmpty)
		r.must(remove(r.at("f"), env.RemoveOptions{}))
		r.must(remove(r.at("e"), env.RemoveOptions{}))
		r.must(remove(r.at("d"), env.RemoveOptions{Recursive: true}))
		r.wantTree(r.dir, "keep/", "keep/f=kept")
		r.must(remove(r.at("keep", "f"), env.RemoveOptions{Recursive: true}))
		r.wantTree(r.dir, "keep/")
	}},
	{"remove follows no links", func(r *filesRig) {
		r.put(r.at("keep", "f"), "kept")
		link := r.symlink("keep", r.at("l"))
		r.must(r.files.Remove(r.ctx, link, env.RemoveOptions{Recursive: true}))
		r.wantTree(r.dir, "keep/", "keep/f=kept")
		r.mkdir(r.at("d"))
		r.symlink("../keep", r.at("d", "l"))
		r.symlink("none", r.at("d", "dangling"))
		r.symlink("/", r.at("d", "root"))
		r.must(r.files.Remove(r.ctx, r.at("d"), env.RemoveOptions{Recursive: true}))
		r.wantTree(r.dir, "keep/", "keep/f=kept")
		r.symlink("keep/f", r.at("l"))
		r.must(r.files.Remove(r.ctx, r.at("l"), env.RemoveOptions{}))
		r.wantTree(r.dir, "keep/", "keep/f=kept")
	}},
	{"remove of a root", func(r *filesRig) {
		root := r.dir
		for uri := range r.dir.Ancestors() {
			root = uri
		}
		r.put(r.at("keep", "f"), "kept")
		r.wantError("remove of the root", r.files.Remove(r.ctx, root, env.RemoveOptions{}))
		if r.Expendable {
			for _, o := range []env.RemoveOptions{{Recursive: true}, {Recursive: true, Force: true}} {
				r.wantUnchanged("remove of the root and all", func() error { return r.files.Remove(r.ctx, root, o) })
			}
		}
		within := r.files.Within(r.at("keep"))
		for _, o := range []env.RemoveOptions{{}, {Recursive: true}, {Recursive: true, Force: true}} {
			r.wantUnchanged("remove of the root of Within", func() error { return within.Remove(r.ctx, r.at("keep"), o) })
		}
	}},
	{"rename", func(r *filesRig) {
		rename := func(from, to string) error {
			return r.files.Rename(r.ctx, r.at(from), r.at(to), env.RenameOptions{})
		}
		r.putWith(r.at("a"), "A", env.WriteOptions{Permissions: mode(0o640)})
		before := r.stat(r.at("a"))
		r.must(rename("a", "b"))
		if after := r.stat(r.at("b")); after.Mode != before.Mode || !after.Modified.Equal(before.Modified) {
			r.Errorf("renamed %+v is %+v", before, after)
		}
		r.wantTree(r.dir, "b=A")
		r.put(r.at("a"), "new")
		r.must(rename("a", "b"))
		r.wantTree(r.dir, "b=new")
		r.must(rename("b", "b"))
		r.wantTree(r.dir, "b=new")
		r.put(r.at("d", "x"), "x")
		r.must(r.files.Rename(r.ctx, r.at("d"), r.at("e"), env.RenameOptions{}))
		r.must(r.files.Rename(r.ctx, r.at("b"), r.at("e", "b"), env.RenameOptions{}))
		r.wantTree(r.dir, "e/", "e/b=new", "e/x=x")
		r.wantError("rename of none", rename("none", "x"), fs.ErrNotExist)
		r.wantError("rename into none", r.files.Rename(r.ctx, r.at("e"), r.at("none", "e"), env.RenameOptions{}), fs.ErrNotExist)
		r.wantUnchanged("rename into itself", func() error {
			return r.files.Rename(r.ctx, r.at("e"), r.at("e", "f"), env.RenameOptions{})
		})
	}},
	{"rename over what is there", func(r *filesRig) {
		r.put(r.at("f"), "F")
		r.put(r.at("g"), "G")
		r.put(r.at("d", "x"), "x")
		r.put(r.at("full", "y"), "y")
		over := func(from, to string, o env.RenameOptions) func() error {
			return func() error { return r.files.Rename(r.ctx, r.at(from), r.at(to), o) }
		}
		var isDirectory, notDirectory, notEmpty []error // elsewhere these have other reasons
		if r.posix() {
			isDirectory, notDirectory, notEmpty = []error{env.ErrIsDirectory}, []error{env.ErrNotDirectory}, []error{env.ErrNotEmpty}
		}
		r.wantUnchanged("a file over a directory", over("f", "d", env.RenameOptions{}), isDirectory...)
		r.wantUnchanged("a directory over a file", over("d", "f", env.RenameOptions{}), notDirectory...)
		r.wantUnchanged("a directory over a full one", over("d", "full", env.RenameOptions{}), notEmpty...)
		exclusive := env.RenameOptions{Exclusive: true}
		for _, to := range []string{"g", "d", "full"} {
			r.wantUnchanged("exclusively over "+to, over("f", to, exclusive), fs.ErrExist)
		}
		r.wantUnchanged("a directory exclusively over a file", over("d", "g", exclusive), fs.ErrExist)
		r.must(over("f", "new", exclusive)())
		r.must(over("d", "e", exclusive)())
		r.wantTree(r.dir, "e/", "e/x=x", "full/", "full/y=y", "g=G", "new=F")
		link := r.symlink("none", r.at("l"))
		r.wantUnchanged("exclusively over a dangling link", over("g", "l", exclusive), fs.ErrExist)
		r.must(r.files.Rename(r.ctx, link, r.at("m"), env.RenameOptions{}))
		r.must(over("g", "m", env.RenameOptions{})())
		r.wantTree(r.dir, "e/", "e/x=x", "full/", "full/y=y", "m=G", "new=F")
	}},
	{"attributes", func(r *filesRig) {
		file := r.at("f")
		r.putWith(file, "0123456789", env.WriteOptions{Permissions: mode(0o644)})
		set := func(a env.Attributes) error { return r.files.SetAttributes(r.ctx, file, a) }
		for _, bits := range []fs.FileMode{0o600, 0o755, 0o444, 0, 0o644} {
			r.must(set(env.Attributes{Permissions: &bits}))
			if got := r.stat(file).Mode; r.posix() && got != bits {
				r.Errorf("set to %v it is %v", bits, got)
			}
		}
		for _, when := range []time.Time{
			time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0), time.Date(2001, 2, 3, 4, 5, 6, 789_000_000, time.UTC),
			time.Date(2037, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
		} {
			r.must(set(env.Attributes{Modified: &when, Accessed: new(time.Unix(1e9, 0))}))
			if got := r.stat(file).Modified; !sameTime(got, when) {
				r.Errorf("set to %v it is of %v", when, got)
			}
		}
		when := r.stat(file).Modified
		r.must(set(env.Attributes{Accessed: new(time.Unix(1e9, 0))}))
		r.must(set(env.Attributes{Permissions: mode(0o600)}))
		r.must(set(env.Attributes{}))
		if got := r.stat(file); !got.Modified.Equal(when) || r.posix() && got.Mode != 0o600 {
			r.Errorf("what was not named was set too: %+v", got)
		}
		for _, test := range []struct {
			size int64
			want string
		}{{4, "0123"}, {6, "0123\x00\x00"}, {6, "0123\x00\x00"}, {2, "01"}, {5, "01\x00\x00\x00"}, {0, ""}} {
			r.must(set(env.Attributes{Size: &test.size}))
			r.wantContent(file, test.want)
		}
		r.wantError("a size below zero", set(env.Attributes{Size: new(int64(-1))}), env.ErrInvalid)
		dir := r.mkdir(r.at("d"))
		r.wantError("a size of a directory", r.files.SetAttributes(r.ctx, dir, env.Attributes{Size: new(int64(0))}), env.ErrIsDirectory)
		r.must(r.files.SetAttributes(r.ctx, dir, env.Attributes{Permissions: mode(0o700)}))
		if got := r.stat(dir).Mode; r.posix() && got != fs.ModeDir|0o700 {
			r.Errorf("a directory is %v", got)
		}
		r.wantError("attributes of none", r.files.SetAttributes(r.ctx, r.at("none"), env.Attributes{Permissions: mode(0o600)}), fs.ErrNotExist)
		link := r.symlink("f", r.at("l"))
		r.must(r.files.SetAttributes(r.ctx, link, env.Attributes{Permissions: mode(0o640), Modified: new(time.Unix(1e9, 0)), Size: new(int64(3))}))
		if info := r.stat(file); info.Size != 3 || r.posix() && info.Mode != 0o640 || !sameTime(info.Modified, time.Unix(1e9, 0)) {
			r.Errorf("through a link it became %+v", info)
		}
		if r.lstat(link).Mode.Type() != fs.ModeSymlink {
			r.Error("the link is none any more")
		}
	}},
	{"sync", func(r *filesRig) {
		r.put(r.at("d", "f"), "x")
		r.must(errors.Join(r.files.Sync(r.ctx, r.dir), r.files.Sync(r.ctx, r.at("d", "f"))))
		r.wantError("sync of none", r.files.Sync(r.ctx, r.at("none")), fs.ErrNotExist)
	}},
}

var linkTests = []filesTest{
	{"symbolic", func(r *filesRig) {
		for i, target := range []string{"f", "../x", "no where", "/", "a//b/./c/", "..", "x#?%20&*"} {
			link := r.symlink(target, r.at(numbered(i)))
			got, err := r.files.ReadLink(r.ctx, link)
			if !r.posix() {
				got = strings.ReplaceAll(got, `\`, "/")
			}
			if got != target || err != nil {
				r.Errorf("a link to %q reads %q, %v", target, got, err)
			}
			r.wantError("a link where one is", r.files.Symlink(r.ctx, "other", link), fs.ErrExist)
		}
		if r.posix() {
			long := strings.Repeat("long/", 200) + "\xff\x01é"
			link := r.symlink(long, r.at("long"))
			if got, err := r.files.ReadLink(r.ctx, link); got != long || err != nil || r.lstat(link).Size != int64(len(long)) {
				r.Errorf("a long link reads %q, %v", got, err)
			}
		}
		r.put(r.at("f"), "text")
		r.mkdir(r.at("d"))
		for _, name := range []string{"f", "d"} {
			_, err := r.files.ReadLink(r.ctx, r.at(name))
			r.wantError("the target of what is no link", err, env.ErrInvalid)
			r.wantError("a link where something is", r.files.Symlink(r.ctx, "x", r.at(name)), fs.ErrExist)
		}
		_, err := r.files.ReadLink(r.ctx, r.at("none"))
		r.wantError("the target of none", err, fs.ErrNotExist)
		r.wantError("a link in none", r.files.Symlink(r.ctx, "x", r.at("none", "l")), fs.ErrNotExist)
		r.wantContent(r.at("f"), "text")
	}},
	{"hard", func(r *filesRig) {
		r.put(r.at("a"), "text")
		r.hardlink(r.at("a"), r.at("b"))
		for _, name := range []string{"a", "b"} {
			if links := r.stat(r.at(name)).Links; links != 2 && links != 0 {
				r.Errorf("%s has %d names", name, links)
			}
		}
		r.putWith(r.at("b"), "!", env.WriteOptions{Mode: env.Append})
		r.wantTree(r.dir, "a=text!", "b=text!")
		r.must(r.files.Remove(r.ctx, r.at("a"), env.RemoveOptions{}))
		r.wantTree(r.dir, "b=text!")
		r.wantError("another name of none", r.files.Link(r.ctx, r.at("none"), r.at("c")), fs.ErrNotExist)
		r.put(r.at("there"), "x")
		r.wantError("a name that is taken", r.files.Link(r.ctx, r.at("b"), r.at("there")), fs.ErrExist)
		r.mkdir(r.at("d"))
		r.wantError("another name of a directory", r.files.Link(r.ctx, r.at("d"), r.at("e")))
		r.wantError("a name in none", r.files.Link(r.ctx, r.at("b"), r.at("none", "b")), fs.ErrNotExist)
		r.wantTree(r.dir, "b=text!", "d/", "there=x")
		link := r.symlink("b", r.at("l"))
		r.hardlink(link, r.at("m"))
		r.wantTree(r.dir, "b=text!", "d/", "l→b", "m→b", "there=x")
	}},
}

var copyTests = []filesTest{
	{"a file", func(r *filesRig) {
		when := time.Date(2001, 2, 3, 4, 5, 6, 789_000_000, time.UTC)
		want := string(content(3, 300_000))
		r.putWith(r.at("a"), want, env.WriteOptions{Permissions: mode(0o751), Modified: when})
		for range 2 {
			r.must(r.files.Copy(r.ctx, r.at("a"), r.at("b"), env.CopyOptions{}))
			r.wantContent(r.at("b"), want)
			if info := r.stat(r.at("b")); r.posix() && info.Mode != 0o751 || !sameTime(info.Modified, when) || info.Links > 1 {
				r.Errorf("the copy is %+v", info)
			}
			r.put(r.at("b"), "something else")
			r.wantContent(r.at("a"), want)
		}
		r.put(r.at("c"), "c")
		r.wantUnchanged("an exclusive copy", func() error {
			return r.files.Copy(r.ctx, r.at("a"), r.at("c"), env.CopyOptions{Exclusive: true})
		}, fs.ErrExist)
		r.must(r.files.Copy(r.ctx, r.at("a"), r.at("d"), env.CopyOptions{Exclusive: true}))
		r.wantContent(r.at("d"), want)
		r.wantError("a copy of none", r.files.Copy(r.ctx, r.at("none"), r.at("e"), env.CopyOptions{Recursive: true}), fs.ErrNotExist)
		r.wantError("a copy into none", r.files.Copy(r.ctx, r.at("a"), r.at("none", "e"), env.CopyOptions{}), fs.ErrNotExist)
	}},
	{"a tree", func(r *filesRig) {
		when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
		r.putWith(r.at("s", "d", "f"), "F", env.WriteOptions{Permissions: mode(0o700)})
		r.put(r.at("s", "g"), "G")
		r.mkdir(r.at("s", "empty"))
		want := []string{"d/", "d/f=F", "empty/", "g=G"}
		if r.posix() {
			r.symlink("../g", r.at("s", "d", "l"))
			r.symlink("/no where", r.at("s", "dangling"))
			r.symlink("d", r.at("s", "ld"))
			want = []string{"d/", "d/f=F", "d/l→../g", "dangling→/no where", "empty/", "g=G", "ld→d"}
		}
		for path, bits := range map[pathuri.URI]fs.FileMode{r.at("s", "d"): 0o750, r.at("s"): 0o711} {
			r.must(r.files.SetAttributes(r.ctx, path, env.Attributes{Permissions: &bits, Modified: &when}))
		}
		r.wantUnchanged("a copy that is not recursive", func() error {
			return r.files.Copy(r.ctx, r.at("s"), r.at("t"), env.CopyOptions{})
		}, env.ErrIsDirectory)
		r.must(r.files.Copy(r.ctx, r.at("s"), r.at("t"), env.CopyOptions{Recursive: true}))
		r.wantTree(r.at("t"), want...)
		r.wantTree(r.at("s"), want...)
		for path, bits := range map[pathuri.URI]fs.FileMode{r.at("t", "d"): fs.ModeDir | 0o750, r.at("t"): fs.ModeDir | 0o711, r.at("t", "d", "f"): 0o700} {
			info := r.stat(path)
			if r.posix() && (info.Mode != bits || info.Mode.IsDir() && !sameTime(info.Modified, when)) {
				r.Errorf("%q became %+v", path, info)
			}
		}
		r.wantUnchanged("an exclusive copy", func() error {
			return r.files.Copy(r.ctx, r.at("s"), r.at("t"), env.CopyOptions{Recursive: true, Exclusive: true})
		}, fs.ErrExist)
	}},
	{"into what is there", func(r *filesRig) {
		r.put(r.at("s", "d", "f"), "new")
		r.put(r.at("s", "g"), "new")
		r.put(r.at("t", "d", "f"), "old")
		r.put(r.at("t", "d", "h"), "stays")
		r.must(r.files.Copy(r.ctx, r.at("s"), r.at("t"), env.CopyOptions{Recursive: true}))
		r.wantTree(r.at("t"), "d/", "d/f=new", "d/h=stays", "g=new")
		r.wantUnchanged("a file onto a directory", func() error {
			return r.files.Copy(r.ctx, r.at("s", "g"), r.at("t"), env.CopyOptions{Recursive: true})
		}, env.ErrIsDirectory)
		r.wantUnchanged("a directory onto a file", func() error {
			return r.files.Copy(r.ctx, r.at("s"), r.at("t", "g"), env.CopyOptions{Recursive: true})
		})
	}},
	{"onto or into itself", func(r *filesRig) {
		r.put(r.at("s", "a"), "A")
		r.put(r.at("f"), "F")
		refused := func(what string, from, to pathuri.URI) {
			r.Helper()
			for _, recursive := range []bool{true, false} {
				r.wantUnchanged(what, func() error {
					return r.files.Copy(r.ctx, from, to, env.CopyOptions{Recursive: recursive})
				})
			}
		}
		refused("a file onto itself", r.at("f"), r.at("f"))
		refused("a directory onto itself", r.at("s"), r.at("s"))
		refused("a directory into itself", r.at("s"), r.at("s", "b"))
		refused("a directory far into itself", r.at("s"), r.at("s", "x", "y"))
		r.mkdir(r.at("s", "c"))
		refused("a directory into one of its own", r.at("s"), r.at("s", "c"))
		r.hardlink(r.at("f"), r.at("g"))
		refused("a file onto another name of it", r.at("f"), r.at("g"))
		link := r.symlink("s", r.at("l"))
		refused("a directory into itself through a link", r.at("s"), r.under(link, "d"))
		r.symlink("f", r.at("lf"))
		refused("a file onto a link to it", r.at("f"), r.at("lf"))
		// What only looks alike.
		r.must(r.files.Copy(r.ctx, r.at("s"), r.at("s2"), env.CopyOptions{Recursive: true}))
		r.wantTree(r.at("s2"), "a=A", "c/")
	}},
	{"a link", func(r *filesRig) {
		r.put(r.at("f"), "F")
		link := r.symlink("f", r.at("l"))
		r.must(r.files.Copy(r.ctx, link, r.at("m"), env.CopyOptions{}))
		r.must(r.files.Copy(r.ctx, r.symlink("none", r.at("dangling")), r.at("n"), env.CopyOptions{Recursive: true}))
		r.wantTree(r.dir, "dangling→none", "f=F", "l→f", "m→f", "n→none")
	}},
	{"holes", func(r *filesRig) {
		const hole = 8 << 20
		w, err := r.files.Write(r.ctx, r.at("a"), env.WriteOptions{Unsynced: true})
		r.must(err)
		defer w.Close()
		_, err = w.Write([]byte("a"))
		r.must(errors.Join(err, w.Skip(hole)))
		_, err = w.Write([]byte("z"))
		r.must(err)
		_, err = w.Commit()
		r.must(err)
		r.must(r.files.Copy(r.ctx, r.at("a"), r.at("b"), env.CopyOptions{}))
		from, to := r.stat(r.at("a")), r.stat(r.at("b"))
		if to.Size != hole+2 {
			r.Errorf("the copy has %d bytes", to.Size)
		}
		if from.Allocated >= 0 && from.Allocated < hole/4 && to.Allocated > hole/2 {
			r.Errorf("a file that takes %d bytes has a copy that takes %d", from.Allocated, to.Allocated)
		}
		r.wantContent(r.at("b"), "a"+string(make([]byte, hole))+"z")
	}},
}
