package host

import (
	"strings"
	"testing"

	"waldo/env"
)

// The server's own environment is what children get, less what is the server's alone.
func TestServersEnvironment(t *testing.T) {
	t.Setenv("SEEN_BY_CHILDREN", "yes")
	t.Setenv("WALDO_TOKEN", "secret")
	h, err := New(Options{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	p, err := h.Start(t.Context(), env.Command{Argv: []string{"env"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var out strings.Builder
	for chunk, err := range p.Output(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out.Write(chunk.Data)
	}
	if !strings.Contains(out.String(), "SEEN_BY_CHILDREN=yes\n") || strings.Contains(out.String(), "secret") {
		t.Errorf("a child's environment is %q", out.String())
	}
	if info, err := h.Describe(t.Context()); info.Version != "v1" || err != nil {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestChildEnvironment(t *testing.T) {
	for _, test := range []struct{ environ, want string }{
		{"PATH=/x A=1 WALDO_TOKEN=secret WALDO_HOME=/h WALDOX=1", "PATH=/x A=1 WALDOX=1"},
		{"A=1", "A=1 PATH=" + defaultPath},
		{"PATH= broken =x", "PATH=" + defaultPath},
	} {
		if got := strings.Join(childEnvironment(strings.Fields(test.environ)), " "); got != test.want {
			t.Errorf("%q: %q, want %q", test.environ, got, test.want)
		}
	}
}
