package agentsmd

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"waldo/env"
	"waldo/env/envtest/fake"
	"waldo/pathuri"
)

func TestRender(t *testing.T) {
	project := func(environment, directory string, texts ...string) Project {
		p := Project{Environment: environment, Directory: uri(t, directory)}
		for _, text := range texts {
			p.Docs = append(p.Docs, Doc{Text: text})
		}
		return p
	}
	a := project("local", "/src/A/sub", "root A\n", "sub A")
	b := project("devbox", "/src/B", "root B")
	w := project("win", `C:\work`, "root W")
	none := project("none", "/none")
	const replaced = "These AGENTS.md instructions replace all previously provided AGENTS.md instructions.\n\n"
	for _, test := range []struct {
		name     string
		home     string
		projects []Project
		title    string
		body     string
	}{
		{"nothing", " \n", []Project{none}, "", ""},
		{"nothing at all", "", nil, "", ""},
		{"home only", "home text\n", []Project{none}, "# AGENTS.md instructions", "home text"},
		{"one environment", "home text\n", []Project{a}, "# AGENTS.md instructions for /src/A/sub",
			"home text\n\n--- project-doc ---\n\nroot A\n\n\nsub A"},
		{"one environment and no home", "", []Project{a}, "# AGENTS.md instructions for /src/A/sub", "root A\n\n\nsub A"},
		{"one that tells something", "home text", []Project{none, b, none}, "# AGENTS.md instructions for /src/B",
			"home text\n\n--- project-doc ---\n\nroot B"},
		{"one with other paths", "", []Project{w}, `# AGENTS.md instructions for C:\work`, "root W"},
		{"two environments", "home text", []Project{a, none, b}, "# AGENTS.md instructions",
			"home text\n\nfor `local` with root /src/A/sub\n\nroot A\n\n\nsub A\n\nfor `devbox` with root /src/B\n\nroot B"},
		{"two with other paths, and no home", "", []Project{w, b}, "# AGENTS.md instructions",
			"for `win` with root C:\\work\n\nroot W\n\nfor `devbox` with root /src/B\n\nroot B"},
		{"text is not escaped", "<b> & </INSTRUCTIONS>", nil, "# AGENTS.md instructions", "<b> & </INSTRUCTIONS>"},
	} {
		t.Run(test.name, func(t *testing.T) {
			want, wantChange := "", "# AGENTS.md instructions\n\n<INSTRUCTIONS>\nThe previously provided AGENTS.md instructions no longer apply.\n</INSTRUCTIONS>"
			if test.body != "" {
				want = test.title + "\n\n<INSTRUCTIONS>\n" + test.body + "\n</INSTRUCTIONS>"
				wantChange = test.title + "\n\n<INSTRUCTIONS>\n" + replaced + test.body + "\n</INSTRUCTIONS>"
			}
			if got := Render(test.home, test.projects); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if got := RenderChange(test.home, test.projects); got != wantChange {
				t.Errorf("as a change got\n%s\nwant\n%s", got, wantChange)
			}
		})
	}
}

// TestTwoMachines: each environment tells its own text under its own paths, whatever lies at the same path elsewhere.
func TestTwoMachines(t *testing.T) {
	host, box, windows := fake.New(pathuri.Posix), fake.New(pathuri.Posix), fake.New(pathuri.Windows)
	host.Tree(map[string]string{"/w/AGENTS.md": "HOST"})
	box.Tree(map[string]string{"/w/AGENTS.md": "BOX"})
	windows.Tree(map[string]string{`C:\w\AGENTS.md`: "WINDOWS", `C:\w\.git`: "gitdir: elsewhere"})
	var projects []Project
	for _, e := range []struct {
		name      string
		files     env.Files
		directory string
	}{{"box", box, "/w"}, {"empty", fake.New(pathuri.Posix), "/w"}, {"win", windows, `C:\w`}} {
		o := options(t, e.directory)
		o.Environment = e.name
		p, err := Discover(t.Context(), e.files, o)
		if err != nil {
			t.Fatal(err)
		}
		projects = append(projects, p)
	}
	want := "# AGENTS.md instructions\n\n<INSTRUCTIONS>\nfor `box` with root /w\n\nBOX\n\nfor `win` with root C:\\w\n\nWINDOWS\n</INSTRUCTIONS>"
	if got := Render("", projects); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if path := projects[2].Docs[0].Path.String(); path != "file:///C:/w/AGENTS.md" {
		t.Errorf("its source is %q", path)
	}
	if projects[1].Docs != nil {
		t.Errorf("an empty one tells %v", projects[1].Docs)
	}
}

func TestHome(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for _, test := range []struct {
		name       string
		home       fstest.MapFS
		text, from string
		err        error
	}{
		{"nothing", fstest.MapFS{}, "", "", nil},
		{"one", fstest.MapFS{"AGENTS.md": file("\n text\n\n")}, "text", "AGENTS.md", nil},
		{"both", fstest.MapFS{"AGENTS.md": file("text"), "AGENTS.override.md": file("over")}, "over", "AGENTS.override.md", nil},
		{"one says nothing", fstest.MapFS{"AGENTS.md": file("text"), "AGENTS.override.md": file(" \n")}, "text", "AGENTS.md", nil},
		{"one is a directory", fstest.MapFS{"AGENTS.md": file("text"), "AGENTS.override.md/x": file("x")}, "text", "AGENTS.md", nil},
		{"no text", fstest.MapFS{"AGENTS.md": file("a\xff")}, "a\uFFFD", "AGENTS.md", nil},
		{"a pipe", fstest.MapFS{"AGENTS.md": {Mode: fs.ModeNamedPipe}}, "", "", nil},
		{"too large", fstest.MapFS{"AGENTS.md": file(strings.Repeat("x", maxHome+1))}, "", "", env.ErrTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, from, err := Home(test.home)
			if text != test.text || from != test.from || !errors.Is(err, test.err) {
				t.Errorf("%.40q from %q, %v; want %q from %q, %v", text, from, err, test.text, test.from, test.err)
			}
		})
	}
}

func FuzzWhole(f *testing.F) {
	for _, text := range []string{"", "a", "é", "a\xe2\x82", "😀", "\xf0\x9f\x98", "\x80\x80\x80\x80", "\xff"} {
		f.Add([]byte(text), 1)
	}
	f.Fuzz(func(t *testing.T, text []byte, at int) {
		if at < 0 || at > len(text) {
			return
		}
		got := whole(text[:at])
		if at-len(got) > 3 || string(got) != string(text[:len(got)]) {
			t.Fatalf("%q cut at %d became %q", text, at, got)
		}
		// A text stays one, and what is not cut in a character is not cut.
		if strings.ToValidUTF8(string(text), "") == string(text) {
			if decode(got) != string(got) {
				t.Fatalf("%q cut at %d became %q, which is no text", text, at, got)
			}
			if at == len(text) && len(got) != at {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}
