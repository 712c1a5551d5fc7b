package listen

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// Ten megabytes go both ways at once through every way to the native door.
func TestEveryWay(t *testing.T) {
	data := make([]byte, 10<<20)
	rand.Read(data)
	for _, url := range []string{"tcp://127.0.0.1:0", "tls://localhost:0", "ws://127.0.0.1:0", "wss://127.0.0.1:0", "unix://"} {
		t.Run(url[:4], func(t *testing.T) {
			state := t.TempDir()
			if url == "unix://" {
				url += filepath.ToSlash(filepath.Join(state, "s"))
			}
			_, addr := start(t, url, Options{StateDir: state}, allDoors)
			if addr.Scheme[0] == 'w' {
				addr.Path = "/mux"
			}
			o := DialOptions{StateDir: state}
			c := dialed(t, addr, o)
			token, err := FindToken(addr, o)
			if err != nil {
				t.Fatal(err)
			}
			answer, in := hello(t, c, token)
			if !strings.HasPrefix(answer, "ok") {
				t.Fatal(answer)
			}
			sent := make(chan error, 1)
			go func() {
				_, err := c.Write(data)
				sent <- err
			}()
			got := make([]byte, len(data))
			if _, err := io.ReadFull(in, got); err != nil {
				t.Fatal(err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, data) {
				t.Error("other bytes came back")
			}
		})
	}
}

// A message over the limit is not taken, and text is none of the protocol's.
func TestMuxMessages(t *testing.T) {
	state := t.TempDir()
	_, addr := start(t, "ws://127.0.0.1:0", Options{StateDir: state}, allDoors)
	client, err := Client(addr, DialOptions{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	addr.Path = "/mux"
	for _, test := range []struct {
		kind websocket.MessageType
		size int
		code websocket.StatusCode
	}{
		{websocket.MessageBinary, maxMessage, 0},
		{websocket.MessageBinary, maxMessage + 1, websocket.StatusMessageTooBig},
		{websocket.MessageText, 10, websocket.StatusUnsupportedData},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ws, _, err := websocket.Dial(ctx, addr.String(), &websocket.DialOptions{HTTPClient: client})
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		ws.SetReadLimit(-1)
		if err := ws.Write(ctx, websocket.MessageBinary, []byte("\x00\n")); err != nil {
			t.Fatal(err)
		}
		if _, answer, err := ws.Read(ctx); err != nil || string(answer) != "ok trusted=true\n" {
			t.Fatalf("%q, %v", answer, err)
		}
		go ws.Write(ctx, test.kind, make([]byte, test.size)) // which the server may cut
		n := 0
		for err == nil && (test.code != 0 || n < test.size) {
			var part []byte
			_, part, err = ws.Read(ctx)
			n += len(part)
		}
		// The adapter cuts the connection, so the status does not always get through; the end does.
		if test.code == 0 && err != nil || test.code != 0 && err == nil || ctx.Err() != nil {
			t.Errorf("%v of %d bytes: %d came back, %v", test.kind, test.size, n, err)
		}
		ws.CloseNow()
	}
}

// A cut is the end of the stream at the other end, not some library's error.
func TestMuxCutIsEOF(t *testing.T) {
	state := t.TempDir()
	seen := make(chan error, 1)
	_, addr := start(t, "ws://127.0.0.1:0", Options{StateDir: state}, Doors{Native: func(ctx context.Context, c net.Conn, p *Peer) {
		_, err := io.Copy(io.Discard, readerOnly{c})
		seen <- err
	}})
	addr.Path = "/mux"
	c := dialed(t, addr, DialOptions{StateDir: state})
	if _, err := c.Write([]byte{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-seen; err != nil {
		t.Errorf("the server saw %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
}

type readerOnly struct{ io.Reader }

// Close wakes whoever reads or writes, on every way.
func TestCloseWakes(t *testing.T) {
	for _, url := range []string{"tcp://127.0.0.1:0", "tls://127.0.0.1:0", "ws://127.0.0.1:0", "wss://127.0.0.1:0"} {
		t.Run(url[:3], func(t *testing.T) {
			state := t.TempDir()
			_, addr := start(t, url, Options{StateDir: state}, Doors{Native: func(ctx context.Context, c net.Conn, p *Peer) {
				p.Authenticate("")
				<-ctx.Done() // reads nothing
			}})
			if addr.Scheme[0] == 'w' {
				addr.Path = "/mux"
			}
			c := dialed(t, addr, DialOptions{StateDir: state})
			ends := make(chan error, 2)
			go func() {
				_, err := io.Copy(io.Discard, readerOnly{c})
				ends <- err
			}()
			var wrote = make(chan struct{}, 1)
			go func() {
				buf := make([]byte, 1<<20)
				for {
					if _, err := c.Write(buf); err != nil {
						ends <- err
						return
					}
					select {
					case wrote <- struct{}{}:
					default:
					}
				}
			}()
			<-wrote
			c.Close()
			for range 2 {
				select {
				case <-ends:
				case <-time.After(patience):
					t.Fatal("Close did not wake everyone")
				}
			}
		})
	}
}

func TestDialRefuses(t *testing.T) {
	state := t.TempDir()
	l, addr := start(t, "ws://127.0.0.1:0", Options{StateDir: state}, allDoors)
	mux := addr
	mux.Path = "/mux"
	stranger := write(t, filepath.Join(t.TempDir(), "token"), "wrong", 0o600)
	for _, test := range []struct {
		addr Address
		o    DialOptions
		want string
	}{
		{addr, DialOptions{StateDir: state}, "is at /mux"},
		{Address{Scheme: "stdio"}, DialOptions{}, "child process"},
		{Address{Scheme: "tcp", Host: "127.0.0.1"}, DialOptions{}, "port 0"},
		{mux, DialOptions{}, "not authenticated: the server says: not authenticated: a token is needed"},
		{mux, DialOptions{TokenFile: stranger}, "the token is not the server's"},
		{mux, DialOptions{TokenFile: "/nowhere/token", StateDir: state}, "token file"},
		{Address{Scheme: "ws", Host: "localhost", Port: mux.Port, Path: "/mux"}, DialOptions{Token: "x", StateDir: state}, "not authenticated"},
	} {
		c, err := Dial(t.Context(), test.addr, test.o)
		if err == nil {
			c.Close()
		}
		wantErr(t, err, test.want)
		if err != nil && strings.Contains(err.Error(), token(t, state)) {
			t.Errorf("the error has the token in it: %v", err)
		}
	}
	_, err := Dial(t.Context(), mux, DialOptions{})
	if !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("no token: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Dial(ctx, mux, DialOptions{StateDir: state}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled dial: %v", err)
	}
	_ = l
}

// A redirect does not carry the token elsewhere.
func TestClientStaysWithItsServer(t *testing.T) {
	state := t.TempDir()
	_, addr := start(t, "ws://127.0.0.1:0", Options{StateDir: state}, Doors{HTTP: http.RedirectHandler("http://localhost/again", http.StatusFound)})
	client, err := Client(addr, DialOptions{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get("http://localhost/")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusFound {
		t.Error(response.Status)
	}
	if _, err := Client(Address{Scheme: "stdio"}, DialOptions{}); err == nil {
		t.Error("a client for stdio")
	}
}

func TestFindToken(t *testing.T) {
	state := t.TempDir()
	file := write(t, filepath.Join(t.TempDir(), "token"), "from-file", 0o600)
	l, addr := start(t, "tcp://127.0.0.1:0", Options{StateDir: state}, allDoors)
	right := token(t, state)
	find := func(addr Address, o DialOptions) string {
		t.Helper()
		token, err := FindToken(addr, o)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	local := addr
	local.Host = "localhost"
	remote := addr
	remote.Host = "box.example"
	nextPort := addr
	nextPort.Port++
	other := addr
	other.Host = "127.0.0.2"
	encrypted := addr
	encrypted.Scheme = "tls"
	for _, test := range []struct {
		name string
		addr Address
		o    DialOptions
		want string
	}{
		{"given", addr, DialOptions{Token: "given", TokenFile: file, StateDir: state}, "given"},
		{"file", addr, DialOptions{TokenFile: file, StateDir: state}, "from-file"},
		{"found", addr, DialOptions{StateDir: state}, right},
		{"found by name", local, DialOptions{StateDir: state}, right},
		{"no state directory", addr, DialOptions{}, ""},
		{"another state directory", addr, DialOptions{StateDir: t.TempDir()}, ""},
		{"remote", remote, DialOptions{StateDir: state}, ""},
		{"another port", nextPort, DialOptions{StateDir: state}, ""},
		{"another loopback address", other, DialOptions{StateDir: state}, ""},
		{"another scheme", encrypted, DialOptions{StateDir: state}, ""},
		{"unix", Address{Scheme: "unix", Path: "/x"}, DialOptions{StateDir: state}, ""},
	} {
		if got := find(test.addr, test.o); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	if _, err := FindToken(addr, DialOptions{TokenFile: filepath.Join(state, "none"), StateDir: state}); err == nil {
		t.Error("a token file that is not there was passed over")
	}

	// A server that was killed leaves its file behind; without the lock it counts for nothing.
	path := noticeFile(state, netip.MustParseAddr("127.0.0.1"), addr.Port)
	left, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file stays: %v", err)
	}
	write(t, path, string(left), 0o600)
	if got := find(addr, DialOptions{StateDir: state}); got != "" {
		t.Errorf("the token of a dead server: %q", got)
	}
	// A stranger on its port is given nothing, not even in a WebSocket's request.
	stranger, err := net.Listen("tcp", addr.hostPort())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	asked := make(chan string, 1)
	go func() {
		c, err := stranger.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 4096)
		n, _ := c.Read(buf)
		asked <- string(buf[:n])
	}()
	ws := addr
	ws.Scheme, ws.Path = "ws", "/mux"
	if c, err := Dial(t.Context(), ws, DialOptions{StateDir: state}); err == nil {
		c.Close()
		t.Error("a stranger was taken for the server")
	}
	if request := <-asked; strings.Contains(request, right) || strings.Contains(request, "Authorization") {
		t.Errorf("the stranger got %q", request)
	}
}

// A server that ends between the look at its file and the connection has its token kept from the next one.
func TestServerEndsBeforeTheConnection(t *testing.T) {
	state := t.TempDir()
	l, addr := start(t, "ws://127.0.0.1:0", Options{StateDir: state}, allDoors)
	addr.Path = "/mux"
	d, err := newDialer(addr, DialOptions{StateDir: state})
	if err != nil || d.found == nil {
		t.Fatalf("not found: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	stranger, err := net.Listen("tcp", addr.hostPort())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	heard := make(chan int, 1)
	go func() {
		c, err := stranger.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		n, _ := c.Read(make([]byte, 1))
		heard <- n
	}()
	_, err = d.mux(t.Context())
	wantErr(t, err, "has ended")
	if n := <-heard; n != 0 {
		t.Error("the stranger was told something")
	}
}

// Any number of clients may look at once, and none of them is taken for a server, nor keeps one from starting.
func TestNoticeWithManyClients(t *testing.T) {
	state := t.TempDir()
	if err := PrivateDir(state); err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort("127.0.0.1:1")
	addr := Address{Scheme: "tcp", Host: "127.0.0.1", Port: 1}
	withdraw, err := publish(state, at, notice{URL: addr.String(), Token: "s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	if found, ok := findLocal(addr, state); !ok || found.Token != "s3cret" || !found.alive() {
		t.Errorf("found %v, %v", found, ok)
	}
	content, err := os.ReadFile(noticeFile(state, at.Addr(), 1))
	if err != nil {
		t.Fatal(err)
	}
	withdraw()
	write(t, noticeFile(state, at.Addr(), 1), string(content), 0o600)
	stop := make(chan struct{})
	done := make(chan int)
	for range 4 {
		go func() {
			n := 0
			for {
				select {
				case <-stop:
					done <- n
					return
				default:
				}
				if _, ok := findLocal(addr, state); ok {
					n++
				}
			}
		}()
	}
	early := 0
	for range 200 {
		if _, ok := findLocal(addr, state); ok {
			early++
		}
	}
	if early > 0 {
		t.Errorf("a client was taken for the server %d times", early)
	}
	withdraw, err = publish(state, at, notice{URL: addr.String(), Token: "s3cret"})
	if err != nil {
		t.Errorf("clients keep a server from starting: %v", err)
	} else {
		if _, ok := findLocal(addr, state); !ok {
			t.Error("not found")
		}
		_, err := publish(state, at, notice{})
		wantErr(t, err, "locked by another server")
		withdraw()
	}
	close(stop)
	for range 4 {
		<-done
	}
}
