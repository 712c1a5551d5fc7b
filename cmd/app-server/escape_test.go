package main

import "testing"

func TestEscapes(t *testing.T) {
	for _, c := range []struct {
		name, in, out string
		found         escape
		rest          string
	}{
		{"nothing", "ls -l\r", "ls -l\r", noEscape, ""},
		{"at once", "~.x", "", detachEscape, "x"},
		{"at the start of a line", "ls\r~.", "ls\r", detachEscape, ""},
		{"after a line feed", "ls\n~.", "ls\n", detachEscape, ""},
		{"inside a line", "ls ~.", "ls ~.", noEscape, ""},
		{"help", "~?ls", "", helpEscape, "ls"},
		{"one tilde", "~~/x\r", "~/x\r", noEscape, ""},
		{"only one", "~~.", "~.", noEscape, ""},
		{"something else", "~/x\r", "~/x\r", noEscape, ""},
		{"a line of its own", "~\r~.", "~\r", detachEscape, ""},
		{"held", "ls\r~", "ls\r", noEscape, ""},
	} {
		var whole escapes
		out, found, rest := whole.feed([]byte(c.in))
		if string(out) != c.out || found != c.found || string(rest) != c.rest {
			t.Errorf("%s: %q, %d, %q", c.name, out, found, rest)
		}
		// Key by key it is the same.
		var typed escapes
		var all []byte
		for _, b := range []byte(c.in[:len(c.in)-len(c.rest)]) {
			out, found, _ = typed.feed([]byte{b})
			all = append(all, out...)
		}
		if string(all) != c.out || found != c.found {
			t.Errorf("%s, key by key: %q, %d", c.name, all, found)
		}
	}
}
