package proc

import (
	"strings"
	"testing"
)

func TestOverlay(t *testing.T) {
	base := []string{"A=1", "B=2", "broken", "=C:=x", "A=3"}
	for _, test := range []struct{ changes, want string }{
		{"", "A=3 B=2"},
		{"C=", "A=3 B=2 C="},
		{"A=x=y B", "A=x=y"},
		{"A A=4", "B=2 A=4"},
		{"A=4 A", "B=2"},
		{"Z", "A=3 B=2"},
	} {
		if got := strings.Join(overlay(base, strings.Fields(test.changes)), " "); got != test.want {
			t.Errorf("%q: %q, want %q", test.changes, got, test.want)
		}
	}
	if path, ok := lookEnv([]string{"PATH=a", "PATHX=b", "PATH=c"}, "PATH"); path != "c" || !ok {
		t.Errorf("PATH is %q", path)
	}
}
