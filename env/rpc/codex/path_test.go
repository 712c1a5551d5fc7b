package codex

import (
	"strings"
	"testing"
)

func TestParsePath(t *testing.T) {
	for _, test := range []struct{ in, want string }{ // a want that is no URI is a part of the error
		{"file:///", "file:///"},
		{"file:///tmp/", "file:///tmp"},
		{"file:///tmp//a", "file:///tmp/a"},
		{"file:///tmp/./a/../b", "file:///tmp/b"},
		{"file:///tmp/%2e%2e/x", "file:///x"},
		{"file:///tmp/%2E/x", "file:///tmp/x"},
		{"file:///a b", "file:///a%20b"},
		{"file:///é", "file:///%C3%A9"},
		{`file:///a\b`, "file:///a/b"},
		{"file:///c:/x", "file:///C:/x"},
		{`file:///C:\x\y`, "file:///C:/x/y"},
		{"file:///d:/a/../..", "file:///D:/"},
		{"file:///C:/..", "file:///C:/"},
		{"file:///C:/../x", "file:///C:/x"},
		{"file://SERVER/share", "file://server/share"},
		{"file://srv/share/../..", "file://srv/share"},
		{"file://server", "invalid URI"},
		{"file://localhost/x", "file:///x"},
		{"file://LOCALHOST/x", "file:///x"},
		{"FILE:/x", "file:///x"},
		{"file:x", "file:///x"},
		{"file:", "file:///"},
		{"file://", "file:///"},
		{"file:////server/share", "file:///server/share"},
		{"file://///server/share", "file:///server/share"},
		{"file:///%00/bad/path/YQ", "file:///%00/bad/path/YQ"},
		{"file:///%00/bad/path/YQ==", "invalid URI"},
		{"file:///%00/bad/path/", "invalid URI"},
		{"file:///%00/bad/path/YR", "invalid URI"},
		{"file:///%00/x", "invalid URI"},
		{"file:///a%00b c", "invalid URI"},
		{"file:///a?b", "query parameters are not allowed in path URIs"},
		{"file:///a#b?c", "fragments are not allowed in path URIs"},
		{"file:///a%3Fb%23c%25d", "file:///a%3Fb%23c%25d"},
		{"file:///a%zz", "file:///a%25zz"},
		{"file:///a%", "file:///a%25"},
		{"file://user@host/x", "invalid international domain name"},
		{"file://host:80/x", "invalid international domain name"},
		{"file://ho st/x", "invalid international domain name"},
		{"file://[::1]/x/y", "file://[::1]/x/y"},
		{"file:///a\tb", "file:///ab"},
		{"file:///a\nb", "file:///ab"},
		{" file:///a ", "file:///a"},
		{"file:///CC:/x", "file:///CC:/x"},
		{"file:///a/b/../../..", "file:///"},
		{"http://x", "unsupported path URI scheme `http`"},
		{`C:\x`, "unsupported path URI scheme `c`"},
		{"untitled:x", "unsupported path URI scheme `untitled`"},
		{"relative/x", "relative URL without a base"},
		{"/abs", "relative URL without a base"},
		{`\\srv\share`, "relative URL without a base"},
		{"", "relative URL without a base"},
		// An escaped separator is none.
		{"file:///a%2Fb", "invalid URI"},
		{"file:///d/%2F..%2Fx/y", "invalid URI"},
		{"file:///C:/a%5Cb", "invalid URI"},
		{"file:///a%5Cb", "file:///a%5Cb"},
	} {
		got, err := parsePath(test.in)
		switch {
		case strings.HasPrefix(test.want, "file:"):
			if err != nil || got.String() != test.want {
				t.Errorf("%q is %q, %v, want %q", test.in, got, err, test.want)
			}
		case err == nil || !strings.Contains(err.Error(), test.want):
			t.Errorf("%q is %q, %v, want %q", test.in, got, err, test.want)
		}
	}
}

// Whatever is taken is canonical: taken again it is the same, and no name in it is a dot or holds a separator.
func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{"file:///a b/../c", "file://srv/share", `FILE:\\C:\x`, "file:///%2e%2E/%zz", "file:///%00/bad/path/YQ", "file:///a%2Fb"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		uri, err := parsePath(text)
		if err != nil {
			return
		}
		again, err := parsePath(uri.String())
		if err != nil || again != uri {
			t.Errorf("%q is %q, and that is %q, %v", text, uri, again, err)
		}
		for above := range uri.Ancestors() {
			if name, ok := above.Base(); ok && (name == "." || name == "..") {
				t.Errorf("%q is %q, with the name %q", text, uri, name)
			}
		}
	})
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"*KEY*", "API_KEY_2", true}, {"*KEY*", "API", false}, {"", "", true}, {"", "x", false}, {"*", "", true}, {"a?c", "abc", true},
		{"a?c", "ac", false}, {"a*b*c", "aXbYbZc", true}, {"a*b*c", "aXbYbZ", false}, {"[ab]", "a", false}, {"[ab]", "[ab]", true},
		{"**x", "x", true}, {"?*", "", false},
	} {
		if got := matches(test.pattern, test.name); got != test.want {
			t.Errorf("%q and %q: %t", test.pattern, test.name, got)
		}
	}
}
