package agentsmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"waldo/env"
	"waldo/env/envtest/fake"
	"waldo/pathuri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func uri(t testing.TB, native string) pathuri.URI {
	t.Helper()
	convention := pathuri.Posix
	if !strings.HasPrefix(native, "/") {
		convention = pathuri.Windows
	}
	u, err := pathuri.FromNative(native, convention)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func options(t testing.TB, directory string) Options {
	t.Helper()
	return Options{Environment: "box", Directory: uri(t, directory), RootMarkers: []string{DefaultRootMarker}, MaxBytes: DefaultMaxBytes}
}

// told are the files of a project with their text.
func told(p Project) (docs []string) {
	for _, doc := range p.Docs {
		docs = append(docs, doc.Path.Display()+"="+doc.Text)
	}
	return docs
}

func TestDiscover(t *testing.T) {
	for _, test := range []struct {
		name      string
		tree      map[string]string
		links     map[string]string // path to target
		directory string
		change    func(o *Options)
		want      []string
	}{
		{
			name: "from the root on, and nothing above it",
			tree: map[string]string{
				"/a/AGENTS.md": "0", "/a/b/.git/": "", "/a/b/AGENTS.md": "1", "/a/b/c/AGENTS.override.md": "2o", "/a/b/c/AGENTS.md": "2",
				"/a/b/c/d/": "", "/a/b/x/AGENTS.md": "aside",
			},
			directory: "/a/b/c/d",
			want:      []string{"/a/b/AGENTS.md=1", "/a/b/c/AGENTS.override.md=2o"},
		},
		{
			name:      "without a root there is the directory alone",
			tree:      map[string]string{"/a/AGENTS.md": "0", "/a/b/AGENTS.md": "1"},
			directory: "/a/b",
			want:      []string{"/a/b/AGENTS.md=1"},
		},
		{
			name:      "without a root and without a file",
			tree:      map[string]string{"/a/AGENTS.md": "0", "/a/b/": ""},
			directory: "/a/b",
		},
		{
			name:      "the directory is the root",
			tree:      map[string]string{"/a/AGENTS.md": "0", "/a/b/AGENTS.md": "1", "/a/b/.git/": ""},
			directory: "/a/b",
			want:      []string{"/a/b/AGENTS.md=1"},
		},
		{
			name:      "the top of the machine",
			tree:      map[string]string{"/AGENTS.md": "top", "/.git/": "", "/a/": ""},
			directory: "/a",
			want:      []string{"/AGENTS.md=top"},
		},
		{
			name: "a worktree inside of its checkout",
			tree: map[string]string{
				"/w/repo/.git/": "", "/w/repo/AGENTS.md": "R", "/w/repo/.wt/b/.git": "gitdir: /w/repo/.git/worktrees/b\n",
				"/w/repo/.wt/b/AGENTS.md": "R", "/w/repo/.wt/b/src/": "",
			},
			directory: "/w/repo/.wt/b/src",
			want:      []string{"/w/repo/.wt/b/AGENTS.md=R"},
		},
		{
			name: "a workspace behind a link is searched as it is spelled",
			tree: map[string]string{
				"/l/proj/AGENTS.md": "L", "/l/proj/.git/": "", "/p/real/AGENTS.md": "P", "/p/real/pkg/AGENTS.md": "pkg",
			},
			links:     map[string]string{"/l/proj/pkg": "/p/real/pkg"},
			directory: "/l/proj/pkg",
			want:      []string{"/l/proj/AGENTS.md=L", "/l/proj/pkg/AGENTS.md=pkg"},
		},
		{
			name:      "a link to a file is one, a dangling link is none",
			tree:      map[string]string{"/a/.git/": "", "/a/CLAUDE.md": "linked", "/a/b/AGENTS.md": "1"},
			links:     map[string]string{"/a/AGENTS.md": "CLAUDE.md", "/a/b/AGENTS.override.md": "none"},
			directory: "/a/b",
			want:      []string{"/a/AGENTS.md=linked", "/a/b/AGENTS.md=1"},
		},
		{
			name:      "a directory is no file",
			tree:      map[string]string{"/a/.git/": "", "/a/AGENTS.override.md/x": "", "/a/AGENTS.md": "1"},
			directory: "/a",
			want:      []string{"/a/AGENTS.md=1"},
		},
		{
			name: "fallback names",
			tree: map[string]string{
				"/a/.git/": "", "/a/CLAUDE.md": "c", "/a/b/TEAM.md": "t", "/a/b/CLAUDE.md": "c", "/a/b/c/AGENTS.md": "a", "/a/b/c/TEAM.md": "t",
			},
			directory: "/a/b/c",
			change:    func(o *Options) { o.FallbackNames = []string{"TEAM.md", "CLAUDE.md", "AGENTS.md", "TEAM.md"} },
			want:      []string{"/a/CLAUDE.md=c", "/a/b/TEAM.md=t", "/a/b/c/AGENTS.md=a"},
		},
		{
			name:      "other markers, the nearest counts",
			tree:      map[string]string{"/a/.git/": "", "/a/AGENTS.md": "0", "/a/b/go.mod": "", "/a/b/AGENTS.md": "1", "/a/b/c/AGENTS.md": "2"},
			directory: "/a/b/c",
			change:    func(o *Options) { o.RootMarkers = []string{".hg", "go.mod"} },
			want:      []string{"/a/b/AGENTS.md=1", "/a/b/c/AGENTS.md=2"},
		},
		{
			name:      "no markers",
			tree:      map[string]string{"/a/.git/": "", "/a/AGENTS.md": "0", "/a/b/AGENTS.md": "1"},
			directory: "/a/b",
			change:    func(o *Options) { o.RootMarkers = nil },
			want:      []string{"/a/b/AGENTS.md=1"},
		},
		{
			name:      "what says nothing, and yet takes the place of another",
			tree:      map[string]string{"/a/.git/": "", "/a/AGENTS.md": " \n\t\n", "/a/b/AGENTS.override.md": "", "/a/b/AGENTS.md": "1", "/a/b/c/AGENTS.md": "2\n"},
			directory: "/a/b/c",
			want:      []string{"/a/b/c/AGENTS.md=2\n"},
		},
		{
			name:      "what is no text",
			tree:      map[string]string{"/a/AGENTS.md": "gr\xfc\xdfe, é"},
			directory: "/a",
			want:      []string{"/a/AGENTS.md=gr\uFFFD\uFFFDe, é"},
		},
		{
			name:      "a directory that is not there",
			tree:      map[string]string{"/a/.git/": "", "/a/AGENTS.md": "1", "/a/f": ""},
			directory: "/a/f/none/at/all",
			want:      []string{"/a/AGENTS.md=1"},
		},
		{
			name:      "on Windows",
			tree:      map[string]string{`C:\AGENTS.md`: "0", `C:\work\.git\`: "", `C:\work\AGENTS.md`: "1", `C:\work\sub\AGENTS.override.md`: "2\r\n"},
			directory: `c:\work\sub`,
			want:      []string{`C:\work\AGENTS.md=1`, `C:\work\sub\AGENTS.override.md=2` + "\r\n"},
		},
		{
			name:      "names that mean something in a URI",
			tree:      map[string]string{"/a b#c/.git/": "", "/a b#c/AGENTS.md": "1", "/a b#c/\xff%41/AGENTS.md": "2"},
			directory: "/a b#c/\xff%41",
			want:      []string{"/a b#c/AGENTS.md=1", "/a b#c/\xff%41/AGENTS.md=2"},
		},
		{
			name:      "nothing is wanted",
			tree:      map[string]string{"/a/AGENTS.md": "1"},
			directory: "/a",
			change:    func(o *Options) { o.MaxBytes = 0 },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := options(t, test.directory)
			machine := fake.New(o.Directory.Convention())
			machine.Tree(test.tree)
			for path, target := range test.links {
				if err := machine.Symlink(t.Context(), target, uri(t, path)); err != nil {
					t.Fatal(err)
				}
			}
			if test.change != nil {
				test.change(&o)
			}
			p, err := Discover(t.Context(), machine, o)
			if err != nil {
				t.Fatal(err)
			}
			if got := told(p); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
			if len(p.Warnings) > 0 || p.Environment != "box" || p.Directory != o.Directory {
				t.Errorf("%+v", p)
			}
			for _, doc := range p.Docs {
				if info, err := machine.Stat(t.Context(), doc.Path, true); err != nil || doc.Size != info.Size || doc.Used != info.Size {
					t.Errorf("%q: %d of %d bytes, and there are %d, %v", doc.Path, doc.Used, doc.Size, info.Size, err)
				}
			}
		})
	}
}

func TestBudget(t *testing.T) {
	a := func(n int) string { return strings.Repeat("a", n) }
	type doc struct {
		text       string
		size, used int64
	}
	for _, test := range []struct {
		name     string
		max      int64
		files    []string // of /r, /r/0, /r/0/0 …
		want     []doc
		warnings []string
	}{
		{"just enough", 10, []string{a(4), a(6)}, []doc{{a(4), 4, 4}, {a(6), 6, 6}}, nil},
		{"one byte too many", 10, []string{a(4), a(7)}, []doc{{a(4), 4, 4}, {a(6), 7, 6}}, []string{
			`instructions: of "/r/0/AGENTS.md" in environment "box" only 6 of 7 bytes are used, 1 are left out: at most 10 count in an environment`,
		}},
		{"nothing left", 10, []string{a(10), a(3), " \n", a(1)}, []doc{{a(10), 10, 10}}, []string{
			`instructions: "/r/0/AGENTS.md" in environment "box" is left out, all 3 bytes of it: at most 10 count in an environment`,
			`instructions: "/r/0/0/0/AGENTS.md" in environment "box" is left out, all 1 bytes of it: at most 10 count in an environment`,
		}},
		{"in a character", 32 << 10, []string{a(32767) + strings.Repeat("é", 20), "SUB"}, []doc{{a(32767), 32807, 32767}}, []string{
			`instructions: of "/r/AGENTS.md" in environment "box" only 32767 of 32807 bytes are used, 40 are left out: at most 32768 count in an environment`,
			`instructions: "/r/0/AGENTS.md" in environment "box" is left out, all 3 bytes of it: at most 32768 count in an environment`,
		}},
		{"in a long character", 7, []string{a(4) + "😀"}, []doc{{a(4), 8, 4}}, []string{
			`instructions: of "/r/AGENTS.md" in environment "box" only 4 of 8 bytes are used, 4 are left out: at most 7 count in an environment`,
		}},
		{"behind a character", 8, []string{a(4) + "😀😀"}, []doc{{a(4) + "😀", 12, 8}}, []string{
			`instructions: of "/r/AGENTS.md" in environment "box" only 8 of 12 bytes are used, 4 are left out: at most 8 count in an environment`,
		}},
		{"blanks cost nothing", 4, []string{"    ", "\n\n", "text"}, []doc{{"text", 4, 4}}, nil},
		{"blanks beyond all measure", 4, []string{strings.Repeat(" ", 99), "text"}, []doc{{"text", 4, 4}}, []string{
			`instructions: "/r/AGENTS.md" in environment "box" is left out, all 99 bytes of it: at most 4 count in an environment`,
		}},
		{"no text at the end", 5, []string{a(4) + "\xff\xff"}, []doc{{a(4) + "\uFFFD", 6, 5}}, []string{
			`instructions: of "/r/AGENTS.md" in environment "box" only 5 of 6 bytes are used, 1 are left out: at most 5 count in an environment`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine, path := fake.New(pathuri.Posix), "/r"
			machine.Tree(map[string]string{"/r/.git/": ""})
			for i, text := range test.files {
				if i > 0 {
					path += "/0"
				}
				machine.Tree(map[string]string{path + "/AGENTS.md": text})
			}
			o := options(t, path)
			o.MaxBytes = test.max
			p, err := Discover(t.Context(), machine, o)
			if err != nil {
				t.Fatal(err)
			}
			var got []doc
			for _, d := range p.Docs {
				if !utf8.ValidString(d.Text) {
					t.Errorf("%q is no text", d.Text)
				}
				got = append(got, doc{d.Text, d.Size, d.Used})
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %.200v, want %.200v", got, test.want)
			}
			var warnings []string
			for _, w := range p.Warnings {
				warnings = append(warnings, w.String())
			}
			if !slices.Equal(warnings, test.warnings) {
				t.Errorf("warnings %q, want %q", warnings, test.warnings)
			}
		})
	}
}

// Of a file that is huge, or says so, no more is read than can count.
func TestHugeFile(t *testing.T) {
	machine := fake.New(pathuri.Posix)
	machine.Tree(map[string]string{"/r/AGENTS.md": "text"})
	size := int64(1 << 40)
	if err := machine.SetAttributes(t.Context(), uri(t, "/r/AGENTS.md"), env.Attributes{Size: &size}); err != nil {
		t.Fatal(err)
	}
	files := &counted{Files: machine}
	p, err := Discover(t.Context(), files, options(t, "/r"))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Docs) != 1 || p.Docs[0].Size != size || p.Docs[0].Used != DefaultMaxBytes || len(p.Docs[0].Text) != DefaultMaxBytes {
		t.Errorf("%d documents", len(p.Docs))
	}
	if len(p.Warnings) != 1 || p.Warnings[0].Size != size || p.Warnings[0].Used != DefaultMaxBytes {
		t.Errorf("warnings %v", p.Warnings)
	}
	if files.asked != DefaultMaxBytes+1 {
		t.Errorf("%d bytes were asked for", files.asked)
	}
}

// counted notes how much is asked for.
type counted struct {
	env.Files
	asked int64
}

func (c *counted) Read(ctx context.Context, path pathuri.URI, o env.ReadOptions) (env.FileReader, error) {
	c.asked += o.Length
	return c.Files.Read(ctx, path, o)
}

func TestFaults(t *testing.T) {
	broken := errors.New("disk on fire")
	build := func() *fake.Machine {
		m := fake.New(pathuri.Posix)
		m.Tree(map[string]string{"/a/AGENTS.md": "0", "/a/b/.git/": "", "/a/b/AGENTS.md": "1", "/a/b/c/AGENTS.md": "2"})
		return m
	}
	for _, test := range []struct {
		name     string
		fail     func(call fake.Call) error
		want     []string
		warnings []string // paths
		err      error
	}{
		{"a file that may not be read", func(call fake.Call) error {
			if call.Op == "read" && call.Path.Display() == "/a/b/AGENTS.md" {
				return fs.ErrPermission
			}
			return nil
		}, []string{"/a/b/c/AGENTS.md=2"}, []string{"/a/b/AGENTS.md"}, nil},
		{"a file that may not be looked at", func(call fake.Call) error {
			if call.Path.Display() == "/a/b/c/AGENTS.override.md" {
				return fs.ErrPermission
			}
			return nil
		}, []string{"/a/b/AGENTS.md=1", "/a/b/c/AGENTS.md=2"}, []string{"/a/b/c/AGENTS.override.md"}, nil},
		{"a directory that is of no concern", func(call fake.Call) error {
			if strings.Count(call.Path.Display(), "/") == 2 {
				return broken
			}
			return nil
		}, []string{"/a/b/AGENTS.md=1", "/a/b/c/AGENTS.md=2"}, nil, nil},
		{"a marker that may not be looked at", func(call fake.Call) error {
			if call.Path.Display() == "/a/b/c/.git" {
				return broken
			}
			return nil
		}, []string{"/a/b/AGENTS.md=1", "/a/b/c/AGENTS.md=2"}, []string{"/a/b/c/.git"}, nil},
		{"files that go meanwhile", func(call fake.Call) error {
			if call.Op == "read" && call.Path.Display() == "/a/b/AGENTS.md" {
				return fs.ErrNotExist
			}
			if call.Op == "read" {
				return env.ErrIsDirectory
			}
			return nil
		}, nil, nil, nil},
		{"all is broken", func(fake.Call) error { return broken }, nil, nil, broken},
		{"the session ends", func(call fake.Call) error {
			if call.Op == "read" {
				return env.ErrExpired
			}
			return nil
		}, nil, nil, env.ErrExpired},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := build()
			m.Hook(func(_ context.Context, call fake.Call) error { return test.fail(call) })
			p, err := Discover(t.Context(), m, options(t, "/a/b/c"))
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if got := told(p); !slices.Equal(got, test.want) {
				t.Errorf("found %q, want %q", got, test.want)
			}
			var warnings []string
			for _, w := range p.Warnings {
				if text := w.String(); !strings.Contains(text, "cannot be used") || !strings.Contains(text, `"box"`) {
					t.Errorf("warning %q", text)
				}
				warnings = append(warnings, w.Path.Display())
			}
			if !slices.Equal(warnings, test.warnings) {
				t.Errorf("warnings about %q, want %q", warnings, test.warnings)
			}
		})
	}
	for name, change := range map[string]func(o *Options){
		"no directory":     func(o *Options) { o.Directory = pathuri.URI{} },
		"a budget below 0": func(o *Options) { o.MaxBytes = -1 },
		"a name":           func(o *Options) { o.FallbackNames = []string{"a/b"} },
		"a marker":         func(o *Options) { o.RootMarkers = []string{".."} },
	} {
		o := options(t, "/a/b/c")
		change(&o)
		if _, err := Discover(t.Context(), build(), o); !errors.Is(err, env.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Discover(ctx, build(), options(t, "/a/b/c")); !errors.Is(err, context.Canceled) {
		t.Errorf("too late: %v", err)
	}
}

// TestRounds: however deep the directory, discovery takes as long as two calls, one after the other; one if there is
// nothing.
func TestRounds(t *testing.T) {
	const trip = 50 * time.Millisecond
	for _, test := range []struct {
		depth  int
		files  int // one in each of the last directories
		rounds int
	}{{1, 0, 1}, {1, 1, 2}, {12, 12, 2}, {12, 0, 1}, {64, 1, 2}, {64, 64, 2}} {
		t.Run(fmt.Sprintf("%d deep with %d files", test.depth, test.files), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				machine, dir := fake.New(pathuri.Posix), ""
				for i := range test.depth {
					dir += fmt.Sprintf("/d%d", i)
					machine.Tree(map[string]string{dir + "/": ""})
					if i == 0 {
						machine.Tree(map[string]string{dir + "/.git/": ""})
					}
					if test.depth-i <= test.files {
						machine.Tree(map[string]string{dir + "/AGENTS.md": "text"})
					}
				}
				var mu sync.Mutex
				calls := map[string]int{}
				machine.Hook(func(_ context.Context, call fake.Call) error {
					mu.Lock()
					calls[call.Op]++
					mu.Unlock()
					time.Sleep(trip) // in the bubble: what is asked at the same time sleeps at the same time
					return nil
				})
				o := options(t, dir)
				o.FallbackNames = []string{"CLAUDE.md", "GEMINI.md", ".cursorrules"}
				began := time.Now()
				p, err := Discover(t.Context(), machine, o)
				if err != nil || len(p.Docs) != test.files {
					t.Fatalf("%d files, %v", len(p.Docs), err)
				}
				if took := time.Since(began); took != time.Duration(test.rounds)*trip {
					t.Errorf("it took %v, that is %d rounds; want %d", took, took/trip, test.rounds)
				}
				if calls["read"] != test.files || calls["stat"] != (test.depth+1)*6 || len(calls) > 2 {
					t.Errorf("calls %v", calls)
				}
			})
		})
	}
}
