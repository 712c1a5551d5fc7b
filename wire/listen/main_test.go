package listen

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// echoDoor is a native door: a zero byte, the token and a newline come, "ok" or an error goes back, then all is echoed.
func echoDoor(ctx context.Context, c net.Conn, p *Peer) {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	in := bufio.NewReader(c)
	hello, err := in.ReadString('\n')
	if err != nil {
		return
	}
	if err := p.Authenticate(strings.TrimSpace(strings.TrimPrefix(hello, "\x00"))); err != nil {
		fmt.Fprintf(c, "refused: %v\n", err)
		return
	}
	fmt.Fprintf(c, "ok trusted=%v\n", p.Trusted)
	io.Copy(c, in)
}

// textDoor is an HTTP door.
var textDoor = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "door %s trusted=%v", r.URL.Path, PeerOf(r).Trusted)
})

// linesDoor answers each line with its length.
func linesDoor(ctx context.Context, c net.Conn, p *Peer) {
	for s := bufio.NewScanner(c); s.Scan(); {
		fmt.Fprintf(c, "%d\n", len(s.Text()))
	}
}

var allDoors = Doors{Native: echoDoor, HTTP: textDoor, Lines: linesDoor}

// start listens and serves until the test ends.
func start(t *testing.T, text string, o Options, d Doors, change ...func(*Listener)) (*Listener, Address) {
	t.Helper()
	addr, err := ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	if o.StateDir == "" {
		o.StateDir = filepath.Join(t.TempDir(), "state")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	l, err := Listen(t.Context(), addr, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(l)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- l.Serve(ctx, d) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	addr, err = ParseAddress(l.URL())
	if err != nil {
		t.Fatal(err)
	}
	return l, addr
}

// token is the token that a listener made.
func token(t *testing.T, stateDir string) string {
	t.Helper()
	text, err := readToken(filepath.Join(stateDir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hello says a native hello and returns the answer's line.
func hello(t *testing.T, c net.Conn, token string) (string, *bufio.Reader) {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(c, "\x00%s\n", token); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatalf("no answer to hello: %v", err)
	}
	return strings.TrimSpace(line), in
}

// dialed dials or fails the test.
func dialed(t *testing.T, addr Address, o DialOptions) net.Conn {
	t.Helper()
	c, err := Dial(t.Context(), addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// plain connects to a listener without any of our own code.
func plain(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	c, err := net.Dial(l.ln.Addr().Network(), l.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// wantErr checks that an error says something.
func wantErr(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("error is %v, want %q in it", err, part)
	}
}

// write makes a file of the mode given.
func write(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}
