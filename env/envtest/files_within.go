package envtest

import (
	"errors"
	"io/fs"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

var withinTests = []filesTest{
	{"inside", func(r *filesRig) {
		root := r.mkdir(r.at("root"))
		in := *r
		in.files = r.files.Within(root)
		in.put(in.under(root, "d", "f"), "text")
		in.wantContent(in.under(root, "d", "f"), "text")
		if !in.stat(root).Mode.IsDir() {
			r.Error("the root is no directory")
		}
		in.mkdir(in.under(root, "e"))
		in.must(in.files.Rename(r.ctx, in.under(root, "d", "f"), in.under(root, "e", "g"), env.RenameOptions{}))
		in.must(in.files.Copy(r.ctx, in.under(root, "e"), in.under(root, "e2"), env.CopyOptions{Recursive: true}))
		in.putWith(in.under(root, "e", "g"), "!", env.WriteOptions{Mode: env.Append})
		in.must(in.files.SetAttributes(r.ctx, in.under(root, "e", "g"), env.Attributes{Permissions: mode(0o600)}))
		in.must(in.files.Sync(r.ctx, in.under(root, "e")))
		in.must(in.files.Remove(r.ctx, in.under(root, "d"), env.RemoveOptions{}))
		in.wantTree(root, "e/", "e/g=text!", "e2/", "e2/g=text")
		got, err := entries(in.files.List(r.ctx, root))
		if len(got) != 2 || err != nil {
			r.Errorf("%+v, %v", got, err)
		}
		whole, err := r.files.Canonicalize(r.ctx, in.under(root, "e"))
		r.must(err)
		if got, err := in.files.Canonicalize(r.ctx, in.under(root, "e")); got != whole || err != nil {
			r.Errorf("canonical is %q, %v, want %q", got, err, whole)
		}
		in.hardlink(in.under(root, "e", "g"), in.under(root, "h"))
		in.wantContent(in.under(root, "h"), "text!")
		in.symlink("e/g", in.under(root, "l"))
		in.symlink("../l", in.under(root, "e", "m"))
		in.symlink("e", in.under(root, "le"))
		in.wantContent(in.under(root, "le", "m"), "text!")
		in.put(in.under(root, "le", "m"), "by links")
		in.wantTree(root, "e/", "e/g=by links", "e/m→../l", "e2/", "e2/g=text", "h=by links", "l→e/g", "le→e")
		in.must(in.files.Remove(r.ctx, in.under(root, "e"), env.RemoveOptions{Recursive: true}))
	}},
	{"outside", func(r *filesRig) {
		root := r.mkdir(r.at("root"))
		r.put(r.at("root2", "f"), "outside")
		r.put(r.at("f"), "outside")
		r.put(r.at("fine"), "outside")
		r.put(r.under(root, "fine"), "fine")
		within := r.files.Within(root)
		before := r.tree(r.dir)
		for _, path := range []pathuri.URI{r.at("f"), r.at("root2"), r.at("root2", "f"), r.at("none"), r.dir} {
			for name, err := range r.callsFrom(within, root, path) {
				r.wantError(name+" of "+path.String(), err, fs.ErrPermission)
			}
		}
		nested := within.Within(r.at("root2"))
		for _, path := range []pathuri.URI{r.at("root2", "f"), r.under(root, "fine")} {
			_, err := nested.Stat(r.ctx, path, true)
			r.wantError("stat within what is outside", err, fs.ErrPermission)
		}
		r.mkdir(r.under(root, "d"))
		narrow := within.Within(r.under(root, "d"))
		_, err := narrow.Stat(r.ctx, r.under(root, "fine"), true)
		r.wantError("stat outside of the narrower", err, fs.ErrPermission)
		_, err = narrow.Stat(r.ctx, r.under(root, "d"), true)
		r.must(err)
		r.must(r.files.Remove(r.ctx, r.under(root, "d"), env.RemoveOptions{}))
		r.wantTree(r.dir, before...)
		for name, err := range map[string]error{
			"rename from": within.Rename(r.ctx, root, r.under(root, "x"), env.RenameOptions{}),
			"rename to":   within.Rename(r.ctx, r.under(root, "fine"), root, env.RenameOptions{}),
		} {
			r.wantError(name+" the root", err)
		}
		r.wantTree(r.dir, before...)
		// Dots cannot be spelled: they are gone before any machine sees them.
		up, err := root.Join("d/../../f")
		r.must(err)
		_, _, err = env.ReadFile(r.ctx, within, up, 100)
		r.wantError("read of "+up.String(), err, fs.ErrPermission)
	}},
	{"links that lead out", func(r *filesRig) {
		root := r.mkdir(r.at("root"))
		r.put(r.at("out", "f"), "outside")
		r.put(r.under(root, "fine"), "fine")
		within := r.files.Within(root)
		r.symlink("../out", r.under(root, "dir"))
		r.symlink("../out/f", r.under(root, "file"))
		r.symlink("..", r.under(root, "up"))
		absolute := r.native(r.at("out"))
		r.symlink(absolute, r.under(root, "absolute"))
		r.symlink("../out/new", r.under(root, "new"))
		r.symlink("up/out", r.under(root, "twice"))
		r.symlink("../root/../out", r.under(root, "back"))
		want := []string{
			"absolute→" + absolute, "back→../root/../out", "dir→../out", "file→../out/f", "fine=fine", "new→../out/new",
			"twice→up/out", "up→..",
		}
		r.wantTree(root, want...)
		for _, path := range []pathuri.URI{
			r.under(root, "dir", "f"), r.under(root, "up", "out", "f"), r.under(root, "absolute", "f"), r.under(root, "twice", "f"),
			r.under(root, "back", "f"), r.under(root, "up", "f"), r.under(root, "dir", "none"),
		} {
			for name, err := range r.callsFrom(within, root, path) {
				r.wantError(name+" of "+path.String(), err, fs.ErrPermission)
			}
		}
		for _, name := range []string{"file", "dir", "absolute", "up", "twice", "back", "new"} {
			link := r.under(root, name)
			_, err := within.Stat(r.ctx, link, true)
			r.wantError("stat of "+name, err, fs.ErrPermission)
			_, err = within.Canonicalize(r.ctx, link)
			r.wantError("canonicalize of "+name, err, fs.ErrPermission)
			_, err = entries(within.List(r.ctx, link))
			r.wantError("list of "+name, err, fs.ErrPermission)
			_, err = entries(within.Walk(r.ctx, link, env.WalkOptions{}))
			r.wantError("walk of "+name, err, fs.ErrPermission)
			_, _, err = env.ReadFile(r.ctx, within, link, 100)
			r.wantError("read of "+name, err, fs.ErrPermission)
			for _, mode := range []env.WriteMode{env.Replace, env.Append, env.Patch} {
				_, err = env.WriteFile(r.ctx, within, link, []byte("x"), env.WriteOptions{Mode: mode})
				r.wantError(string(mode)+" of "+name, err, fs.ErrPermission)
			}
			r.wantError("attributes of "+name, within.SetAttributes(r.ctx, link, env.Attributes{Permissions: mode(0)}), fs.ErrPermission)
			// The link itself is inside.
			if info, err := within.Stat(r.ctx, link, false); info.Mode.Type() != fs.ModeSymlink || err != nil {
				r.Errorf("itself %s is %v, %v", name, info.Mode, err)
			}
			if _, err := within.ReadLink(r.ctx, link); err != nil {
				r.Errorf("its target: %v", err)
			}
		}
		r.wantTree(root, want...)
		r.wantTree(r.at("out"), "f=outside")
		got, err := entries(within.Walk(r.ctx, root, env.WalkOptions{}))
		if len(got) != 1+len(want) || err != nil {
			r.Errorf("%d entries, %v", len(got), err)
		}
		r.must(within.Copy(r.ctx, r.under(root, "dir"), r.under(root, "copy"), env.CopyOptions{Recursive: true}))
		for _, name := range []string{"dir", "copy", "absolute", "up"} {
			r.must(within.Remove(r.ctx, r.under(root, name), env.RemoveOptions{Recursive: true}))
		}
		r.wantTree(root, "back→../root/../out", "file→../out/f", "fine=fine", "new→../out/new", "twice→up/out")
		r.wantTree(r.at("out"), "f=outside")
	}},
	{"what is swapped meanwhile", func(r *filesRig) {
		// A directory and a link that leads out take turns under one name.
		root := r.mkdir(r.at("root"))
		r.put(r.at("out", "f"), "outside")
		r.put(r.under(root, "d", "f"), "inside")
		r.symlink("../out", r.under(root, "l"))
		within := r.files.Within(root)
		stop, done := make(chan struct{}), make(chan error, 1)
		paths := map[string]pathuri.URI{}
		for _, name := range []string{"d", "l", "t"} {
			paths[name] = r.under(root, name)
		}
		go func() {
			var err error
			defer func() { done <- err }()
			for {
				for _, step := range [][2]string{{"d", "t"}, {"l", "d"}, {"d", "l"}, {"t", "d"}} {
					if err = r.files.Rename(r.ctx, paths[step[0]], paths[step[1]], env.RenameOptions{}); err != nil {
						return
					}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		// What is met is the directory, nothing, or a link that is refused, in a word that depends on the moment.
		refused := func(err error) bool {
			return errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, env.ErrNotDirectory)
		}
		var inside int
		for i := range 300 {
			path := r.under(root, "d", "f")
			if i%3 == 2 {
				_, err := env.WriteFile(r.ctx, within, path, []byte("inside"), env.WriteOptions{Mode: env.Patch, Unsynced: true})
				if err != nil && !refused(err) {
					r.Fatal(err)
				}
				continue
			}
			got, _, err := env.ReadFile(r.ctx, within, path, 100)
			switch {
			case err == nil && string(got) == "inside":
				inside++
			case err == nil:
				r.Fatalf("it read %q", got)
			case !refused(err):
				r.Fatal(err)
			}
		}
		close(stop)
		r.must(<-done)
		r.wantContent(r.at("out", "f"), "outside")
		r.Logf("%d of 200 reads met the directory", inside)
	}},
}

// callsFrom is calls of files on path, where what else a call needs lies in the directory root.
func (r *filesRig) callsFrom(files env.Files, root, path pathuri.URI) map[string]error {
	r.Helper()
	rig := *r
	rig.dir = root
	calls := rig.calls(files, path)
	for name, err := range calls {
		if err == nil && strings.HasPrefix(name, "remove") {
			r.Fatalf("%s of %q was done", name, path)
		}
	}
	return calls
}
