package pathuri

import (
	"errors"
	"testing"
)

func TestJoin(t *testing.T) {
	tests := []struct {
		n                int // Codex's vector, or 0
		base, text, want string
	}{
		{68, "file:///workspace/src", "../tests/test.rs", "file:///workspace/tests/test.rs"},
		{69, "file:///", "../../etc", "file:///etc"},
		{70, "file:///C:/Users", "../Windows", "file:///C:/Windows"},
		{71, "file://server/share/src", "../tests", "file://server/share/tests"},
		{72, "file:///workspace", "a?b#c%d", "file:///workspace/a%3Fb%23c%25d"},
		{73, "file:///workspace/", "", "file:///workspace"}, // differs: the slash went before
		{74, "file:///workspace", "/src", "file:///src"},
		{75, "file:///workspace", "/tmp/a///../b", "file:///tmp/b"},
		{76, "file:///C:/workspace", `D:\tmp\a\..\b`, "file:///D:/tmp/b"},
		{77, "file:///C:/workspace", `\\server\share\..\..\b`, "file://server/share/b"},
		{78, "file:///C:/base/dir", `\Windows`, "file:///C:/Windows"},
		{79, "file://server/share/base/dir", `\Windows`, "file://server/share/Windows"},
		{80, "file:///C:/base", "D:tmp", refused},
		{81, "file:///C:/base/dir", `..\..\..\Windows`, "file:///C:/Windows"},
		{82, "file:///workspace", "src\x00file", refused},
		{83, "file:///%00/bad/path/YQ", "child", refused},

		{0, "file:///C:/w", `D:\x`, "file:///D:/x"},
		{0, "file:///C:/w", `\x`, "file:///C:/x"},
		{0, "file:///C:/w", `/x`, "file:///C:/x"},
		{0, "file:///C:/w", "C:x", refused},
		{0, "file:///C:/w", "C:", refused},
		{0, "file:///C:/w", `..\..\..`, "file:///C:/"},
		{0, "file:///C:/w", "//s/h/x", "file://s/h/x"},
		{0, "file:///C:/w", `a/b\c`, "file:///C:/w/a/b/c"},
		{0, "file://srv/share/w", `..\..\..`, "file://srv/share"},

		{0, "file:///w", "~/p", "file:///w/~/p"},
		{0, "file:///w", "~root/p", "file:///w/~root/p"},
		{0, "file:///w", "~", "file:///w/~"},
		{0, "file:///w", "$HOME/p", "file:///w/$HOME/p"},

		{0, "file:///w", `a\b`, "file:///w/a%5Cb"},
		{0, "file:///w", `C:\x`, `file:///w/C:%5Cx`},
		{0, "file:///w", "a\xff", "file:///w/a%FF"},
		{0, "file:///w", ".", "file:///w"},
		{0, "file:///w", "./a/./b/", "file:///w/a/b"},
		{0, "file:///w", "//a", "file:///a"},
		{0, "file:///", "c:/x", "file:///%00/bad/path/L2M6L3g"},
		{0, "file:///w", "../c:/x", "file:///%00/bad/path/L2M6L3g"},
		{0, "file:///%00/bad/path/L2M6L3g", "../..", "file:///"},
		{0, "file:///C:/w", "a\x00", refused},
		{0, "file:///C:/w", "a\xff", refused},
		{0, "file:///C:/w", "a.", refused},
		{0, "file:///C:/w", "a|b/../c", refused},
		{0, "file:///C:/w", "nul", refused},
		{0, "file:///C:/w", "f:stream", refused},
		{0, "file:///C:/w", `\\?\C:\x`, "file:///C:/x"},
		{0, "file:///C:/w", `\\srv`, refused},
		{0, "file:///C:/w", "~/p", "file:///C:/w/~/p"},
		{0, "file:///C:/w.", "../a", "file:///C:/a"},
	}
	for _, test := range tests {
		got, err := parsed(t, test.base).Join(test.text)
		if got.String() != test.want || (err != nil) != (test.want == refused) {
			t.Errorf("%d: %s with %q = %q, %v; want %q", test.n, test.base, test.text, got, err, test.want)
		}
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%T is not an *Error", err)
		}
	}
	// The original must not change with what is joined to it.
	u := parsed(t, "file:///a/b/c")
	for _, text := range []string{"../x", "y", "/z"} {
		if _, err := u.Join(text); err != nil || u.String() != "file:///a/b/c" {
			t.Errorf("%s, %v", u, err)
		}
	}
}

