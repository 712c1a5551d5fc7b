package envtest

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"waldo/env"
	"waldo/pathuri"
)

var manyTests = []filesTest{
	{"read", func(r *filesRig) {
		var paths []pathuri.URI
		var want []string
		add := func(path pathuri.URI, what string) { paths, want = append(paths, path), append(want, what) }
		for i := range 300 {
			text := string(content(uint64(i), i*i%5000))
			r.put(r.at(numbered(i)), text)
			add(r.at(numbered(i)), text)
			switch i {
			case 7:
				add(r.at("none"), "no such file")
			case 8:
				add(r.dir, "a directory")
			case 9:
				r.put(r.at("large"), string(content(1, 5001)))
				add(r.at("large"), "too large")
			}
		}
		i := 0
		for got, err := range r.files.ReadFiles(r.ctx, paths, 5000) {
			r.must(err)
			if got.Path != paths[i] {
				r.Fatalf("file %d is %q, want %q", i, got.Path, paths[i])
			}
			switch want[i] {
			case "no such file":
				r.wantError("none", got.Err, fs.ErrNotExist)
			case "a directory":
				r.wantError("a directory", got.Err, env.ErrIsDirectory)
			case "too large":
				r.wantError("a large one", got.Err, env.ErrTooLarge)
			default:
				if got.Err != nil || string(got.Data) != want[i] || got.Info.Size != int64(len(want[i])) || !got.Info.Mode.IsRegular() {
					r.Errorf("%q: %d bytes, want %d; %+v, %v", got.Path, len(got.Data), len(want[i]), got.Info, got.Err)
				}
			}
			i++
		}
		if i != len(paths) {
			r.Errorf("%d files, want %d", i, len(paths))
		}
		for range r.files.ReadFiles(r.ctx, paths, 5000) { // breaking off
			break
		}
		for got, err := range r.files.ReadFiles(r.ctx, nil, 5000) {
			r.Errorf("of none %+v, %v", got, err)
		}
	}},
	{"write", func(r *filesRig) {
		var files []env.FileContent
		for i := range 300 {
			files = append(files, env.FileContent{
				Path: r.at("d", numbered(i)), Data: content(uint64(i), i*i%5000), Options: env.WriteOptions{Parents: true, Unsynced: true},
			})
		}
		r.mkdir(r.at("taken"))
		r.putWith(r.at("old"), "old", env.WriteOptions{Permissions: mode(0o640)})
		files = append(files,
			env.FileContent{Path: r.at("taken"), Data: []byte("x")},
			env.FileContent{Path: r.at("none", "f"), Data: []byte("x")},
			env.FileContent{Path: r.at("old"), Data: []byte("new"), Options: env.WriteOptions{Permissions: mode(0o600), KeepPermissions: true}},
			env.FileContent{Path: r.at("new"), Data: []byte("new"), Options: env.WriteOptions{Permissions: mode(0o600), KeepPermissions: true}})
		errs, err := r.files.WriteFiles(r.ctx, files)
		r.must(err)
		if len(errs) != len(files) {
			r.Fatalf("%d errors of %d files", len(errs), len(files))
		}
		r.wantError("over a directory", errs[300], env.ErrIsDirectory)
		r.wantError("in none", errs[301], fs.ErrNotExist)
		if err := errors.Join(append(slices.Clone(errs[:300]), errs[302:]...)...); err != nil {
			r.Error(err)
		}
		for i := range 300 {
			r.wantContent(r.at("d", numbered(i)), string(files[i].Data))
		}
		for name, bits := range map[string]fs.FileMode{"old": 0o640, "new": 0o600} {
			r.wantContent(r.at(name), "new")
			if got := r.stat(r.at(name)).Mode; r.posix() && got != bits {
				r.Errorf("%s has %v, want %v", name, got, bits)
			}
		}
		none, err := r.files.WriteFiles(r.ctx, nil)
		if err != nil || len(none) != 0 {
			r.Errorf("of none %v, %v", none, err)
		}
	}},
	{"what cannot be done again", func(r *filesRig) {
		r.put(r.at("f"), "old")
		for _, how := range []env.WriteMode{env.Append, env.Patch, env.Exclusive} {
			errs, err := r.files.WriteFiles(r.ctx, []env.FileContent{{Path: r.at("f"), Data: []byte("x"), Options: env.WriteOptions{Mode: how}}})
			r.wantError(string(how), errors.Join(append(errs, err)...), env.ErrInvalid)
		}
		r.wantTree(r.dir, "f=old")
	}},
	{"within", func(r *filesRig) {
		r.put(r.at("in", "f"), "in")
		r.put(r.at("out"), "out")
		within := r.files.Within(r.at("in"))
		for got, err := range within.ReadFiles(r.ctx, []pathuri.URI{r.at("in", "f"), r.at("out")}, 10) {
			r.must(err)
			if got.Path == r.at("out") {
				r.wantError("what is outside", got.Err, fs.ErrPermission)
			} else if string(got.Data) != "in" {
				r.Errorf("%+v", got)
			}
		}
		errs, err := within.WriteFiles(r.ctx, []env.FileContent{{Path: r.at("out"), Data: []byte("x")}, {Path: r.at("in", "g"), Data: []byte("y")}})
		r.must(err)
		r.wantError("what is outside", errs[0], fs.ErrPermission)
		r.must(errs[1])
		r.wantTree(r.dir, "in/", "in/f=in", "in/g=y", "out=out")
	}},
	{"more than one call carries", func(r *filesRig) {
		var files []env.FileContent
		var paths []pathuri.URI
		for i := range 30 {
			paths = append(paths, r.at(fmt.Sprintf("large%d", i)))
			files = append(files, env.FileContent{Path: paths[i], Data: content(uint64(i), 1<<20), Options: env.WriteOptions{Unsynced: true}})
		}
		errs, err := r.files.WriteFiles(r.ctx, files)
		r.must(errors.Join(append(errs, err)...))
		i := 0
		for got, err := range r.files.ReadFiles(r.ctx, paths, 1<<20) {
			r.must(errors.Join(err, got.Err))
			if string(got.Data) != string(files[i].Data) {
				r.Errorf("%q has other content", got.Path)
			}
			i++
		}
		if i != len(paths) {
			r.Errorf("%d files", i)
		}
	}},
}
