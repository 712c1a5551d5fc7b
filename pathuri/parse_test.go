package pathuri

import (
	"errors"
	"strings"
	"testing"
)

// refused marks a vector that Parse must refuse.
const refused = ""

func TestParseVectors(t *testing.T) {
	// The vectors of Codex's exec-server by number. differs marks the ones where the design wants another answer.
	const differs, same = true, "="
	tests := []struct {
		n       int
		in      string
		want    string
		differs bool
	}{
		{1, "file:///", same, false},
		{2, "file:///tmp", same, false},
		{3, "file:///tmp/", "file:///tmp", differs},
		{4, "file:///tmp//a", "file:///tmp/a", differs},
		{5, "file:///tmp/./a/../b", "file:///tmp/b", false},
		{6, "file:///tmp/%2e%2e/x", "file:///x", false},
		{7, "file:///tmp/%2E/x", "file:///tmp/x", false},
		{8, "file:///a b", "file:///a%20b", false},
		{9, "file:///é", "file:///%C3%A9", false},
		{10, "file:///%c3%a9", "file:///%C3%A9", differs},
		{11, "file:///a%2fb", refused, differs},
		{12, "file:///a%5Cb", same, false},
		{13, `file:///a\b`, refused, differs},
		{14, "file:///C:/x", same, false},
		{15, "file:///c:/x", "file:///C:/x", false},
		{16, "file:///C|/x", same, false},
		{17, "file:///C:", "file:///C:/", differs},
		{18, "file:///C:/..", "file:///C:/", false},
		{19, "file:///C:/../x", "file:///C:/x", false},
		{20, `file:///C:\x\y`, refused, differs},
		{21, "file:///d:/a/../..", "file:///D:/", false},
		{22, "file://server/share/f", same, false},
		{23, "file://SERVER/share", "file://server/share", false},
		{24, "file://server", refused, differs},
		{25, "file://srv/share/../..", "file://srv/share", differs},
		{26, "file://localhost/x", "file:///x", false},
		{27, "file://LOCALHOST/x", "file:///x", false},
		{28, "FILE:/x", "file:///x", false},
		{29, "file:x", refused, differs},
		{30, "file:", refused, differs},
		{30, "file://", refused, differs},
		{31, "file:////server/share", refused, differs},
		{32, "file://///server/share", refused, differs},
		{33, "file:///%00/bad/path/L3RtcC9udWxsLQAt_y1ieXRl", same, false},
		{34, "file:///%00/bad/path/YQ", same, false},
		{35, "file:///%00/bad/path/YQ==", refused, false},
		{36, "file:///%00/bad/path/", refused, false},
		{37, "file:///%00/bad/path/YR", refused, false},
		{38, "file:///%00/x", refused, false},
		{39, "file:///a?b", refused, false},
		{39, "file:///a#b", refused, false},
		{40, "file:///a%3Fb%23c%25d", same, false},
		{41, "file:///a%zz", refused, differs},
		{41, "file:///a%", refused, differs},
		{42, "file://user@host/x", refused, false},
		{42, "file://host:80/x", refused, false},
		{42, "file://ho st/x", refused, false},
		{43, "file://127.0.0.1/x", same, false},
		{43, "file://[::1]/x", same, false},
		{44, "file://%41/x", "file://a/x", false},
		{45, "file://bücher/x", "file://xn--bcher-kva/x", false},
		{46, "file:///a\tb", refused, differs},
		{46, "file:///a\nb", refused, differs},
		{47, " file:///a ", refused, differs},
		{48, "file:///a\"<>`{}|^b", "file:///a%22%3C%3E%60%7B%7D|^b", false},
		{49, "file:///日本", "file:///%E6%97%A5%E6%9C%AC", false},
		{50, "file:///_:/x", same, false},
		{50, "file:///CC:/x", same, false},
		{50, "file:///1:/x", same, false},
		{50, "file:///a/C:/x", same, false},
		{50, "file:///a:b", same, false},
		{51, "file:///%41", "file:///A", differs},
		{51, "file:///%7Ex", "file:///~x", differs},
		{51, "file:///a/%FF", same, false},
		{51, "file:///~/x", same, false},
		{52, "file:///a/b/..", "file:///a", differs},
		{53, "file:///a/b/../../..", "file:///", false},
		{54, "http://x", refused, false},
		{54, "vscode-remote://ssh/x", refused, false},
		{54, "untitled:x", refused, false},
		{54, `C:\x`, refused, false},
		{55, "relative/x", refused, false},
		{55, "/abs", refused, false},
		{55, `\\srv\share`, refused, false},
		{55, "", refused, false},
	}
	for _, test := range tests {
		want := test.want
		if want == same {
			want = test.in
		}
		got, err := Parse(test.in)
		if got.String() != want || (err != nil) != (want == refused) {
			t.Errorf("vector %d: Parse(%q) = %q, %v; want %q", test.n, test.in, got, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	tests := []struct{ in, want string }{
		// A segment counts as first once the ones before it are resolved away, as a WHATWG parser has it.
		{"file:///./c:/x", "file:///C:/x"},
		{"file:///a/../c%3a/x", "file:///C:/x"},
		{"file:///C:/../D:/x", "file:///C:/D:/x"},
		{"file:///c%3a", "file:///C:/"},
		{"file:///C://x/", "file:///C:/x"},
		{"file:///C:/%41", "file:///C:/A"},
		{"file:///C:/é", "file:///C:/%C3%A9"},
		{"file:///C:/%C3%A9", "file:///C:/%C3%A9"},
		{"file:///C:/%FF", refused},
		{"file:///C:/%ED%A0%80", refused}, // a lone surrogate has one spelling, the opaque one
		{"file:///C:/a%2Fb", refused},
		{"file:///C:/a%5Cb", refused},
		{"file:///a%5Cb/../C:/x", refused},
		{"file://srv/share/a%5Cb", refused},
		{"file:///a/%2F/../b", refused},
		{"file:///a/%00/../b", refused},
		{"file:///a//", "file:///a"},
		{"file:/", "file:///"},
		{"file:///..", "file:///"},
		{"file:///%2e", "file:///"},
		{"file:///.%2E/x", "file:///x"},
		{"file:///...", "file:///..."},
		{"file:///%7f%C2%A0", "file:///%7F%C2%A0"},
		{"file:///a%2", refused},
		{"file:///a%%", refused},
		{"file:///a%GG", refused},
		{"file:///a\x7f", refused},
		{"file:///a\x01b", refused},
		{"file:///a\r", refused},
		{"file:///a\xff", refused},
		{"file:///a ", refused},
		{"file://srv/../share", "file://srv/share"},
		{"file://srv/share/../../x", "file://srv/share/x"},
		{"file://srv/share/", "file://srv/share"},
		{"file://srv//share", refused},
		{"file://localhost//x", refused},
		{"file://srv/", refused},
		{"file://srv/..", refused},
		{"file://localhost", refused},
		{"file://LocalHost", refused},
		{"file://localhost/", "file:///"},
		{"file://%6cocalhost/c:/x", "file:///C:/x"},
		{"file:////", refused},
		{"file:///?", refused},
		{"+:x", refused},
		{"file ///x", refused},
		// The opaque form is no second spelling of what the plain form can carry.
		{"file:///%00/bad/path/L3RtcC9h", "file:///tmp/a"},       // /tmp/a
		{"file:///%00/bad/path/L3RtcC8uLi9h", "file:///a"},       // /tmp/../a
		{"file:///%00/bad/path/QwA6AFwAeAA", "file:///C:/x"},     // C:\x
		{"file://localhost/%00/bad/path/L2E", "file:///a"},       // /a
		{"file:///%00/bad/path/L2E/x", refused},                  // not base64url
		{"file:///%00/bad/path/L2%45", refused},                  // escapes are not for payloads
		{"file:///%00/bad/path/L2E/..", refused},                 //
		{"file:///%00/bad/path", refused},                        //
		{"file:///x/%00/bad/path/L2E", refused},                  //
		{"file://srv/%00/bad/path/L2E", refused},                 //
		{"file:///%2500/bad/path/a", "file:///%2500/bad/path/a"}, // a directory called %00
	}
	for _, test := range tests {
		got, err := Parse(test.in)
		if got.String() != test.want || (err != nil) != (test.want == refused) {
			t.Errorf("Parse(%q) = %q, %v; want %q", test.in, got, err, test.want)
		}
	}
}

// All spellings of a drive path are one URI, equal as map keys, and never a POSIX path.
func TestDriveSpellings(t *testing.T) {
	keys := map[URI]bool{}
	for _, in := range []string{"file:///c%3A/x", "file:///C:/x", "file:///C%3a/x", "FILE:///c:/x", "file:/c:/x"} {
		u := parsed(t, in)
		keys[u] = true
		if text, err := u.NativeFor(Windows); text != `C:\x` || err != nil {
			t.Errorf("NativeFor(Windows) of %q = %q, %v", in, text, err)
		}
		if _, err := u.NativeFor(Posix); !errors.Is(err, ErrConvention) {
			t.Errorf("NativeFor(Posix) of %q: %v", in, err)
		}
	}
	if len(keys) != 1 {
		t.Errorf("keys: %v", keys)
	}
	posix := native(t, "/c:/x", Posix)
	if keys[posix] || posix.Convention() != Posix {
		t.Errorf("/c:/x on POSIX is %q", posix)
	}
}

// What is no path URI is refused with the reason, and what helps is named.
func TestReasons(t *testing.T) {
	tests := []struct{ in, reason string }{
		{"file://C:/x", "want file:///C:/"},
		{`C:\x`, "Windows path"},
		{"file:x", "no absolute path"},
		{"file:", "no absolute path"},
		{"file://", "the root is file:///"},
		{"/w/x", "/x is file:///x"},
		{"http://h/x", `scheme "http"`},
		{"file:///w/x?y", "%3F"},
		{"file:///w/x#y", "%23"},
		{"", "empty"},
		{`file:///w/\x`, "backslash"},
		{"file:///w/x%00", "NUL"},
		{"file:///%00/bad/path/=", "base64url"},
		{"file:////x", "too many slashes"},
		{"file://u@h/x", "user name"},
		{"file://h:1/x", "port"},
		{"file://h", "share"},
		{"file:///a%", "bad escape"},
		{"file:///a%2Fb", "slash"},
		{"file:///x\n", "control"},
		{" file:///x", "blank"},
		{`\\srv\share`, "file://server/share"},
		{"w/x", "not a URI"},
		{"file:///\xff", "UTF-8"},
	}
	for _, test := range tests {
		_, err := Parse(test.in)
		var e *Error
		if !errors.As(err, &e) || e.Input != test.in || !strings.Contains(e.Reason, test.reason) {
			t.Errorf("Parse(%q): %v; want a reason with %q", test.in, err, test.reason)
		}
	}
	if u := parsed(t, "file:///"); u.Display() != "/" {
		t.Errorf("file:/// is %q", u.Display())
	}
}

func TestErrorText(t *testing.T) {
	_, err := Parse("file:///a\x1b[31m?")
	if got, want := err.Error(), `path "file:///a\x1b[31m?": raw control character '\x1b': in a name it is %1B, unless it is a NUL`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	_, err = Parse("x" + strings.Repeat("é", 10_000))
	if n := len(err.Error()); n > 2*maxShown+100 {
		t.Errorf("a long input makes a message of %d bytes", n)
	}
}

func TestParseAllocs(t *testing.T) {
	for _, in := range []string{"file:///home/alice/src/a%20b.go", "file:///C:/Users/Alice%20Smith/main.rs", "file:///"} {
		if n := testing.AllocsPerRun(100, func() { _, _ = Parse(in) }); n > 0 {
			t.Errorf("Parse(%q): %v allocations", in, n)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for name, in := range map[string]string{
		"canonical": "file:///home/alice/src/project/internal/parse_test.go",
		"other":     "file:///home/alice/./src/project/internal/parse_test.go/",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Parse(in)
			}
		})
	}
}

// fataler is what *testing.T and *rapid.T have in common here.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func parsed(t fataler, text string) URI {
	t.Helper()
	u, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func native(t fataler, text string, c Convention) URI {
	t.Helper()
	u, err := FromNative(text, c)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
