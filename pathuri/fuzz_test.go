package pathuri

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// checkURI holds what is true of every URI that this package hands out.
func checkURI(t *testing.T, u URI) {
	t.Helper()
	if again, err := Parse(u.String()); again != u || err != nil {
		t.Fatalf("%q parses as %q, %v", u, again, err)
	}
	if p, err := parse(u.String()); err != nil || p.uri() != u {
		t.Fatalf("%q is canonical to the short cut, but parses as %q, %v", u, p.uri(), err)
	}
	p := u.path()
	if again := p.uri(); again != u {
		t.Fatalf("%q comes apart as %+v and together as %q", u, p, again)
	}
	if p.conv != u.Convention() {
		t.Fatalf("%q is %v and %v", u, p.conv, u.Convention())
	}
	for i := range len(u.s) {
		if c := u.s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"#<>?`{}\\", c) >= 0 {
			t.Fatalf("%q holds %q", u, c)
		}
	}
	checkNative(t, u)
	checkParents(t, u)
	var back URI
	if text, err := json.Marshal(u); err != nil || json.Unmarshal(text, &back) != nil || back != u {
		t.Fatalf("%q in JSON is %s, %v", u, text, err)
	}
}

func checkNative(t *testing.T, u URI) {
	t.Helper()
	text, err := u.Native()
	if err != nil {
		checkError(t, err, u.String())
		if u.Display() != u.String() {
			t.Fatalf("%q is shown as %q", u, u.Display())
		}
		return
	}
	if u.Display() != text || strings.IndexByte(text, 0) >= 0 {
		t.Fatalf("%q is native %q, shown as %q", u, text, u.Display())
	}
	if back, err := FromNative(text, u.Convention()); back != u || err != nil {
		t.Fatalf("%q is native %q, which is %q, %v", u, text, back, err)
	}
	if text, err := u.NativeFor(3 - u.Convention()); !errors.Is(err, ErrConvention) {
		t.Fatalf("%q is %q on the other kind of machine, %v", u, text, err)
	}
}

func checkParents(t *testing.T, u URI) {
	t.Helper()
	if !u.Contains(u) {
		t.Fatalf("%q does not contain itself", u)
	}
	steps := 0
	for up := range u.Ancestors() {
		if steps++; steps > len(u.s)+1 {
			t.Fatalf("%q has no end of ancestors", u)
		}
		_, err := u.Native()
		if rel, ok := up.Rel(u); ok {
			if joined, err := up.Join(rel); up.Convention() == Posix && (joined != u || err != nil) && rel[:min(1, len(rel))] != "/" {
				t.Fatalf("%q with %q is %q, %v; want %q", up, rel, joined, err, u)
			}
		} else if err == nil {
			t.Fatalf("%q does not contain %q", up, u)
		}
		if up != u && u.Contains(up) {
			t.Fatalf("%q contains %q", u, up)
		}
	}
	parent, ok := u.Parent()
	if !ok {
		return
	}
	base, ok := u.Base()
	if again, err := parent.JoinName(base); !ok || again != u || err != nil {
		t.Fatalf("%q is %q in %q, which is %q, %v", u, base, parent, again, err)
	}
}

func checkError(t *testing.T, err error, input string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Input != input || e.Reason == "" {
		t.Fatalf("error about %q: %v", input, err)
	}
	for _, r := range err.Error() {
		if !strconv.IsPrint(r) {
			t.Fatalf("message %q holds %q", err, r)
		}
	}
	if !utf8.ValidString(err.Error()) {
		t.Fatalf("message %q is not UTF-8", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"file:///", "file:///tmp/./a/../b/", "FILE:/c%3a/x", "file:///C:/Users/a%20b", "file://srv/share/f", "file://bücher/s",
		"file://[::1]/x", "file:///a%FF%5C", "file:///%00/bad/path/L2M6L3g", "file:///%00/bad/path/XABcAC4AXABDAE8ATQAxAFwA",
		"file:///%00/bad/path/YQ", "file:///C:/..%20/x.", "file://wsl%24/u/%2e%2e", "file:////a", "file:x", "", `C:\x`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := Parse(text)
		if err != nil {
			if !u.IsZero() {
				t.Fatalf("both %q and %v", u, err)
			}
			checkError(t, err, text)
			return
		}
		checkURI(t, u)
	})
}

