package listen

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestNative(t *testing.T) {
	state := t.TempDir()
	_, addr := start(t, "tcp://127.0.0.1:0", Options{StateDir: state}, allDoors)
	right := token(t, state)
	for _, test := range []struct{ token, want string }{
		{right, "ok trusted=false"},
		{"", "refused: not authenticated: a token is needed"},
		{"wrong", "refused: not authenticated: the token is not the server's"},
		{right + "x", "refused: not authenticated"},
	} {
		answer, in := hello(t, dialed(t, addr, DialOptions{}), test.token)
		if !strings.HasPrefix(answer, test.want) {
			t.Errorf("token %q: %q, want %q", test.token, answer, test.want)
		}
		if strings.HasPrefix(test.want, "refused") {
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("after a refusal: %v", err)
			}
		}
	}
}

// NetConn leads down to the TCP connection at both ends, whatever is between.
func TestNetConnLeadsDown(t *testing.T) {
	down := func(c net.Conn) net.Conn {
		for {
			u, ok := c.(interface{ NetConn() net.Conn })
			if !ok {
				return c
			}
			c = u.NetConn()
		}
	}
	for _, url := range []string{"tcp://127.0.0.1:0", "tls://127.0.0.1:0", "ws://127.0.0.1:0", "wss://127.0.0.1:0"} {
		state := t.TempDir()
		got := make(chan net.Conn, 1)
		_, addr := start(t, url, Options{StateDir: state}, Doors{Native: func(ctx context.Context, c net.Conn, p *Peer) {
			got <- down(c)
			echoDoor(ctx, c, p)
		}})
		if addr.Scheme[0] == 'w' {
			addr.Path = muxPath
		}
		c := dialed(t, addr, DialOptions{StateDir: state})
		if answer, _ := hello(t, c, token(t, state)); !strings.HasPrefix(answer, "ok") {
			t.Error(answer)
		}
		client, ok1 := down(c).(*net.TCPConn)
		server, ok2 := (<-got).(*net.TCPConn)
		if !ok1 || !ok2 || client.LocalAddr().String() != server.RemoteAddr().String() {
			t.Errorf("%s leads to %v and %v", url, client, server)
		}
		if c.RemoteAddr().String() != client.RemoteAddr().String() {
			t.Errorf("%s: remote address %v", url, c.RemoteAddr())
		}
	}
}

func TestRefusedAddresses(t *testing.T) {
	state := t.TempDir()
	pem := filepath.Join(state, "certificate.pem")
	busy, _ := start(t, "tcp://127.0.0.1:0", Options{}, allDoors)
	tests := []struct {
		addr string
		o    Options
		want string
	}{
		{"tcp://0.0.0.0:0", Options{}, "use tls://"},
		{"tcp://[::]:0", Options{}, "use tls://"},
		{"ws://0.0.0.0:0", Options{}, "use wss://"},
		{"tcp://192.0.2.1:0", Options{}, "use tls://"},
		{"tcp://0.0.0.0:0", Options{NoAuth: true}, "only a loopback address"},
		{"tls://0.0.0.0:0", Options{NoAuth: true}, "only a loopback address"},
		{"tcp://127.0.0.1:0", Options{NoAuth: true, TokenFile: "x"}, "not both"},
		{"tcp://127.0.0.1:0", Options{ClientCA: pem}, "client certificates need tls"},
		{"tls://127.0.0.1:0", Options{TLSCert: pem}, "given together"},
		{"tls://127.0.0.1:0", Options{TLSCert: pem, TLSKey: "/nowhere"}, "no such file"},
		{"tls://127.0.0.1:0", Options{ClientCA: os.DevNull}, "no PEM certificate"},
		{"ws://127.0.0.1:0/x", Options{}, "no path"},
		{"stdio", Options{}, "ServeStdio"},
		{"unix://", Options{}, "path is missing"},
		{busy.URL(), Options{}, "address already in use"},
		{"tcp://127.0.0.1:0", Options{StateDir: os.DevNull}, "state directory"},
	}
	if runtime.GOOS == "windows" {
		t.Skip("the errors of the system have other words on Windows")
	}
	for _, test := range tests {
		addr, err := ParseAddress(test.addr)
		if err != nil {
			t.Fatal(err)
		}
		if test.o.StateDir == "" {
			test.o.StateDir = state
		}
		l, err := Listen(t.Context(), addr, test.o)
		if err == nil {
			l.Close()
		}
		wantErr(t, err, test.want)
	}
	for _, o := range []Options{{}, {NoAuth: false, TokenFile: filepath.Join(state, "no", "dir")}} {
		l, err := Listen(t.Context(), Address{Scheme: "tcp", Host: "127.0.0.1"}, o)
		if err == nil {
			l.Close()
		}
		wantErr(t, err, "token")
	}
	if _, err := Listen(t.Context(), Address{}, Options{}); err == nil {
		t.Error("the zero address was bound")
	}
}

