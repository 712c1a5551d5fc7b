package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/coder/websocket"
)

// DialOptions say how a client comes to a server.
type DialOptions struct {
	// Token is the token itself; it comes before TokenFile.
	Token string
	// TokenFile holds the token.
	TokenFile string
	// TLSPin is the server's pin, as it prints it: "sha256:" and base64 or hexadecimal digits. With a pin no CA is
	// needed; with both, both must agree.
	TLSPin string
	// TLSCA is a PEM file of authorities to trust instead of the system's.
	TLSCA string
	// ClientCert and ClientKey are PEM files of a certificate that stands for a token.
	ClientCert, ClientKey string
	// StateDir is the server's state directory, where a client on the same machine finds token and pin of a loopback
	// address by itself.
	StateDir string
}

// FindToken is the token for an address, or "" if none is known: the given one, the given file's, or, for a loopback
// address only, that of this user's own server which is alive on that port. Called after Dial it cannot give the token
// to a stranger who took the port in between.
func FindToken(addr Address, o DialOptions) (string, error) {
	if o.Token != "" {
		return o.Token, nil
	}
	if o.TokenFile != "" {
		return readToken(o.TokenFile)
	}
	if found, ok := findLocal(addr, o.StateDir); ok && o.agrees(found) {
		return found.Token, nil
	}
	return "", nil
}

// agrees reports whether a local server has the pin that the user asked for.
func (o DialOptions) agrees(found local) bool {
	if o.TLSPin == "" {
		return true
	}
	pin, err := normalPin(o.TLSPin)
	return err == nil && pin == found.Pin
}

// Dial connects to an address where the native protocol is spoken: tcp, tls, unix, and ws and wss with the path /mux.
// Its bytes are the protocol's own. NetConn methods of the result lead down to the *net.TCPConn or *net.UnixConn.
func Dial(ctx context.Context, addr Address, o DialOptions) (net.Conn, error) {
	c, err := dial(ctx, addr, o)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return c, nil
}

func dial(ctx context.Context, addr Address, o DialOptions) (net.Conn, error) {
	d, err := newDialer(addr, o)
	if err != nil {
		return nil, err
	}
	switch {
	case addr.Scheme == "stdio":
		return nil, errors.New("stdio is spoken with a child process, see Stdio")
	case !addr.Mux():
		return nil, fmt.Errorf("the native protocol is at %s of a %s address; elsewhere JSON-RPC is spoken", muxPath, addr.Scheme)
	case addr.Scheme == "ws" || addr.Scheme == "wss":
		return d.mux(ctx)
	}
	return d.conn(ctx)
}

// Client is an HTTP client whose requests all go to the server at an address, whatever host their URL names, with
// the token in them. addr may be tcp, tls, ws, wss or unix. For a WebSocket give it to the library with addr's own
// String as URL, or "ws://localhost/" for a unix socket.
func Client(addr Address, o DialOptions) (*http.Client, error) {
	d, err := newDialer(addr, o)
	if err == nil && addr.Scheme == "stdio" {
		err = errors.New("there is no HTTP on stdio")
	}
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return d.client(nil), nil
}

// dialer is a way to one server.
type dialer struct {
	addr  Address
	o     DialOptions
	tls   *tls.Config
	found *local // this user's own server, if the address is its
}

func newDialer(addr Address, o DialOptions) (*dialer, error) {
	d := &dialer{addr: addr, o: o}
	if addr.Port == 0 && addr.Host != "" {
		return nil, errors.New("port 0 is for listening only")
	}
	if !addr.TLS() {
		if o.TLSPin != "" || o.TLSCA != "" || o.ClientCert != "" || o.ClientKey != "" {
			return nil, errors.New("a TLS pin, CA or client certificate is given, but the address is not encrypted; use tls:// or wss://")
		}
	}
	pin := o.TLSPin
	if found, ok := findLocal(addr, o.StateDir); ok && o.agrees(found) {
		d.found = &found
		if o.TLSCA == "" {
			pin = found.Pin
		}
	}
	if addr.TLS() {
		var err error
		if d.tls, err = clientTLS(addr, o, pin); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// conn connects, with TLS if the address says so.
func (d *dialer) conn(ctx context.Context) (net.Conn, error) {
	network, at := "tcp", d.addr.hostPort()
	if d.addr.Scheme == "unix" {
		network, at = "unix", socketPath(d.addr.Path)
	} else if d.found != nil {
		at = net.JoinHostPort(d.found.ip.String(), strconv.Itoa(int(d.addr.Port)))
	}
	c, err := new(net.Dialer).DialContext(ctx, network, at)
	if err != nil || d.tls == nil {
		return c, err
	}
	secure := tls.Client(c, d.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, explainTLS(err)
	}
	return secure, nil
}

// given reports whether the user said which token to use.
func (d *dialer) given() bool { return d.o.Token != "" || d.o.TokenFile != "" }

// token is the token to put into requests.
func (d *dialer) token() (string, error) {
	if !d.given() && d.found != nil {
		return d.found.Token, nil
	}
	return FindToken(d.addr, DialOptions{Token: d.o.Token, TokenFile: d.o.TokenFile})
}

// client is an HTTP client on this way. connected, if set, is told of each connection.
func (d *dialer) client(connected func(net.Conn)) *http.Client {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := d.conn(ctx)
		if err != nil {
			return nil, err
		}
		// A server that is alive after we have connected has the port that we are connected to. If it is not, its
		// token is not for whoever has.
		if !d.given() && d.found != nil && !d.found.alive() {
			c.Close()
			return nil, errors.New("the server that was there has ended")
		}
		if connected != nil {
			connected(c)
		}
		return c, nil
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Client{
		Transport: &bearerTransport{d, &http.Transport{
			DialContext:       connect,
			DialTLSContext:    connect,
			DisableKeepAlives: true,
			Protocols:         &http1,
		}},
		// The token is for this server, not for one that it names.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bearerTransport puts the token into requests.
type bearerTransport struct {
	d    *dialer
	base *http.Transport
}

// RoundTrip adds the token to a copy of the request.
func (t *bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.d.token()
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	if token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return t.base.RoundTrip(r)
}

// mux connects, upgrades and gives the stream inside.
func (d *dialer) mux(ctx context.Context) (net.Conn, error) {
	var below net.Conn
	ws, response, err := websocket.Dial(ctx, d.addr.String(), &websocket.DialOptions{
		HTTPClient:      d.client(func(c net.Conn) { below = c }),
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, explainUpgrade(err, response)
	}
	return newMuxConn(ws, below), nil
}

// explainUpgrade says what the server said.
func explainUpgrade(err error, response *http.Response) error {
	if response == nil {
		return err
	}
	text := ""
	if response.Body != nil {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		text = strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, strings.ToValidUTF8(string(body), "?")))
	}
	if response.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%w: the server says: %s", ErrUnauthenticated, text)
	}
	return fmt.Errorf("the server answers %s: %s", response.Status, text)
}
