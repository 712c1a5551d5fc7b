package pathuri

import (
	"errors"
	"testing"
)

func TestFromNative(t *testing.T) {
	tests := []struct {
		c        Convention
		in, want string
		back     string // Native, if it is not in
	}{
		{Posix, "/", "file:///", ""},
		{Posix, "/home/me", "file:///home/me", ""},
		{Posix, "//srv/share", "file:///srv/share", "/srv/share"},
		{Posix, "/a/", "file:///a", "/a"},
		{Posix, "/a/./b/../../../c//d", "file:///c/d", "/c/d"},
		{Posix, `/a\b`, "file:///a%5Cb", ""},
		{Posix, "/%41%", "file:///%2541%25", ""},
		{Posix, "/a\xffb", "file:///a%FFb", ""},
		{Posix, "/~/x", "file:///~/x", ""},
		{Posix, "/%00/bad/path/YQ", "file:///%2500/bad/path/YQ", ""},
		{Posix, "/c:/x", "file:///%00/bad/path/L2M6L3g", ""},
		{Posix, "/c:", "file:///%00/bad/path/L2M6", ""},
		{Posix, "/a/c:/x", "file:///a/c:/x", ""},
		{Posix, "/C|/x", "file:///C|/x", ""},
		{Posix, "", refused, ""},
		{Posix, "a", refused, ""},
		{Posix, "~/a", refused, ""},
		{Posix, `C:\x`, refused, ""},
		{Posix, "file:///a", refused, ""},
		{Posix, "/a\x00b", refused, ""},
		{0, "/a", refused, ""},

		{Windows, `C:\`, "file:///C:/", ""},
		{Windows, `c:/x\y/`, "file:///C:/x/y", `C:\x\y`},
		{Windows, `C:\a\..\..\b\.`, "file:///C:/b", `C:\b`},
		{Windows, `C:\\a\\b`, "file:///C:/a/b", `C:\a\b`},
		{Windows, `C:\a#b%20é+~`, "file:///C:/a%23b%2520%C3%A9+~", ""},
		{Windows, `C:\ a`, "file:///C:/%20a", ""},
		{Windows, "C:\\a\x7f", "file:///C:/a%7F", ""},
		{Windows, `\\srv\share\a b`, "file://srv/share/a%20b", ""},
		{Windows, `//SRV/Share/a`, "file://srv/Share/a", `\\srv\Share\a`},
		{Windows, `\\srv\share`, "file://srv/share", `\\srv\share\`},
		{Windows, `\\srv\\share\..\x`, "file://srv/share/x", `\\srv\share\x`},
		{Windows, `\\wsl$\Ubuntu\home`, "file://wsl$/Ubuntu/home", ""},
		{Windows, `\\?\UNC\srv\share\a`, "file://srv/share/a", `\\srv\share\a`},
		{Windows, `\\?\unc\srv\share\`, "file://srv/share", `\\srv\share\`},
		{Windows, `\\?\C:\x`, "file:///C:/x", `C:\x`},
		{Windows, `\\?\c:\x\`, "file:///C:/x", `C:\x`},
		{Windows, `\\?\C:\`, "file:///C:/", `C:\`},
		{Windows, `//?/C:/x`, "file:///C:/x", `C:\x`},
		{Windows, ``, refused, ""},
		{Windows, `a`, refused, ""},
		{Windows, `/a`, refused, ""},
		{Windows, `\a`, refused, ""},
		{Windows, `\??\C:\a`, refused, ""},
		{Windows, `C:`, refused, ""},
		{Windows, `C:a`, refused, ""},
		{Windows, `1:\a`, refused, ""},
		{Windows, `\\`, refused, ""},
		{Windows, `\\srv`, refused, ""},
		{Windows, `\\srv\`, refused, ""},
		{Windows, `\\srv\..`, refused, ""},
		{Windows, `\\..\share`, refused, ""},
		{Windows, `\\\srv\share`, refused, ""},
		{Windows, `\\s:v\share`, refused, ""},
		{Windows, `\\.`, refused, ""},
		{Windows, `\\.\`, refused, ""},
		{Windows, `\\?\`, refused, ""},
		{Windows, `//?/C:/a/../b`, refused, ""},
		{Windows, `C:\a<b`, refused, ""},
		{Windows, `C:\a<b\..\c`, refused, ""},
		{Windows, `C:\f:stream`, refused, ""},
		{Windows, `C:\a.`, refused, ""},
		{Windows, `C:\a \b`, refused, ""},
		{Windows, `C:\.. \b`, refused, ""},
		{Windows, `C:\...`, refused, ""},
		{Windows, "C:\\a\tb", refused, ""},
		{Windows, "C:\\a\x00", refused, ""},
		{Windows, "C:\\a\xff", refused, ""},
		{Windows, `C:\d\nul`, refused, ""},
		{Windows, `C:\d\Aux.c`, refused, ""},
		{Windows, `C:\COM1 .txt`, refused, ""},
		{Windows, `C:\lpt³`, refused, ""},
		{Windows, `C:\com`, "file:///C:/com", ""},
		{Windows, `C:\com0\com11\nullx\console`, "file:///C:/com0/com11/nullx/console", ""},
	}
	for _, test := range tests {
		u, err := FromNative(test.in, test.c)
		if u.String() != test.want || (err != nil) != (test.want == refused) {
			t.Errorf("FromNative(%q, %v) = %q, %v; want %q", test.in, test.c, u, err, test.want)
		}
		if err != nil {
			continue
		}
		want := test.back
		if want == "" {
			want = test.in
		}
		if back, err := u.NativeFor(test.c); back != want || err != nil {
			t.Errorf("%q came back as %q, %v; want %q", test.in, back, err, want)
		}
	}
}

func TestNative(t *testing.T) {
	const none = ""
	tests := []struct {
		n        int // Codex's vector, or 0
		in, want string
	}{
		{94, "file:///C:/Users/Alice%20Smith/main.rs", `C:\Users\Alice Smith\main.rs`},
		{95, "file:///C:", `C:\`},
		{96, "file://server/share/", `\\server\share\`},
		{98, "file:///d:/x", `D:\x`},
		{99, "file:///C:/trailing.", none},
		{0, "file:///tmp/a%20b%5Cc%FF", "/tmp/a b\\c\xff"},
		{0, "file:///", "/"},
		{0, "file:///C:/trailing%20", none},
		{0, "file:///C:/..%20/x", none},
		{0, "file:///C:/a%3Ab", none},
		{0, "file:///C:/D:/x", none},
		{0, "file:///C:/a%01", none},
		{0, "file:///C:/a*", none},
		{0, "file:///C:/a|b", none},
		{0, "file:///C:/NUL", none},
		{0, "file://srv/c%3A/x", none},
		{0, "file://srv/share/con", none},
		{43, "file://127.0.0.1/x", `\\127.0.0.1\x\`},
		{43, "file://[::1]/x", none},
		{45, "file://bücher/x/y", `\\xn--bcher-kva\x\y`},
		{33, "file:///%00/bad/path/L3RtcC9udWxsLQAt_y1ieXRl", none},
		{34, "file:///%00/bad/path/YQ", none},
	}
	for _, test := range tests {
		u := parsed(t, test.in)
		got, err := u.Native()
		if got != test.want || (err != nil) != (test.want == none) {
			t.Errorf("vector %d: Native of %s = %q, %v; want %q", test.n, u, got, err, test.want)
		}
		if err != nil {
			got = u.String()
		}
		if u.Display() != got {
			t.Errorf("Display of %s = %q", u, u.Display())
		}
	}
	// 97 and the first half of 99 differ on purpose: no such URI is.
	for _, in := range []string{"file://server/", "file:///tmp/a%2Fb"} {
		if u, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %q", in, u)
		}
	}
}

func TestNativeFor(t *testing.T) {
	tests := []struct {
		in      string
		c       Convention
		differs bool
	}{
		{"file:///x", Posix, false},
		{"file:///x", Windows, true},
		{"file:///x", 0, true},
		{"file:///C:/x", Windows, false},
		{"file:///C:/x", Posix, true},
		{"file://srv/share/x", Posix, true},
		{"file:///%00/bad/path/L2M6L3g", Posix, false},
		{"file:///%00/bad/path/L2M6L3g", Windows, true},
		{"file:///%00/bad/path/YQ", Posix, true},
		{"file:///%00/bad/path/YQ", Windows, true},
	}
	for _, test := range tests {
		_, err := parsed(t, test.in).NativeFor(test.c)
		var e *Error
		if errors.Is(err, ErrConvention) != test.differs || errors.As(err, &e) != test.differs {
			t.Errorf("NativeFor(%v) of %s: %v", test.c, test.in, err)
		}
	}
	_, err := parsed(t, "file:///C:/x.").NativeFor(Windows)
	if err == nil || errors.Is(err, ErrConvention) {
		t.Errorf("a bad name is not the convention's fault: %v", err)
	}
	_, err = parsed(t, "file:///C:/x").NativeFor(Posix)
	if want := `path "file:///C:/x": this is a windows path, but it was given to a machine with posix paths`; err.Error() != want {
		t.Errorf("got %q", err)
	}
}

// People never see /c:/x for a Windows path.
func TestDisplayIsNative(t *testing.T) {
	for in, want := range map[string]string{
		"file:///c:/w":            `C:\w`,
		"file:///C%3A/w/a%20b":    `C:\w\a b`,
		"file://srv/share/w":      `\\srv\share\w`,
		"file:///C:/trailing.":    "file:///C:/trailing.",
		"file:///w/a%20b":         "/w/a b",
		"file:///%00/bad/path/YQ": "file:///%00/bad/path/YQ",
	} {
		if got := parsed(t, in).Display(); got != want {
			t.Errorf("Display of %s = %q, want %q", in, got, want)
		}
	}
}
