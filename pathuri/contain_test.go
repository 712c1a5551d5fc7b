package pathuri

import "testing"

func TestContains(t *testing.T) {
	const no = "no"
	tests := []struct {
		n           int // Codex's vector, or 0
		base, other string
		rel         string
	}{
		{84, "file:///workspace/plugin", "file:///workspace/plugin/assets/i.svg", "assets/i.svg"},
		{85, "file:///workspace/plugin", "file:///workspace/plugin-other/i", no},
		{86, "file:///", "file:///workspace/plugin", "workspace/plugin"},
		{0, "file:///", "file:///C:/plugins", no},
		{0, "file:///", "file:///%00/bad/path/L2M6L3g", "c:/x"},
		{87, "file:///C:/plugins/foo", "file:///C:/plugins/foo2/x", no},
		{88, "file://server/share/p", "file://other/share/p", no},
		{90, "file:///workspace/plugin", "file:///workspace/plugin/%5C..%5Coutside", `\..\outside`},
		{0, "file:///a", "file:///a", ""},
		{0, "file:///a/b", "file:///a", no},
		{0, "file:///a", "file:///A/b", no},
		{0, "file:///a%FF", "file:///a%FF/b%20c", "b c"},
		{0, "file:///", "file:///C:/a", no},
		{0, "file:///", "file://srv/share", no},
		{0, "file:///C:/", "file:///C:/a", "a"},
		{0, "file:///C:/", "file:///D:/a", no},
		{0, "file:///C:/Users/Me", "file:///C:/users/mE/X", "X"},
		{0, "file:///C:/a@", "file:///C:/A`/x", no}, // only letters fold
		{0, "file:///C:/%C3%89", "file:///C:/%C3%A9/x", no},
		{0, "file:///C:/k", "file:///C:/%E2%84%AA/x", no}, // the Kelvin sign
		{0, "file://srv/Share", "file://SRV/share/x", "x"},
		{0, "file://srv/share", "file://srv/share2/x", no},
		{0, "file:///C:/a", "file:///C:/a/..%20/x", no}, // Windows may read it as ..
		{0, "file:///C:/a", "file:///C:/a/b.", no},
		{0, "file:///C:/a.", "file:///C:/a.", ""},
	}
	for _, test := range tests {
		base, other := parsed(t, test.base), parsed(t, test.other)
		rel, ok := base.Rel(other)
		if !ok {
			rel = no
		}
		if rel != test.rel || base.Contains(other) != ok {
			t.Errorf("vector %d: Rel from %s to %s = %q, %v; want %q", test.n, base, other, rel, ok, test.rel)
		}
	}
	// 89 and 91 differ on purpose: no such URI is.
	for _, in := range []string{"file:///workspace/plugin/%2F..%2Foutside", "file:///C:/plugins/foo/%5C..%5Coutside"} {
		if u, err := Parse(in); err == nil {
			t.Errorf("Parse(%q) = %q", in, u)
		}
	}
}
