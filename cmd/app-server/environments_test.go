package main

import (
	"bytes"
	"strings"
	"testing"

	"waldo/env/registry"
)

func TestCheckedTable(t *testing.T) {
	found := []checked{
		{ID: "local", Default: true, State: registry.Connected, Latency: 0.0123, OS: "linux", Arch: "amd64", Shell: "/bin/\x1b[31msh", Version: "1", Abilities: []string{"terminal", "dial"}},
		{ID: "box", State: registry.Failed, Error: "no"},
	}
	for _, c := range []struct {
		aligned, colours bool
		want             string
	}{
		{false, false, "\tID\tSTATE\tLATENCY\tSYSTEM\tSHELL\tVERSION\tABILITIES\n" +
			"*\tlocal\tconnected\t12ms\tlinux/amd64\t/bin/\\x1b[31msh\t1\tterminal,dial\n" +
			"\tbox\tfailed\t-\t-\t-\t-\t-\n"},
		{true, false, "" +
			"   ID     STATE      LATENCY  SYSTEM       SHELL            VERSION  ABILITIES\n" +
			"*  local  connected  12ms     linux/amd64  /bin/\\x1b[31msh  1        terminal,dial\n" +
			"   box    failed     -        -            -                -        -\n"},
		{true, true, "" +
			"   ID     STATE      LATENCY  SYSTEM       SHELL            VERSION  ABILITIES\n" +
			"*  \x1b[1mlocal\x1b[0m  \x1b[32mconnected\x1b[0m  12ms     linux/amd64  /bin/\\x1b[31msh  1        terminal,dial\n" +
			"   box    \x1b[31mfailed\x1b[0m     -        -            -                -        -\n"},
	} {
		var out bytes.Buffer
		if err := printChecked(style{out: &out, aligned: c.aligned, colours: c.colours}, found, false); err != nil || out.String() != c.want {
			t.Errorf("%v\n%q\nwant\n%q", err, out.String(), c.want)
		}
	}
}

func TestStyle(t *testing.T) {
	if s := newStyle(new(bytes.Buffer)); s.aligned || s.colours {
		t.Errorf("%+v for what is no terminal", s)
	}
}

// TestEnvironmentUsage: what is typed wrongly is told before the file is touched.
func TestEnvironmentUsage(t *testing.T) {
	t.Setenv("WALDO_HOME", t.TempDir())
	for _, c := range []struct{ line, want string }{
		{"env add", "no id given; see app-server env add --help"},
		{"env add -- sh", "no id given; see app-server env add --help"},
		{"env add box", `neither a URL nor a program is given for "box"; see app-server env add --help`},
		{"env add box --", `neither a URL nor a program is given for "box"; see app-server env add --help`},
		{"env add box tls://box x", "want ID URL, or ID -- PROGRAM ARG...; see app-server env add --help"},
		{"env add box tls://box -- x", "want ID URL, or ID -- PROGRAM ARG...; see app-server env add --help"},
		{"env add box tls://box -e x", "add takes no -e; see app-server env add --help"},
		{"env add box tls://box --install", "add takes no --install; see app-server env add --help"},
		{"env remove", "want one id; see app-server env remove --help"},
		{"env check -e x", "check takes no -e; see app-server env check --help"},
		{"env check x", `unknown environment "x"; there are local, and URLs such as tls://HOST:7777, unix:///PATH or ssh://BOX`},
		{"env dance", `env takes no argument such as "dance"; see app-server env --help`},
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(c.line))
		if err := root.Execute(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v; want %s", c.line, err, c.want)
		}
	}
}
