package envtest

import (
	"fmt"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

var nameTests = []filesTest{
	{"of every kind", func(r *filesRig) {
		names := []string{
			"a#b", "a b", "a+b", "a%20b", "a%FFb", "%", "a;b", "a&b=c", "[x]", "~t", "é", "e\u0301", "😀", ".hidden", "-n", "$x", "'", "{}", "ﬁ",
		}
		if r.posix() {
			names = append(names, "a\xffb", "a\xfeb", "a\xef\xbf\xbdb", "\xed\xa0\x80", "a?b", `a"b`, "a<b>", "a\nb", "a:b", `a\b`, "...",
				"a\x1b]0;x\x07", "c:", "con", "a.", "a ", " ", "*", "|")
		}
		want := map[pathuri.URI]string{}
		for _, name := range names {
			path := r.at(name)
			if again, err := pathuri.Parse(path.String()); again != path || err != nil {
				r.Errorf("%q is read as %q, %v", path, again, err)
			}
			if _, err := env.WriteFile(r.ctx, r.files, path, []byte(name), env.WriteOptions{Mode: env.Exclusive, Unsynced: true}); err != nil {
				r.Logf("no file %q there: %v", name, err)
				continue
			}
			want[path] = name
		}
		if len(want) < len(names)/2 {
			r.Fatalf("only %d names of %d are taken", len(want), len(names))
		}
		for path, name := range want {
			r.wantContent(path, name)
		}
		got, err := entries(r.files.List(r.ctx, r.dir))
		r.must(err)
		for _, entry := range got {
			if _, ok := want[entry.Path]; !ok || entry.Err != nil {
				r.Errorf("there is %+v", entry)
			}
		}
		if len(got) != len(want) {
			r.Errorf("%d entries, want %d", len(got), len(want))
		}
		// The same as directories, and as new names.
		for path, name := range want {
			r.must(r.files.Remove(r.ctx, path, env.RemoveOptions{}))
			r.put(r.under(path, name), "inside")
		}
		all, err := entries(r.files.Walk(r.ctx, r.dir, env.WalkOptions{}))
		if len(all) != 1+2*len(want) || err != nil {
			r.Errorf("%d entries below, %v, want %d", len(all)-1, err, 2*len(want))
		}
		for path, name := range want {
			r.wantContent(r.under(path, name), "inside")
			r.must(r.files.Rename(r.ctx, r.under(path, name), r.under(path, "x"), env.RenameOptions{}))
			r.must(r.files.Copy(r.ctx, r.under(path, "x"), r.under(path, name), env.CopyOptions{}))
			r.must(r.files.Remove(r.ctx, path, env.RemoveOptions{Recursive: true}))
		}
		r.wantTree(r.dir)
	}},
	{"too long", func(r *filesRig) {
		path := r.at(strings.Repeat("n", 300))
		for name, err := range r.everyCall(r.files, path) {
			if name == "remove recursively" {
				continue // it is forced, and surely missing
			}
			r.wantError(name, err)
		}
	}},
	{"deep", func(r *filesRig) {
		dir := r.dir
		for i := range 40 {
			dir = r.under(dir, fmt.Sprintf("level%d", i))
		}
		r.put(r.under(dir, "f"), "down here")
		r.wantContent(r.under(dir, "f"), "down here")
		all, err := entries(r.files.Walk(r.ctx, r.dir, env.WalkOptions{}))
		if len(all) != 42 || err != nil {
			r.Errorf("%d entries, %v", len(all), err)
		}
		r.must(r.files.Remove(r.ctx, r.at("level0"), env.RemoveOptions{Recursive: true}))
		r.wantTree(r.dir)
	}},
}
