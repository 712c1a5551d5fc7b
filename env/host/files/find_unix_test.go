//go:build unix

package files

import (
	"testing"
)

func TestSplit(t *testing.T) {
	for _, test := range []struct{ path, parent, name string }{
		{"/", "/", "."},
		{"//", "/", "."},
		{"/a", "/", "a"},
		{"/a/b", "/a", "b"},
		{"a", ".", "a"},
		{"a/", "a", "."},
		{"a/b//", "a/b", "."},
		{"../a", "..", "a"},
		{"a/..", "a", ".."},
	} {
		if parent, name := split(test.path); parent != test.parent || name != test.name {
			t.Errorf("%q is %q in %q, want %q in %q", test.path, name, parent, test.name, test.parent)
		}
	}
}

func TestBelowRoot(t *testing.T) {
	for _, test := range []struct {
		root, target, want string
		ok                 bool
	}{
		{"/", "/etc/x", "etc/x", true},
		{"/r", "/r/x", "/x", true},
		{"/r", "/r", "", true},
		{"/r", "/rx", "", false},
		{"/r", "/", "", false},
		{"/r/s", "/r/x", "", false},
	} {
		if got, ok := belowRoot(test.root, test.target); got != test.want || ok != test.ok {
			t.Errorf("%q below %q: %q, %v", test.target, test.root, got, ok)
		}
	}
}
