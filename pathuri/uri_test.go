package pathuri

import (
	"errors"
	"testing"
)

func TestConvention(t *testing.T) {
	tests := []struct {
		n    int // Codex's vector, or 0
		in   string
		want Convention
	}{
		{14, "file:///C:/x", Windows},
		{16, "file:///C|/x", Posix},
		{22, "file://server/share/f", Windows},
		{33, "file:///%00/bad/path/L3RtcC9udWxsLQAt_y1ieXRl", Posix},
		{34, "file:///%00/bad/path/YQ", 0},
		{43, "file://127.0.0.1/x", Windows},
		{43, "file://[::1]/x", Windows},
		{50, "file:///_:/x", Posix},
		{50, "file:///CC:/x", Posix},
		{50, "file:///1:/x", Posix},
		{50, "file:///a/C:/x", Posix},
		{50, "file:///a:b", Posix},
		{56, "file:///home/alice/src", Posix},
		{57, "file:///C:/Users/Alice/src", Windows},
		{57, "file:///d:", Windows},
		{58, "file://server/share/src", Windows},
		{59, "file:///%00/bad/path/XABcAC4AXABDAE8ATQAxAFwA", Windows},
		{60, "file:///%00/bad/path/YQ", 0},
		{0, "file:///", Posix},
		{0, "file:///a", Posix},
		{0, "file:///%00/bad/path/L2M6L3g", Posix}, // /c:/x
		{0, "file:///%00/bad/path/QwA6AAA", 0},     // C: and half a unit
		{0, "file:///%00/bad/path/YQBiAA", 0},      // ab
	}
	for _, test := range tests {
		if got := parsed(t, test.in).Convention(); got != test.want {
			t.Errorf("vector %d: %s is %v, want %v", test.n, test.in, got, test.want)
		}
	}
}

func TestConventionString(t *testing.T) {
	for c, want := range map[Convention]string{Posix: "posix", Windows: "windows", 0: "unknown", 77: "unknown"} {
		if c.String() != want {
			t.Errorf("%d is %q", c, c)
		}
	}
}

func TestZero(t *testing.T) {
	var u URI
	if !u.IsZero() || u.String() != "" || u.Display() != "" || u.Convention() != 0 {
		t.Errorf("zero value: %q, %v", u, u.Convention())
	}
	if _, err := u.Native(); err == nil {
		t.Error("Native of no URI")
	}
	if _, err := u.NativeFor(Posix); err == nil || errors.Is(err, ErrConvention) {
		t.Errorf("NativeFor of no URI: %v", err)
	}
	if _, ok := u.Base(); ok {
		t.Error("Base of no URI")
	}
	if _, ok := u.Parent(); ok {
		t.Error("Parent of no URI")
	}
	for range u.Ancestors() {
		t.Error("ancestor of no URI")
	}
	for _, text := range []string{"", "a", "/a"} {
		if _, err := u.Join(text); err == nil {
			t.Errorf("Join(%q) to no URI", text)
		}
	}
	if _, err := u.JoinName("a"); err == nil {
		t.Error("JoinName to no URI")
	}
	root := parsed(t, "file:///")
	if u.Contains(u) || u.Contains(root) || root.Contains(u) {
		t.Error("no URI contains nothing and is in nothing")
	}
}