func TestJoinName(t *testing.T) {
	tests := []struct{ base, name, want string }{
		{"file:///w", "a", "file:///w/a"},
		{"file:///", "a", "file:///a"},
		{"file:///", "c:", "file:///%00/bad/path/L2M6"},
		{"file:///w", "c:", "file:///w/c:"},
		{"file:///w", `..\x`, "file:///w/..%5Cx"},
		{"file:///w", "...", "file:///w/..."},
		{"file:///w", "%2e%2e", "file:///w/%252e%252e"},
		{"file:///w", "", refused},
		{"file:///w", ".", refused},
		{"file:///w", "..", refused},
		{"file:///w", "a/b", refused},
		{"file:///w", "/", refused},
		{"file:///w", "a\x00", refused},
		{"file:///C:/", "a", "file:///C:/a"},
		{"file:///C:/w", "a.", "file:///C:/w/a."}, // exists, made through \\?\
		{"file:///C:/w", "D:", "file:///C:/w/D:"},
		{"file:///C:/w", `a\b`, refused},
		{"file:///C:/w", "a/b", refused},
		{"file:///C:/w", "..", refused},
		{"file:///C:/w", "a\xff", refused},
		{"file://srv/share", "a", "file://srv/share/a"},
	}
	for _, test := range tests {
		got, err := parsed(t, test.base).JoinName(test.name)
		if got.String() != test.want || (err != nil) != (test.want == refused) {
			t.Errorf("%s with %q = %q, %v; want %q", test.base, test.name, got, err, test.want)
		}
	}
}

// Names that are not UTF-8 stay apart and come back.
func TestNamesThatAreNoText(t *testing.T) {
	dir := parsed(t, "file:///w")
	for name, want := range map[string]string{
		"a\xffb":         "file:///w/a%FFb",
		"a\xfeb":         "file:///w/a%FEb",
		"a\xef\xbf\xbdb": "file:///w/a%EF%BF%BDb",
	} {
		u, err := dir.JoinName(name)
		if u.String() != want || err != nil {
			t.Errorf("%q is %s, %v", name, u, err)
		}
		if text, err := parsed(t, u.String()).Native(); text != "/w/"+name || err != nil {
			t.Errorf("%q came back as %q, %v", name, text, err)
		}
	}
}

// Names with characters that mean something in a URI or a shell.
func TestNamesWithSpecialCharacters(t *testing.T) {
	for name, want := range map[string]string{
		"a#b": "a%23b", "a?b": "a%3Fb", "a b": "a%20b", "a+b": "a+b", "a;b": "a;b", "a&b=c": "a&b=c",
		`a"b`: "a%22b", "a<b>": "a%3Cb%3E", "a\nb": "a%0Ab", "[x]": "[x]", "~t": "~t", "a:b": "a:b",
		"é": "%C3%A9", "😀": "%F0%9F%98%80", " ": "%20", "a'b": "a'b", "%": "%25",
	} {
		for _, c := range []struct {
			dir    string
			native string
		}{{"file:///w", "/w/"}, {"file:///C:/w", `C:\w\`}} {
			u, err := parsed(t, c.dir).JoinName(name)
			if u.String() != c.dir+"/"+want || err != nil {
				t.Errorf("%q in %s is %s, %v", name, c.dir, u, err)
			}
			if base, ok := parsed(t, u.String()).Base(); base != name || !ok {
				t.Errorf("%q came back as %q", name, base)
			}
			if text, err := u.Native(); err == nil && text != c.native+name || err != nil && u.Convention() == Posix {
				t.Errorf("%q is native %q, %v", name, text, err)
			}
		}
	}
}
