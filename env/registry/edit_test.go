package registry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const layout = `# My environments.

default = "b"   # the usual one

# The first box.
[[environments]]
id = "a"
url = "tls://a" # a comment
[environments.env]

# Two lines
# about b.
[[environments]]
id   =   "b"
program = "p"

  [environments.env]
  A = "1"

[environments.skills]
required = []

# About c.

[[environments]]
id = "c"
url = "tls://c"
# the end
`

func TestRemoveText(t *testing.T) {
	text := strings.Replace(layout, "[environments.env]\n\n# Two", "\n# Two", 1)
	cut := func(from, to string) string {
		i, j := strings.Index(text, from), len(text)
		if to != "" {
			j = strings.Index(text, to)
		}
		return text[:i] + text[j:]
	}
	for _, c := range []struct{ id, want string }{
		{"a", cut("# The first box.", "# Two lines")},
		{"c", strings.TrimRight(cut("[[environments]]\nid = \"c\"", ""), "\n") + "\n"},
	} {
		got, err := removeText("f", []byte(text), c.id)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.id, err, got, c.want)
		}
	}
	text = strings.Replace(text, `default = "b"`, `default = "a"`, 1)
	got, err := removeText("f", []byte(text), "b")
	if want := cut("# Two lines", "# About c."); err != nil || string(got) != want {
		t.Errorf("b: %v\n%s\nwant\n%s", err, got, want)
	}
	for _, c := range []struct{ text, id, want string }{
		{text, "a", `f:3: environment "a" is the default; change that line first`},
		{text, "d", `f: unknown environment "d"; the file has a, b, c`},
		{text, "", `f: unknown environment ""; the file has a, b, c`},
		{"", "a", `f: unknown environment "a"; the file has none`},
		{"\nenvironments = [{id = 'a', url = 'tls://a'}]\n", "a", `f:2: environment "a" is not a table of its own (written [[environments]]); take it out by hand`},
	} {
		if _, err := removeText("f", []byte(c.text), c.id); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestAddText(t *testing.T) {
	e := Entry{ID: "new", Program: "docker", Args: []string{"exec", "-i", "it's \"x\""}, Env: map[string]string{"A": "b c"}}
	table := "[[environments]]\nid = 'new'\nprogram = 'docker'\nargs = ['exec', '-i', \"it's \\\"x\\\"\"]\n\n[environments.env]\nA = 'b c'\n"
	for _, c := range []struct{ text, want string }{
		{"", table},
		{"# only a comment", "# only a comment\n\n" + table},
		{"include_local = false\n\n", "include_local = false\n\n" + table},
		{"include_local = false\r\n", "include_local = false\r\n\r\n" + strings.ReplaceAll(table, "\n", "\r\n")},
	} {
		got, err := addText("f", []byte(c.text), e)
		if err != nil || string(got) != c.want {
			t.Errorf("%q: %v\n%q\nwant\n%q", c.text, err, got, c.want)
		}
	}
	if _, err := addText("f", []byte("environments = []\n"), e); err == nil || !strings.Contains(err.Error(), "in a form that nothing can be added to (write them as [[environments]])") {
		t.Errorf("%v", err)
	}
	if _, err := addText("f", []byte("[[environments]]\nid='new'\nurl='tls://x'\n"), e); err == nil || !strings.Contains(err.Error(), `environment "new": id: line 1 has the same one`) {
		t.Errorf("%v", err)
	}
}

func TestEditFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "deep", FileName)
	r, err := Load(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.AddToFile(Entry{ID: "a", URL: "tls://a"}); err != nil {
		t.Fatal(err)
	}
	mode := func(want os.FileMode) {
		t.Helper()
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != want {
			t.Errorf("%v, %v; want %v", info.Mode(), err, want)
		}
	}
	mode(0o600)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	// Many at a time, from several registries: nothing is lost.
	var adding sync.WaitGroup
	failed := make([]error, 8)
	for i := range failed {
		adding.Go(func() {
			other, err := Load(path, Options{})
			if err == nil {
				defer other.Close()
				err = other.AddToFile(Entry{ID: fmt.Sprintf("n%d", i), URL: "tls://n"})
			}
			failed[i] = err
		})
	}
	adding.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	mode(0o640)
	if err := r.RemoveFromFile("n3"); err != nil { // it came after the file was read
		t.Error(err)
	}
	if err := r.RemoveFromFile("a"); err != nil {
		t.Error(err)
	}
	if err := r.RemoveFromFile(Local); err == nil || !strings.Contains(err.Error(), "include_local = false") {
		t.Errorf("%v", err)
	}
	if err := r.AddToFile(Entry{ID: "x", URL: "tls://x", TLSPin: "y"}); err == nil || !strings.Contains(err.Error(), `environment "x": tls_pin: `) {
		t.Errorf("%v", err)
	}
	again, err := Load(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if list := again.List(); len(list) != 1+7 || len(r.List()) != 1 {
		t.Errorf("%+v, %+v", list, r.List())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestEditFollowsALink(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.toml"), filepath.Join(dir, FileName)
	if err := os.WriteFile(real, []byte("# kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Skip(err)
	}
	r, err := Load(link, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.AddToFile(Entry{ID: "a", URL: "tls://a"}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v, %v", info, err)
	}
	if text, err := os.ReadFile(real); err != nil || !strings.HasPrefix(string(text), "# kept\n\n[[environments]]") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestEditWaitsForTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), FileName)
	if err := os.WriteFile(path+lockSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Load(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.AddToFile(Entry{ID: "a", URL: "tls://a"}); err == nil || !strings.Contains(err.Error(), `environments.toml.lock" is there: another program is changing the file`) {
		t.Errorf("%v", err)
	}
}