// What does not fit the listener is told so in its own language.
func TestWrongDoors(t *testing.T) {
	open, _ := start(t, "tcp://127.0.0.1:0", Options{}, allDoors)
	closed, _ := start(t, "tcp://127.0.0.1:0", Options{}, Doors{})
	secure, _ := start(t, "tls://127.0.0.1:0", Options{}, allDoors)
	tests := []struct {
		name string
		l    *Listener
		send string
		want string
	}{
		{"TLS at a plain port", open, "\x16\x03\x01", refuseTLS},
		{"lines", open, `{"id":1}` + "\n", refuseLines},
		{"unknown", open, "\x7fELF", ""},
		{"native, no door", closed, "\x00", ""},
		{"plain HTTP at a TLS port", secure, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", refuseHTTP},
		{"plain native at a TLS port", secure, "\x00token\n", ""},
		{"not quite TLS", secure, "\x16\x03\x01\x00\x05hello", "\x15\x03\x01\x00\x02\x02"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := plain(t, test.l)
			if _, err := io.WriteString(c, test.send); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(c)
			// A close with input unread is a reset, and where nothing is said that does no harm.
			if err != nil && (test.want != "" || errors.Is(err, os.ErrDeadlineExceeded)) {
				t.Error(err)
			}
			if test.want == "" && len(got) > 0 || !strings.HasPrefix(string(got), test.want) {
				t.Errorf("answer %q, want %q", got, test.want)
			}
		})
	}
}

func TestNoAuth(t *testing.T) {
	l, addr := start(t, "tcp://127.0.0.1:0", Options{NoAuth: true}, allDoors)
	if answer, _ := hello(t, dialed(t, addr, DialOptions{}), ""); answer != "ok trusted=true" {
		t.Error(answer)
	}
	// The checks that keep browsers' pages out stay.
	for request, want := range map[string]int{
		"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n":                             200,
		"GET /x HTTP/1.1\r\nHost: evil.test\r\n\r\n":                             403,
		"GET /x HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n": 403,
	} {
		if response, body := exchange(t, l, request); response.StatusCode != want {
			t.Errorf("%q: %d %q", request, response.StatusCode, body)
		}
	}
}

// ownAuth lets one token in, and says of others what a token checker might.
type ownAuth struct{}

func (ownAuth) Check(token string) error {
	if token != "signed" {
		return errors.New("the signature is wrong")
	}
	return nil
}

func TestOwnAuth(t *testing.T) {
	state := t.TempDir()
	l, addr := start(t, "tcp://127.0.0.1:0", Options{StateDir: state, Auth: ownAuth{}}, allDoors)
	if answer, _ := hello(t, dialed(t, addr, DialOptions{}), "signed"); answer != "ok trusted=false" {
		t.Error(answer)
	}
	if answer, _ := hello(t, dialed(t, addr, DialOptions{}), "x"); answer != "refused: not authenticated: the signature is wrong" {
		t.Error(answer)
	}
	response, _ := exchange(t, l, "GET /x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer signed\r\n\r\n")
	if response.StatusCode != 200 {
		t.Error(response.Status)
	}
	if err := l.Auth().Check("signed"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(state, "token")); err == nil {
		t.Error("a token was made")
	}
}

// A closed listener can be bound again at once, and an unserved one closes.
func TestCloseAndBindAgain(t *testing.T) {
	state := t.TempDir()
	addr, err := ParseAddress("tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l, err := Listen(t.Context(), addr, Options{StateDir: state})
		if err != nil {
			t.Fatal(err)
		}
		if addr, err = ParseAddress(l.URL()); err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- l.Serve(t.Context(), allDoors) }()
		answer, _ := hello(t, dialed(t, addr, DialOptions{}), token(t, state))
		if answer != "ok trusted=false" {
			t.Error(answer)
		}
		if err := errors.Join(l.Close(), <-served, l.Close()); err != nil {
			t.Error(err)
		}
	}
	l, err := Listen(t.Context(), addr, Options{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Serve(t.Context(), allDoors); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(filepath.Join(state, "listeners")); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// An HTTP handler that runs when the end comes is waited for, and its context ends.
func TestEndWaitsForHandlers(t *testing.T) {
	state := t.TempDir()
	began, returned := make(chan struct{}), make(chan struct{})
	l, addr := start(t, "ws://127.0.0.1:0", Options{StateDir: state}, Doors{HTTP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
		close(returned)
	})})
	client, err := Client(addr, DialOptions{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		response, err := client.Get("http://localhost/")
		if err == nil {
			response.Body.Close()
		}
		answered <- err
	}()
	<-began
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-returned:
	default:
		t.Error("Close did not wait for the handler")
	}
	if err := <-answered; err != nil {
		t.Errorf("the answer that was under way: %v", err)
	}
}
