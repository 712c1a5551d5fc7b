package pathuri

import (
	"slices"
	"testing"
)

func TestParent(t *testing.T) {
	const none = ""
	tests := []struct {
		n        int // Codex's vector; 93 is a case; or 0
		in, want string
	}{
		{61, "file:///workspace/src/lib.rs", "file:///workspace/src"},
		{62, "file:///workspace", "file:///"},
		{63, "file:///", none},
		{64, "file:///C:/Users", "file:///C:/"}, // differs: a drive's root has its slash
		{65, "file:///C:/", none},
		{65, "file:///C:", none},
		{66, "file://server/share/src/main.rs", "file://server/share/src"},
		{67, "file://server/share", none},
		{0, "file:///C:/repo", "file:///C:/"},
		{0, "file://s/h/", none},
		{0, "file://s/h/x", "file://s/h"},
		{0, "file:///a%2520/b", "file:///a%2520"},
	}
	for _, test := range tests {
		got, ok := parsed(t, test.in).Parent()
		if got.String() != test.want || ok != (test.want != none) {
			t.Errorf("%d: Parent of %s = %q, %v; want %q", test.n, test.in, got, ok, test.want)
		}
	}
}

func TestBase(t *testing.T) {
	const none = ""
	tests := []struct {
		n        int
		in, want string
	}{
		{92, "file:///tmp/a%252Fb", "a%2Fb"},
		{0, "file:///C:/", "C:"},
		{0, "file:///", none},
		{0, "file:///tmp/", "tmp"},
		{0, "file:///a%FF", "a\xff"},
		{0, "file:///C:/a%20b", "a b"},
		{0, "file://srv/share", "share"},
	}
	for _, test := range tests {
		got, ok := parsed(t, test.in).Base()
		if got != test.want || ok != (test.want != none) {
			t.Errorf("vector %d: Base of %s = %q, %v; want %q", test.n, test.in, got, ok, test.want)
		}
	}
}

func TestAncestors(t *testing.T) {
	for in, want := range map[string][]string{
		"file:///a/b":             {"file:///a/b", "file:///a", "file:///"},
		"file:///":                {"file:///"},
		"file:///C:/a":            {"file:///C:/a", "file:///C:/"},
		"file://s/h/a":            {"file://s/h/a", "file://s/h"},
		"file:///%00/bad/path/YQ": {"file:///%00/bad/path/YQ"},
	} {
		var got []string
		for u := range parsed(t, in).Ancestors() {
			got = append(got, u.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("ancestors of %s: %q", in, got)
		}
	}
	for range parsed(t, "file:///a/b").Ancestors() {
		break // must not go on
	}
}
