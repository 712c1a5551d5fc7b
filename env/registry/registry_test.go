package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"waldo/env"
	"waldo/wire"
	"waldo/wire/listen"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, want, err string }{
		{"local", "local", ""},
		{"", "local", ""},
		{"tcp://box", "tcp://box:7777", ""},
		{"tls://box:1", "tls://box:1", ""},
		{"unix:///run/s.sock", "unix:///run/s.sock", ""},
		{"ws://box:1/mux", "ws://box:1/mux", ""},
		{"ws://box:1/", "", "use ws://box:1/mux"},
		{"wss://box/other", "", "Codex door, which is not offered yet"},
		{"ssh://me@box", "ssh://me@box", ""},
		{"SSH://me@Box.example:22/", "ssh://me@Box.example:22", ""},
		{"ssh://[fe80::1%eth0]:2222", "ssh://[fe80::1%eth0]:2222", ""},
		{"ssh://-oProxyCommand=x", "", "letters, digits"},
		{"ssh://-box", "", "begins with a dash"},
		{"ssh://-l@box", "", "the user's name is none"},
		{"ssh://me:secret@box", "", "never part of a URL"},
		{"ssh://", "", "the box is missing"},
		{"ssh://a b", "", "letters, digits"},
		{"ssh://$(x)", "", "letters, digits"},
		{"ssh://me'@box", "", "the user's name is none"},
		{"ssh://box:0", "", "from 1 to 65535"},
		{"ssh://box:", "", "from 1 to 65535"},
		{"ssh://box/path", "", "letters, digits"},
		{"ssh://[::1]x", "", "only a port"},
		{"ssh://[box]", "", "IPv6"},
		{"box", "", `use "local" or a URL`},
		{"stdio", "", "for servers"},
		{"http://box", "", "http"},
		{"a\x1b[31mb", "", `\x1b[31m`},
	} {
		spec, err := Parse(c.name)
		switch {
		case c.err == "" && (err != nil || spec.String() != c.want):
			t.Errorf("%q: %s, %v; want %s", c.name, spec, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q: %v, want %q", c.name, err, c.err)
		}
	}
}

// place makes a file that looks like an exec-server.
func place(t *testing.T, dir string, mode os.FileMode) string {
	t.Helper()
	name := serverName
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, nil, mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFindServer(t *testing.T) {
	beside, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	path := strings.Join([]string{"", ".", "relative", first, second}, string(filepath.ListSeparator))
	_, err := findServer(beside, path)
	if err == nil || !strings.Contains(err.Error(), beside) || !strings.Contains(err.Error(), second) {
		t.Errorf("%v, want both places named", err)
	}
	if runtime.GOOS != "windows" {
		place(t, first, 0o600) // no program
	}
	want := place(t, second, 0o700)
	if got, err := findServer(beside, path); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	want = place(t, beside, 0o700)
	if got, err := findServer(beside, path); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// fakeChild is the near end of a pipe to what plays the program.
type fakeChild struct {
	net.Conn
	ended error
}

func (c *fakeChild) CloseWrite() error { return nil }
func (c *fakeChild) Ended() error      { return c.ended }

// play returns a Spawn whose programs are played by f.
func play(t *testing.T, ended error, f func(net.Conn)) Spawn {
	var tasks sync.WaitGroup
	t.Cleanup(tasks.Wait)
	return func(context.Context, Program) (Child, error) {
		near, far := net.Pipe()
		tasks.Go(func() {
			defer far.Close()
			f(far)
		})
		return &fakeChild{near, ended}, nil
	}
}

// drained reads what comes while it plays, since a pipe without a buffer would block the other end.
func drained(c net.Conn) {
	buffer := make([]byte, 1024)
	for {
		if _, err := c.Read(buffer); err != nil {
			return
		}
	}
}

func openAndCall(t *testing.T, spec Spec) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	e, err := Open(ctx, spec)
	if err != nil {
		return err
	}
	defer e.Close()
	_, err = e.Processes(ctx)
	return e.Explain(err)
}

func TestWhatIsNoProtocolIsShown(t *testing.T) {
	spec := Spec{Program: []string{"ssh", "my box"}, Spawn: play(t, nil, func(c net.Conn) {
		go drained(c)
		c.Write([]byte("Last login:\x1b[5m "))       //nolint:errcheck // as far as it is read
		c.Write([]byte(strings.Repeat("no ", 1000))) //nolint:errcheck // as far as it is read
	})}
	err := openAndCall(t, spec)
	if err == nil || !strings.Contains(err.Error(), `ssh "my box" printed "Last login:\x1b[5m no no`) || !strings.Contains(err.Error(), "…") || len(err.Error()) > 1000 {
		t.Errorf("%v", err)
	}
}

func TestHowAProgramEndedIsTold(t *testing.T) {
	ended := errors.New("exit status 3, it said no licence")
	err := openAndCall(t, Spec{Program: []string{"p"}, Spawn: play(t, ended, func(net.Conn) {})})
	if err == nil || strings.Count(err.Error(), ended.Error()) != 1 {
		t.Errorf("%v, want %v in it once", err, ended)
	}
}

// refusing plays a server that refuses everybody.
func refusing(refusal error) func(net.Conn) {
	return func(c net.Conn) {
		server, err := wire.Server(c, func(context.Context, wire.Hello) (wire.Welcome, error) {
			return wire.Welcome{}, refusal
		}, func(context.Context, *wire.Call) error { return nil })
		if err != nil {
			return
		}
		<-server.Done()
		server.Close() //nolint:errcheck // returns nil
	}
}

func TestVersionMismatchNamesBothPaths(t *testing.T) {
	dir := t.TempDir()
	server := place(t, dir, 0o700)
	t.Setenv("PATH", dir)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	refusal := fmt.Errorf("%w: client speaks protocol versions 1 to 1, server 2 to 3; upgrade the client", wire.Unsupported)
	err = openAndCall(t, Spec{Spawn: play(t, nil, refusing(refusal))})
	if err == nil || !strings.Contains(err.Error(), server) || !strings.Contains(err.Error(), self) || !strings.Contains(err.Error(), "upgrade the client") {
		t.Errorf("%v, want %s and %s in it", err, self, server)
	}
}

func TestRefusalNamesTheEnvironment(t *testing.T) {
	err := openAndCall(t, Spec{Program: []string{"p"}, Spawn: play(t, nil, refusing(fmt.Errorf("%w: a token is needed", wire.Unauthenticated)))})
	if !errors.Is(err, wire.Unauthenticated) || !strings.Contains(err.Error(), "environment p: ") {
		t.Errorf("%v", err)
	}
}

func TestAccessGoesWithAURL(t *testing.T) {
	err := openAndCall(t, Spec{Access: listen.DialOptions{TokenFile: "t"}})
	if err == nil || !strings.Contains(err.Error(), "goes with a URL") {
		t.Errorf("%v", err)
	}
}

func TestExplainLeavesOtherErrorsAlone(t *testing.T) {
	e := &Environment{}
	if err := e.Explain(env.ErrUnknownProcess); err != env.ErrUnknownProcess {
		t.Errorf("%v", err)
	}
	if err := e.Explain(nil); err != nil {
		t.Errorf("%v", err)
	}
}
