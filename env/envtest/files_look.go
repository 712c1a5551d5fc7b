package envtest

import (
	"io/fs"
	"slices"
	"strings"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

var describeTests = []filesTest{
	{"paths", func(r *filesRig) {
		if r.Describer == nil {
			r.Skip("no describer")
		}
		info, err := r.Describer.Describe(r.ctx)
		r.must(err)
		if info.Paths != r.dir.Convention() {
			r.Errorf("it has %s paths, and the directory %q", info.Paths, r.dir)
		}
		for name, uri := range map[string]pathuri.URI{"temp": info.Temp, "directory": info.Directory} {
			if !uri.IsZero() && !r.stat(uri).Mode.IsDir() {
				r.Errorf("%s %q is no directory", name, uri)
			}
		}
	}},
}

var statTests = []filesTest{
	{"kinds", func(r *filesRig) {
		file, dir := r.at("f"), r.mkdir(r.at("d"))
		r.putWith(file, "12345", env.WriteOptions{Permissions: mode(0o640)})
		info := r.lstat(file)
		if !info.Mode.IsRegular() || info.Size != 5 || info.Version == "" || info.Links > 1 {
			r.Errorf("a file is %+v", info)
		}
		if r.posix() && info.Mode != 0o640 {
			r.Errorf("a file with 0640 has %v", info.Mode)
		}
		if age := time.Since(info.Modified); r.Here && age.Abs() > time.Hour {
			r.Errorf("a new file is %v old", age)
		}
		if again := r.stat(file); !sameInfo(again, info) {
			r.Errorf("followed it is %+v, itself %+v", again, info)
		}
		if info := r.stat(dir); !info.Mode.IsDir() {
			r.Errorf("a directory is %v", info.Mode)
		}
		r.put(r.at("empty"), "")
		if info := r.stat(r.at("empty")); info.Size != 0 || !info.Mode.IsRegular() {
			r.Errorf("an empty file is %+v", info)
		}
	}},
	{"links", func(r *filesRig) {
		file := r.at("f")
		r.put(file, "12345")
		link := r.symlink("f", r.at("l"))
		if info := r.lstat(link); info.Mode.Type() != fs.ModeSymlink || r.posix() && info.Size != 1 {
			r.Errorf("a link is %+v", info)
		}
		if got, want := r.stat(link), r.stat(file); !sameInfo(got, want) {
			r.Errorf("through a link a file is %+v, and itself %+v", got, want)
		}
		dangling, loop := r.symlink("none", r.at("dangling")), r.symlink("loop", r.at("loop"))
		for _, link := range []pathuri.URI{dangling, loop} {
			if info := r.lstat(link); info.Mode.Type() != fs.ModeSymlink {
				r.Errorf("%q is %v", link, info.Mode)
			}
		}
		_, err := r.files.Stat(r.ctx, dangling, true)
		r.wantError("stat through a dangling link", err, fs.ErrNotExist)
		_, err = r.files.Stat(r.ctx, loop, true)
		r.wantError("stat through a loop", err)
		r.mkdir(r.at("d"))
		r.put(r.at("d", "x"), "in d")
		r.symlink("d", r.at("ld"))
		r.wantContent(r.at("ld", "x"), "in d")
	}},
	{"what is not there", func(r *filesRig) {
		r.put(r.at("f"), "x")
		_, err := r.files.Stat(r.ctx, r.at("none"), true)
		r.wantError("stat of none", err, fs.ErrNotExist)
		if err != nil && !strings.Contains(err.Error(), "none") {
			r.Errorf("%q does not name the path", err)
		}
		_, err = r.files.Stat(r.ctx, r.at("none", "x"), false)
		r.wantError("stat below none", err, fs.ErrNotExist)
		_, err = r.files.Stat(r.ctx, r.at("f", "x"), false)
		if r.posix() {
			r.wantError("stat below a file", err, env.ErrNotDirectory)
		} else {
			r.wantError("stat below a file", err)
		}
	}},
	{"what can never be", func(r *filesRig) {
		other := "file:///C:/x"
		if !r.posix() {
			other = "file:///etc/x"
		}
		for _, uri := range []pathuri.URI{{}, mustParse(other)} {
			for name, err := range r.everyCall(r.files, uri) {
				r.wantError(name+" of "+uri.String(), err)
				if uri.IsZero() {
					r.wantError(name+" of no path", err, env.ErrInvalid)
				}
			}
		}
	}},
	{"version", func(r *filesRig) {
		file := r.at("f")
		r.put(file, "one")
		first := r.stat(file).Version
		if again := r.stat(file).Version; again != first {
			r.Errorf("the version of what stays is %q, then %q", first, again)
		}
		r.put(file, "two")
		second := r.stat(file).Version
		_, err := env.WriteFile(r.ctx, r.files, file, []byte("!"), env.WriteOptions{Mode: env.Append})
		r.must(err)
		if third := r.stat(file).Version; first == second || second == third || first == third {
			r.Errorf("versions of three contents are %q, %q, %q", first, second, third)
		}
	}},
	{"canonicalize", func(r *filesRig) {
		dir, err := r.files.Canonicalize(r.ctx, r.dir)
		r.must(err)
		r.put(r.at("d", "f"), "x")
		want := r.under(dir, "d", "f")
		if got, err := r.files.Canonicalize(r.ctx, r.at("d", "f")); got != want || err != nil {
			r.Errorf("it is %q, %v, want %q", got, err, want)
		}
		_, err = r.files.Canonicalize(r.ctx, r.at("none"))
		r.wantError("canonicalize of none", err, fs.ErrNotExist)
		r.symlink("d", r.at("l"))
		r.symlink("../l/f", r.at("d", "m"))
		if got, err := r.files.Canonicalize(r.ctx, r.at("l", "m")); got != want || err != nil {
			r.Errorf("through links it is %q, %v, want %q", got, err, want)
		}
		r.symlink("none", r.at("dangling"))
		_, err = r.files.Canonicalize(r.ctx, r.at("dangling"))
		r.wantError("canonicalize of a dangling link", err, fs.ErrNotExist)
	}},
}

// everyCall makes every call of files on path, each of which has to fail for the same reason.
func (r *filesRig) everyCall(files env.Files, path pathuri.URI) map[string]error {
	if _, err := r.files.Stat(r.ctx, r.at("fine"), false); err != nil {
		r.put(r.at("fine"), "fine")
	}
	return r.calls(files, path)
}

// calls is everyCall where the file "fine" is there.
func (r *filesRig) calls(files env.Files, path pathuri.URI) map[string]error {
	fine := r.at("fine")
	calls := map[string]error{}
	_, calls["stat"] = files.Stat(r.ctx, path, true)
	_, calls["lstat"] = files.Stat(r.ctx, path, false)
	_, calls["read link"] = files.ReadLink(r.ctx, path)
	_, calls["canonicalize"] = files.Canonicalize(r.ctx, path)
	_, calls["list"] = entries(files.List(r.ctx, path))
	_, calls["walk"] = entries(files.Walk(r.ctx, path, env.WalkOptions{}))
	_, _, calls["read"] = env.ReadFile(r.ctx, files, path, 100)
	for _, mode := range []env.WriteMode{"", env.Replace, env.Exclusive, env.Append, env.Patch} {
		_, calls["write "+string(mode)] = env.WriteFile(r.ctx, files, path, []byte("x"), env.WriteOptions{Mode: mode, Parents: true})
	}
	calls["mkdir"] = files.Mkdir(r.ctx, path, env.MkdirOptions{})
	calls["mkdir with parents"] = files.Mkdir(r.ctx, path, env.MkdirOptions{Parents: true})
	calls["remove"] = files.Remove(r.ctx, path, env.RemoveOptions{})
	calls["remove recursively"] = files.Remove(r.ctx, path, env.RemoveOptions{Recursive: true, Force: true})
	calls["rename from"] = files.Rename(r.ctx, path, r.at("to"), env.RenameOptions{})
	calls["rename to"] = files.Rename(r.ctx, fine, path, env.RenameOptions{})
	calls["copy from"] = files.Copy(r.ctx, path, r.at("to"), env.CopyOptions{Recursive: true})
	calls["copy to"] = files.Copy(r.ctx, fine, path, env.CopyOptions{Recursive: true})
	calls["symlink"] = files.Symlink(r.ctx, "target", path)
	calls["link from"] = files.Link(r.ctx, path, r.at("to"))
	calls["link to"] = files.Link(r.ctx, fine, path)
	calls["set attributes"] = files.SetAttributes(r.ctx, path, env.Attributes{Permissions: mode(0o600)})
	calls["sync"] = files.Sync(r.ctx, path)
	return calls
}

var listTests = []filesTest{
	{"what is in it", func(r *filesRig) {
		r.put(r.at("f"), "12345")
		r.put(r.at("d", "below"), "x")
		want := map[pathuri.URI]fs.FileMode{r.at("f"): 0, r.at("d"): fs.ModeDir}
		targets := map[pathuri.URI]string{}
		if r.posix() {
			for name, target := range map[string]string{"dangling": "no where", "loop": "loop", "ld": "d"} {
				link := r.symlink(target, r.at(name))
				want[link], targets[link] = fs.ModeSymlink, target
			}
		}
		got, err := entries(r.files.List(r.ctx, r.dir))
		r.must(err)
		if len(got) != len(want) {
			r.Errorf("%d entries, want %d", len(got), len(want))
		}
		for _, entry := range got {
			kind, ok := want[entry.Path]
			if !ok || entry.Err != nil || entry.Info.Mode.Type() != kind || entry.Target != targets[entry.Path] {
				r.Errorf("entry %+v", entry)
			}
			delete(want, entry.Path)
			if entry.Path == r.at("f") && (entry.Info.Size != 5 || !sameTime(entry.Info.Modified, r.stat(entry.Path).Modified)) {
				r.Errorf("a file is listed as %+v", entry.Info)
			}
		}
	}},
	{"through a link", func(r *filesRig) {
		r.put(r.at("d", "f"), "x")
		link := r.symlink("d", r.at("l"))
		got, err := entries(r.files.List(r.ctx, link))
		if err != nil || len(got) != 1 || got[0].Path != r.under(link, "f") {
			r.Errorf("%+v, %v", got, err)
		}
	}},
	{"nothing in it", func(r *filesRig) {
		if got, err := entries(r.files.List(r.ctx, r.dir)); len(got) != 0 || err != nil {
			r.Errorf("%+v, %v", got, err)
		}
	}},
	{"no directory", func(r *filesRig) {
		r.put(r.at("f"), "x")
		_, err := entries(r.files.List(r.ctx, r.at("f")))
		r.wantError("list of a file", err, env.ErrNotDirectory)
		_, err = entries(r.files.List(r.ctx, r.at("none")))
		r.wantError("list of none", err, fs.ErrNotExist)
	}},
	{"many, and breaking off", func(r *filesRig) {
		const many = 1500
		dir := r.mkdir(r.at("d"))
		r.parallel(many, func(i int) error {
			_, err := env.WriteFile(r.ctx, r.files, r.under(dir, numbered(i)), nil, env.WriteOptions{Mode: env.Exclusive, Unsynced: true})
			return err
		})
		got, err := entries(r.files.List(r.ctx, dir))
		r.must(err)
		var names []string
		for _, entry := range got {
			name, _ := entry.Path.Base()
			names = append(names, name)
		}
		slices.Sort(names)
		if names = slices.Compact(names); len(got) != many || len(names) != many {
			r.Errorf("%d entries, %d names, want %d", len(got), len(names), many)
		}
		for range 3 {
			seen := 0
			for _, err := range r.files.List(r.ctx, dir) {
				r.must(err)
				if seen++; seen == 10 {
					break
				}
			}
			if seen != 10 {
				r.Errorf("%d entries before breaking off", seen)
			}
		}
	}},
	{"while it changes", func(r *filesRig) {
		dir := r.at("d")
		r.put(r.under(dir, "stays"), "x")
		done := make(chan error, 1)
		stop := make(chan struct{})
		go func() {
			var err error
			defer func() { done <- err }()
			for i := 0; err == nil; i++ {
				select {
				case <-stop:
					return
				default:
				}
				path, _ := dir.JoinName(numbered(i % 7))
				if _, err = env.WriteFile(r.ctx, r.files, path, nil, env.WriteOptions{Unsynced: true}); err == nil {
					err = r.files.Remove(r.ctx, path, env.RemoveOptions{})
				}
			}
		}()
		for range 50 {
			got, err := entries(r.files.List(r.ctx, dir))
			if err != nil || !slices.ContainsFunc(got, func(e env.Entry) bool { return e.Path == r.under(dir, "stays") }) {
				r.Errorf("%d entries, %v", len(got), err)
			}
			for _, entry := range got {
				if entry.Err != nil {
					r.Errorf("%q: %v", entry.Path, entry.Err)
				}
			}
		}
		close(stop)
		r.must(<-done)
	}},
}

var walkTests = []filesTest{
	{"order", func(r *filesRig) {
		root := r.at("w")
		r.put(r.under(root, "a", "z"), "1")
		r.put(r.under(root, "a", "y", "x"), "2")
		r.put(r.under(root, "a.b"), "3")
		r.put(r.under(root, "B"), "4")
		r.mkdir(r.under(root, "e"))
		got, err := entries(r.files.Walk(r.ctx, root, env.WalkOptions{}))
		r.must(err)
		var names []string
		for _, entry := range got {
			name, _ := root.Rel(entry.Path)
			names = append(names, name)
			if entry.Err != nil {
				r.Errorf("%q: %v", entry.Path, entry.Err)
			}
		}
		want := []string{"", "B", "a", "a/y", "a/y/x", "a/z", "a.b", "e"}
		if !slices.Equal(names, want) {
			r.Errorf("walked %q, want %q", names, want)
		}
		if len(got) > 0 && !got[0].Info.Mode.IsDir() {
			r.Errorf("the root is %v", got[0].Info.Mode)
		}
		for depth, want := range [][]string{1: {"", "B", "a", "a.b", "e"}, 2: {"", "B", "a", "a/y", "a/z", "a.b", "e"}} {
			if depth == 0 {
				continue
			}
			got, err := entries(r.files.Walk(r.ctx, root, env.WalkOptions{MaxDepth: depth}))
			var names []string
			for _, entry := range got {
				name, _ := root.Rel(entry.Path)
				names = append(names, name)
			}
			if !slices.Equal(names, want) || err != nil {
				r.Errorf("%d deep walked %q, %v, want %q", depth, names, err, want)
			}
		}
	}},
	{"a file, and none", func(r *filesRig) {
		r.put(r.at("f"), "x")
		got, err := entries(r.files.Walk(r.ctx, r.at("f"), env.WalkOptions{}))
		if err != nil || len(got) != 1 || got[0].Path != r.at("f") || !got[0].Info.Mode.IsRegular() {
			r.Errorf("%+v, %v", got, err)
		}
		got, err = entries(r.files.Walk(r.ctx, r.at("none"), env.WalkOptions{}))
		r.wantError("walk of none", err, fs.ErrNotExist)
		if len(got) != 0 {
			r.Errorf("and yet %+v", got)
		}
	}},
	{"links are told and not followed", func(r *filesRig) {
		root := r.at("w")
		r.put(r.under(root, "d", "f"), "x")
		r.symlink(".", r.under(root, "self"))
		r.symlink("..", r.under(root, "up"))
		r.symlink("d", r.under(root, "ld"))
		r.symlink("/", r.under(root, "root"))
		r.wantTree(root, "d/", "d/f=x", "ld→d", "root→/", "self→.", "up→..")
		link := r.symlink("w", r.at("l"))
		got, err := entries(r.files.Walk(r.ctx, link, env.WalkOptions{}))
		if err != nil || len(got) != 7 || got[0].Path != link || !got[0].Info.Mode.IsDir() || got[1].Path != r.under(link, "d") {
			r.Errorf("from a link: %d entries, %v: %+v", len(got), err, got)
		}
	}},
	{"budgets", func(r *filesRig) {
		root := r.mkdir(r.at("w"))
		for i := range 20 {
			r.put(r.under(root, numbered(i%4), numbered(i)), "x")
		}
		all, err := entries(r.files.Walk(r.ctx, root, env.WalkOptions{MaxEntries: 25}))
		if len(all) != 25 || err != nil {
			r.Errorf("%d entries of 25, %v", len(all), err)
		}
		for _, budget := range []int{1, 2, 7, 24} {
			some, err := entries(r.files.Walk(r.ctx, root, env.WalkOptions{MaxEntries: budget}))
			if len(some) != budget {
				r.Errorf("%d entries for a budget of %d", len(some), budget)
			}
			r.wantError("walk beyond its budget", err, env.ErrLimit)
		}
		_, err = entries(r.files.Walk(r.ctx, root, env.WalkOptions{MaxTime: 1}))
		r.wantError("walk of a nanosecond", err, env.ErrLimit)
		seen := 0
		for _, err := range r.files.Walk(r.ctx, root, env.WalkOptions{}) {
			r.must(err)
			if seen++; seen == 3 {
				break
			}
		}
	}},
	{"what may not be read", func(r *filesRig) {
		if r.ignoresModes() {
			r.Skip("this user is above permission bits")
		}
		root := r.at("w")
		r.put(r.under(root, "d", "f"), "x")
		r.put(r.under(root, "e"), "y")
		r.must(r.files.SetAttributes(r.ctx, r.under(root, "d"), env.Attributes{Permissions: mode(0)}))
		got, err := entries(r.files.Walk(r.ctx, root, env.WalkOptions{}))
		r.must(r.files.SetAttributes(r.ctx, r.under(root, "d"), env.Attributes{Permissions: mode(0o755)}))
		if err != nil || len(got) != 4 || got[1].Path != got[2].Path || got[1].Err != nil || got[3].Path != r.under(root, "e") {
			r.Fatalf("%+v, %v", got, err)
		}
		r.wantError("the directory", got[2].Err, fs.ErrPermission)
	}},
}
