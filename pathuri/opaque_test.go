package pathuri

import "testing"

// Paths that only the opaque form can carry, and that have parts all the same.
func TestOpaqueWithParts(t *testing.T) {
	tests := []struct {
		c              Convention
		in             string
		base, parent   string // parent is native text
		anchor         string
		child, sibling string // JoinName("k") and Join("../k")
	}{
		{Posix, "/c:/x", "x", "/c:", "/", "/c:/x/k", "/c:/k"},
		{Posix, "/c:", "c:", "/", "/", "/c:/k", "/k"},
		{Windows, "C:\\w\\\xed\xa0\x80", "\xed\xa0\x80", `C:\w`, `C:\`, "C:\\w\\\xed\xa0\x80\\k", `C:\w\k`},
		{Windows, "C:\\\xed\xb0\x80\\b", "b", "C:\\\xed\xb0\x80", `C:\`, "C:\\\xed\xb0\x80\\b\\k", "C:\\\xed\xb0\x80\\k"},
		{Windows, `\\localhost\c$\b`, "b", `\\localhost\c$\`, `\\localhost\c$\`, `\\localhost\c$\b\k`, `\\localhost\c$\k`},
		{Windows, `\\srv@ssl\dav\b`, "b", `\\srv@ssl\dav\`, `\\srv@ssl\dav\`, `\\srv@ssl\dav\b\k`, `\\srv@ssl\dav\k`},
		{Windows, `\\[x]\s\b`, "b", `\\[x]\s\`, `\\[x]\s\`, `\\[x]\s\b\k`, `\\[x]\s\k`},
		{Windows, `\\bücher\s\b`, "b", `\\bücher\s\`, `\\bücher\s\`, `\\bücher\s\b\k`, `\\bücher\s\k`},
	}
	for _, test := range tests {
		u := native(t, test.in, test.c)
		if _, ok := u.payload(); !ok {
			t.Errorf("%q is plain: %s", test.in, u)
		}
		if again := parsed(t, u.String()); again != u {
			t.Errorf("%s parses as %s", u, again)
		}
		if u.Convention() != test.c || u.Display() != test.in {
			t.Errorf("%q is %v, %q", test.in, u.Convention(), u.Display())
		}
		if base, ok := u.Base(); base != test.base || !ok {
			t.Errorf("Base of %q = %q", test.in, base)
		}
		parent, _ := u.Parent()
		if parent.Display() != test.parent {
			t.Errorf("Parent of %q = %q", test.in, parent.Display())
		}
		anchor := native(t, test.anchor, test.c)
		if !anchor.Contains(u) || !parent.Contains(u) || u.Contains(parent) {
			t.Errorf("%q is not in its parents", test.in)
		}
		if child, err := u.JoinName("k"); err != nil || child.Display() != test.child || !u.Contains(child) {
			t.Errorf("%q with k = %q, %v", test.in, child.Display(), err)
		}
		if sibling, err := u.Join("../k"); err != nil || sibling.Display() != test.sibling {
			t.Errorf("%q with ../k = %q, %v", test.in, sibling.Display(), err)
		}
	}
}

// Device and verbatim paths, and payloads that are no path, are names as a whole.
func TestOpaqueSealed(t *testing.T) {
	var all []URI
	for _, in := range []string{
		`\\.\COM1`,
		`\\.\COM1\`,
		`\\.\pipe\x`,
		`\\.\C:\x`,
		`\\?\Volume{b75e2c83-0000-0000-0000-602f00000000}\x`,
		`\\?\GLOBALROOT\Device\Null`,
		`\\?\C:`,
		`\\?\C:\x.`,
		`\\?\C:\aux`,
		`\\?\C:\a\..\b`,
		`\\?\C:\a\\b`,
		`\\?\C:\a/b`,
		`\\?\UNC\srv`,
		`\\?\UNC\srv\share\x.`,
		`\\?\UNC\.\x`,
		`\\?\\\srv\share\x`,
		`\\?\.\x`,
	} {
		u := native(t, in, Windows)
		if got, err := u.NativeFor(Windows); got != in || err != nil {
			t.Errorf("%q came back as %q, %v", in, got, err)
		}
		all = append(all, u)
	}
	for _, in := range []string{
		"file:///%00/bad/path/L3RtcC9udWxsLQAt_y1ieXRl", // NUL
		"file:///%00/bad/path/YQ",                       // no path
		"file:///%00/bad/path/QwA6AHgA",                 // C:x
		"file:///%00/bad/path/QwA6AFwAAAA",              // C:\ and NUL
		"file:///%00/bad/path/QwA6AFwAYQA8AA",           // C:\a<
	} {
		u := parsed(t, in)
		if text, err := u.Native(); err == nil {
			t.Errorf("Native of %s = %q", in, text)
		}
		all = append(all, u)
	}
	for _, u := range all {
		if again := parsed(t, u.String()); again != u {
			t.Errorf("%s parses as %s", u, again)
		}
		if base, ok := u.Base(); ok {
			t.Errorf("Base of %s = %q", u, base)
		}
		if parent, ok := u.Parent(); ok {
			t.Errorf("Parent of %s = %s", u, parent)
		}
		for _, text := range []string{"child", ".", "..", `\x`, "C:child"} {
			if got, err := u.Join(text); err == nil && !(text == `\x` && u.Convention() == Posix) {
				t.Errorf("%s with %q = %s", u, text, got)
			}
		}
		if got, err := u.JoinName("child"); err == nil {
			t.Errorf("%s with child = %s", u, got)
		}
		if got, err := u.Join(""); got != u || err != nil {
			t.Errorf("%s with nothing = %s, %v", u, got, err)
		}
		for _, other := range all {
			if u.Contains(other) != (u == other) {
				t.Errorf("%s contains %s: %v", u, other, u.Contains(other))
			}
		}
	}
	// Absolute text replaces, where the convention is known.
	if got, err := all[0].Join(`D:\x`); got.String() != "file:///D:/x" || err != nil {
		t.Errorf("a device with an absolute path = %s, %v", got, err)
	}
}

func TestOpaqueCanonical(t *testing.T) {
	for _, pair := range [][2]string{
		{`//./COM1`, `\\.\COM1`},
		{`\\?\c:\x.`, `\\?\C:\x.`},
		{`\\LOCALHOST\share\x`, `\\localhost\share\x`},
		{"c:\\\xed\xa0\x80/a/..", "C:\\\xed\xa0\x80"},
		{"C:\\\xed\xa0\xbd\xed\xb8\x80", "C:\\\U0001F600"}, // a pair spelled apart
	} {
		if a, b := native(t, pair[0], Windows), native(t, pair[1], Windows); a != b {
			t.Errorf("%q is %s, %q is %s", pair[0], a, pair[1], b)
		}
	}
	// Vector 59.
	if got := parsed(t, "file:///%00/bad/path/XABcAC4AXABDAE8ATQAxAFwA").Display(); got != `\\.\COM1\` {
		t.Errorf("got %q", got)
	}
}
