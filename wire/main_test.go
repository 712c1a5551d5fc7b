package wire

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"waldo/wire/wiretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A transport makes the two ends of a connection.
type transportKind struct {
	name string
	pair func(tb testing.TB) (dialed, accepted net.Conn)
}

var transports = []transportKind{
	{"pipe", func(testing.TB) (net.Conn, net.Conn) { return wiretest.Pipe() }},
	{"tcp", tcpPair},
	{"tls", tlsPair},
	{"unix", unixPair},
	{"websocket", websocketPair},
	{"stdio", stdioPair},
}

func listenerPair(tb testing.TB, network, address string) (dialed, accepted net.Conn) {
	tb.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	if dialed, err = net.Dial(network, l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		tb.Fatal(err)
	}
	return dialed, accepted
}

func tcpPair(tb testing.TB) (net.Conn, net.Conn) { return listenerPair(tb, "tcp", "127.0.0.1:0") }

func unixPair(tb testing.TB) (net.Conn, net.Conn) {
	// Not tb.TempDir: with the test's name in it the path may be longer than a socket's may be.
	dir, err := os.MkdirTemp("", "wire")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return listenerPair(tb, "unix", filepath.Join(dir, "s"))
}

// certificate is made once: every test of a run may use it.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

func tlsPair(tb testing.TB) (net.Conn, net.Conn) {
	dialed, accepted := tcpPair(tb)
	return tls.Client(dialed, &tls.Config{InsecureSkipVerify: true}),
		tls.Server(accepted, &tls.Config{Certificates: []tls.Certificate{certificate()}})
}

// webConn is a stream on a WebSocket whose Close does not wait for the peer.
type webConn struct {
	net.Conn
	ws     *websocket.Conn
	cancel context.CancelFunc
}

func newWebConn(ws *websocket.Conn) *webConn {
	ctx, cancel := context.WithCancel(context.Background())
	return &webConn{websocket.NetConn(ctx, ws, websocket.MessageBinary), ws, cancel}
}

func (c *webConn) Close() error {
	c.cancel()
	return c.ws.CloseNow()
}

func websocketPair(tb testing.TB) (net.Conn, net.Conn) {
	tb.Helper()
	accepted := make(chan *websocket.Conn, 1)
	hold := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		accepted <- ws
		<-hold
	}))
	tb.Cleanup(func() { close(hold); s.Close() })
	ws, _, err := websocket.Dial(tb.Context(), strings.Replace(s.URL, "http", "ws", 1), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return newWebConn(ws), newWebConn(<-accepted)
}

// pipesConn is a connection made of two pipes, as a child's standard input and output are.
type pipesConn struct {
	*os.File // read from
	out      *os.File
}

func (c pipesConn) Write(b []byte) (int, error) { return c.out.Write(b) }
func (c pipesConn) LocalAddr() net.Addr         { return nil }
func (c pipesConn) RemoteAddr() net.Addr        { return nil }

func (c pipesConn) Close() error {
	c.out.Close()
	return c.File.Close()
}

func stdioPair(tb testing.TB) (net.Conn, net.Conn) {
	tb.Helper()
	if runtime.GOOS == "windows" {
		tb.Skip("closing a pipe does not end a read of it on Windows")
	}
	ar, aw, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	br, bw, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	return pipesConn{ar, bw}, pipesConn{br, aw}
}

// eachTransport runs a test on every transport, with the client on either end.
func eachTransport(t *testing.T, test func(t *testing.T, client, server net.Conn)) {
	for _, transport := range transports {
		t.Run(transport.name+"/client dials", func(t *testing.T) {
			dialed, accepted := transport.pair(t)
			test(t, dialed, accepted)
		})
		t.Run(transport.name+"/server dials", func(t *testing.T) {
			dialed, accepted := transport.pair(t)
			test(t, accepted, dialed)
		})
	}
}

func acceptAll(context.Context, Hello) (Welcome, error) { return Welcome{Instance: "test"}, nil }

// serve makes the two ends of a connection without a HELLO.
func serve(tb testing.TB, clientEnd, serverEnd net.Conn, accept func(context.Context, Hello) (Welcome, error), handler Handler) (client, server *Conn) {
	tb.Helper()
	server, err := Server(serverEnd, accept, handler)
	if err != nil {
		tb.Fatal(err)
	}
	client, err = Client(clientEnd)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for _, c := range []*Conn{client, server} {
			if err := c.Close(); err != nil {
				tb.Error(err)
			}
		}
	})
	return client, server
}

// join makes the two ends of a connection, and says HELLO.
func join(tb testing.TB, clientEnd, serverEnd net.Conn, handler Handler) (client, server *Conn) {
	tb.Helper()
	client, server = serve(tb, clientEnd, serverEnd, acceptAll, handler)
	if err := hello(tb.Context(), client); err != nil {
		tb.Fatal(err)
	}
	return client, server
}

func hello(ctx context.Context, client *Conn) error {
	answer, err := client.Hello(Hello{Client: "test"})
	if err != nil {
		return err
	}
	_, err = answer(ctx)
	return err
}

// pipe is join over a pipe in memory.
func pipe(tb testing.TB, handler Handler) (client, server *Conn) {
	tb.Helper()
	clientEnd, serverEnd := wiretest.Pipe()
	return join(tb, clientEnd, serverEnd, handler)
}