func FuzzFromNative(f *testing.F) {
	for _, text := range []string{
		"/", "/home/a b/", "/c:/x", "/a\xffb", "//a/../..", `C:\`, `c:/x\..\y`, `\\srv\share\x`, `\\?\C:\x`, `\\?\UNC\s\h\x.`,
		`\\.\COM1`, "C:\\\xed\xa0\x80\\b", `\\localhost\c$`, `\\bücher\s`, `//?/c:/x`, `C:x`, `C:\nul.txt`, "/a\x00", "",
	} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, windows bool) {
		c := Posix
		if windows {
			c = Windows
		}
		u, err := FromNative(text, c)
		if err != nil {
			checkError(t, err, text)
			return
		}
		if u.Convention() != c {
			t.Fatalf("%q is for %v, not %v", u, u.Convention(), c)
		}
		if _, err := u.Native(); err != nil {
			t.Fatalf("%q is %q, which has no native form: %v", text, u, err)
		}
		checkURI(t, u)
	})
}

func FuzzJoin(f *testing.F) {
	for _, base := range []string{"file:///", "file:///w/a", "file:///C:/", "file:///C:/w", "file://srv/share/w", "file:///%00/bad/path/L2M6L3g"} {
		for _, text := range []string{
			"", "a", "../a", "../../../..", "/a", `\a`, "C:a", `D:\a`, "//s/h/x", "c:/x", "a\xff", "\xed\xa0\x80", ".. /x", "a/./b//", "...", "~/p", "nul", "a\x00",
		} {
			f.Add(base, text)
		}
	}
	f.Fuzz(func(t *testing.T, baseText, text string) {
		base, err := Parse(baseText)
		if err != nil {
			return
		}
		if u, err := base.JoinName(text); err == nil {
			checkURI(t, u)
			checkJoinedName(t, base, u, text)
		}
		u, err := base.Join(text)
		if err != nil {
			checkError(t, err, text)
			return
		}
		checkURI(t, u)
		if u.Convention() != base.Convention() {
			t.Fatalf("%q with %q changes the convention: %q", base, text, u)
		}
		if again, err := base.Join(text); again != u || err != nil {
			t.Fatalf("%q with %q is %q, then %q, %v", base, text, u, again, err)
		}
		checkJoined(t, base, u, text)
	})
}

func checkJoinedName(t *testing.T, base, u URI, name string) {
	t.Helper()
	if parent, ok := u.Parent(); ok && parent != base {
		t.Fatalf("%q with name %q is %q, in %q", base, name, u, parent)
	}
	if got, ok := u.Base(); ok && got != name && utf8.ValidString(name) {
		t.Fatalf("%q with name %q is called %q", base, name, got)
	}
}

// checkJoined holds that relative text stays below the root, drive or share, and below base if it has no "..".
func checkJoined(t *testing.T, base, u URI, text string) {
	t.Helper()
	windows := base.Convention() == Windows
	if text == "" || text[0] == '/' || windows && (text[0] == '\\' || len(text) > 1 && text[1] == ':') {
		return
	}
	p := base.path()
	if windows && p.checkWindows() != nil {
		return // nothing is contained then
	}
	anchor := base
	for anchor = range base.Ancestors() {
	}
	if !anchor.Contains(u) {
		t.Fatalf("%q with %q escapes %q: %q", base, text, anchor, u)
	}
	names := strings.FieldsFunc(text, func(r rune) bool { return r == '/' || windows && r == '\\' })
	for _, name := range names {
		if name == ".." {
			return
		}
	}
	if !base.Contains(u) {
		t.Fatalf("%q with %q is outside: %q", base, text, u)
	}
}
