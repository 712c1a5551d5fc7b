//go:build unix

package host

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"waldo/env"
)

func TestChooseShells(t *testing.T) {
	const list = `# /etc/shells: valid login shells
/bin/sh
/opt/own/bash # not the packaged one
/bin/bash
rbash
/usr/bin/tmux
`
	directories := []string{"/bin", "/usr/bin"}
	for _, test := range []struct {
		name   string
		login  string
		listed string
		there  []string
		want   []env.Shell
	}{
		{"login shell first, others by kind", "/usr/bin/zsh", list, []string{"/bin/sh", "/bin/bash", "/bin/zsh", "/usr/bin/zsh", "/usr/bin/dash"},
			[]env.Shell{{Kind: "zsh", Path: "/usr/bin/zsh"}, {Kind: "bash", Path: "/bin/bash"}, {Kind: "sh", Path: "/bin/sh"}, {Kind: "dash", Path: "/usr/bin/dash"}}},
		{"what is listed before what is not", "/bin/sh", list, []string{"/bin/sh", "/bin/bash", "/opt/own/bash"},
			[]env.Shell{{Kind: "sh", Path: "/bin/sh"}, {Kind: "bash", Path: "/opt/own/bash"}}},
		{"a login shell of another kind", "/usr/bin/ksh93", "", []string{"/usr/bin/ksh93", "/bin/sh"},
			[]env.Shell{{Kind: "ksh93", Path: "/usr/bin/ksh93"}, {Kind: "sh", Path: "/bin/sh"}}},
		{"no login", "/usr/sbin/nologin", "", []string{"/usr/sbin/nologin", "/bin/sh"}, []env.Shell{{Kind: "sh", Path: "/bin/sh"}}},
		{"a login shell that is gone", "/opt/fish", "", []string{"/bin/sh", "/usr/bin/fish"},
			[]env.Shell{{Kind: "sh", Path: "/bin/sh"}, {Kind: "fish", Path: "/usr/bin/fish"}}},
		{"not a path", "sh", "", []string{"sh"}, nil},
		{"nothing", "", "", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := chooseShells(test.login, parseShells(test.listed), directories, func(file string) bool { return slices.Contains(test.there, file) })
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrettyName(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"NAME=\"Ubuntu\"\nPRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\n", "Ubuntu 24.04.1 LTS"},
		{"PRETTY_NAME='Alpine Linux v3.20'\r\n", "Alpine Linux v3.20"},
		{"PRETTY_NAME=Arch", "Arch"},
		{"# comment\nNAME=Fedora\nVERSION_ID=40\n", "Fedora 40"},
		{"NAME=Void\n", "Void"},
		{"VERSION_ID=1\n", ""},
		{`PRETTY_NAME="a \"b\" \$c \d \\"`, `a "b" $c \d \`},
		{`PRETTY_NAME=a\ b`, "a b"},
		{"PRETTY_NAME=\"a\x1b[31m\u009b\"", "a[31m"},
		{"PRETTY_NAME=\"open", "open"},
		{"PRETTY_NAME", ""},
		{"", ""},
	} {
		if got := prettyName(test.text); got != test.want {
			t.Errorf("%q is %q, want %q", test.text, got, test.want)
		}
	}
}

func FuzzPrettyName(f *testing.F) {
	f.Add("NAME=Fedora\nVERSION_ID=40\n")
	f.Add(`PRETTY_NAME="a \"b\" \$c \d \\"`)
	f.Fuzz(func(t *testing.T, text string) {
		name := prettyName(text)
		if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) || len(name) > 3*len(text)+1 {
			t.Errorf("%q is called %q", text, name)
		}
	})
}

func BenchmarkDescribe(b *testing.B) {
	for b.Loop() {
		if _, _, err := describe(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
