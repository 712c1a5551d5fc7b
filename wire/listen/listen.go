package listen

import (
	"container/list"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Options say how a server listens. The zero value will not do: a TCP listener wants a state directory or a token.
type Options struct {
	// TokenFile holds the token; it is made, with a random token, if it is not there. "" means the file token in the
	// state directory.
	TokenFile string
	// Auth, if set, decides instead of a token file.
	Auth Auth
	// NoAuth lets everybody in. It is refused off loopback.
	NoAuth bool
	// TLSCert and TLSKey are PEM files. Without them a tls or wss listener makes its own certificate in the state
	// directory.
	TLSCert, TLSKey string
	// ClientCA is a PEM file of authorities whose client certificates stand for a token. Without a token file nothing
	// else does.
	ClientCA string
	// AllowOrigins are the values of the Origin header that are let in, compared as they are. Every other is refused.
	AllowOrigins []string
	// Hosts are further names, besides localhost, IP addresses, this machine's name and those of the certificate, by
	// which clients may call the server in the Host header.
	Hosts []string
	// StateDir is where the server keeps what it makes; see the package comment. It is made if it is not there.
	StateDir string
	// Log takes warnings and refused connections; nil drops them.
	Log *slog.Logger
}

// Doors are what a listener leads to. A door gets a context that ends when the listener is to end, and the connection is
// closed when the door returns.
type Doors struct {
	// Native speaks the native protocol on connections that start with a zero byte, and on /mux. It must call
	// Peer.Authenticate before it does anything for the client. nil refuses.
	Native func(ctx context.Context, c net.Conn, p *Peer)
	// HTTP serves every authenticated request but those to /healthz, /readyz and /mux. Origin and Host have been
	// checked, so a WebSocket upgrade there must not check them in another way. PeerOf tells whose request it is.
	// nil means 404.
	HTTP http.Handler
	// Lines speaks JSON-RPC lines on connections that start with a brace. They have no place for a token, so only a
	// trusted peer comes to it. nil refuses.
	Lines func(ctx context.Context, c net.Conn, p *Peer)
}

// Listener accepts connections at one address.
type Listener struct {
	addr   Address
	noAuth bool
	ln     net.Listener
	tls    *tls.Config
	pin    string
	auth   Auth
	guard  guard
	log    *slog.Logger
	limits limits
	closed chan struct{}
	once   sync.Once
	remove func() // takes away what others find the listener by

	mu      sync.Mutex
	serving bool
	served  chan struct{} // closed when Serve has returned
	conns   map[*gate]struct{}
	waiting *list.List // of *gate, not yet authenticated, oldest first
	places  map[*gate]*list.Element
}

// Listen binds an address. It makes the token and the certificate that are missing. It refuses what would let in
// strangers: plain connections off loopback, and NoAuth there.
func Listen(ctx context.Context, addr Address, o Options) (*Listener, error) {
	l, err := bind(ctx, addr, o)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

func bind(ctx context.Context, addr Address, o Options) (*Listener, error) {
	l := newListener(addr, o.Log)
	l.noAuth = o.NoAuth
	switch addr.Scheme {
	case "tcp", "tls", "ws", "wss":
	case "unix":
		if addr.Path == "" {
			return nil, errors.New("the socket's path is missing")
		}
	case "stdio":
		return nil, errors.New("stdio has nothing to bind; it is served by ServeStdio")
	default:
		return nil, errors.New("not a parsed address")
	}
	if addr.Path != "" && addr.Path != "/" && addr.Scheme != "unix" {
		return nil, errors.New("a listener has no path: every door is at the one address")
	}
	if o.NoAuth && (o.TokenFile != "" || o.Auth != nil) {
		return nil, errors.New("either a token or no authentication, not both")
	}
	if o.ClientCA != "" && !addr.TLS() {
		return nil, errors.New("client certificates need tls or wss")
	}
	if !addr.TLS() && addr.Scheme != "unix" || o.NoAuth {
		if err := checkLoopback(ctx, addr, o.NoAuth); err != nil {
			return nil, err
		}
	}
	if o.StateDir != "" {
		if err := PrivateDir(o.StateDir); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	token, err := l.setAuth(o)
	if err != nil {
		return nil, err
	}
	var leaf *x509.Certificate
	if addr.TLS() {
		l.tls, leaf, err = serverTLS(o)
		if err != nil {
			return nil, err
		}
		l.pin = pinOf(leaf)
	}
	l.guard, err = newGuard(addr, o, leaf)
	if err != nil {
		return nil, err
	}
	if addr.Scheme == "unix" {
		err = l.bindUnix(ctx)
	} else {
		err = l.bindTCP(ctx, o.StateDir, token)
	}
	if err != nil {
		return nil, err
	}
	if o.NoAuth {
		l.log.Warn("no authentication: every process on this machine can use the server", "url", l.URL())
	}
	return l, nil
}

func newListener(addr Address, log *slog.Logger) *Listener {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Listener{
		addr:    addr,
		auth:    noToken{},
		log:     log,
		limits:  defaultLimits,
		closed:  make(chan struct{}),
		remove:  func() {},
		served:  make(chan struct{}),
		conns:   map[*gate]struct{}{},
		waiting: list.New(),
		places:  map[*gate]*list.Element{},
	}
}

// checkLoopback says why an address that is to be on loopback is not.
func checkLoopback(ctx context.Context, addr Address, noAuth bool) error {
	if addr.Loopback() {
		return nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", addr.Host)
	if err != nil {
		return err
	}
	for _, ip := range ips {
		if !ip.Unmap().IsLoopback() {
			return offLoopback(addr, noAuth)
		}
	}
	return nil
}

func offLoopback(addr Address, noAuth bool) error {
	if noAuth {
		return errors.New("without authentication only a loopback address or a unix socket is possible")
	}
	secure := map[string]string{"tcp": "tls", "ws": "wss"}[addr.Scheme]
	return fmt.Errorf("it is not a loopback address, so the connection must be encrypted: use %s://", secure)
}

// setAuth finds or makes the token. It returns it, or "" where there is none.
func (l *Listener) setAuth(o Options) (string, error) {
	switch {
	case o.NoAuth:
		return "", nil
	case o.Auth != nil:
		l.auth = o.Auth
		return "", nil
	case o.TokenFile == "" && l.addr.Scheme == "unix" && peerCredentials:
		return "", nil // the kernel tells who comes
	case o.TokenFile == "" && o.ClientCA != "":
		l.auth = certificateOnly{}
		return "", nil
	}
	path := o.TokenFile
	if path == "" {
		if o.StateDir == "" {
			return "", errors.New("token: no file is given, and there is no state directory to make one in")
		}
		path = filepath.Join(o.StateDir, "token")
	}
	token, err := ensureToken(path)
	if err != nil {
		return "", err
	}
	l.auth = newTokenAuth(token)
	return token, nil
}

// bindTCP binds, and tells local clients of this user where.
func (l *Listener) bindTCP(ctx context.Context, stateDir, token string) error {
	network := "tcp"
	if ip, err := netip.ParseAddr(l.addr.Host); err == nil && ip.Is4() {
		network = "tcp4" // 0.0.0.0 alone would mean IPv6 too
	}
	ln, err := new(net.ListenConfig).Listen(ctx, network, l.addr.hostPort())
	if err != nil {
		return err
	}
	at := ln.Addr().(*net.TCPAddr).AddrPort()
	// What a name stood for a moment ago is not what counts.
	if (!l.addr.TLS() || l.noAuth) && !at.Addr().Unmap().IsLoopback() {
		return errors.Join(offLoopback(l.addr, l.noAuth), ln.Close())
	}
	l.ln = ln
	l.addr.Port = at.Port()
	if stateDir == "" || token == "" {
		return nil
	}
	n := notice{URL: l.addr.String(), Token: token, Pin: l.pin}
	withdraw, err := publish(stateDir, at, n)
	if err != nil {
		return errors.Join(fmt.Errorf("telling local clients of the port: %w", err), ln.Close())
	}
	l.remove = withdraw
	return nil
}

// bindUnix binds a socket of mode 0600. A socket that nobody listens on any more is taken away first.
func (l *Listener) bindUnix(ctx context.Context) error {
	path := socketPath(l.addr.Path)
	if len(path) > maxSocketPath {
		return fmt.Errorf("the socket's path is %d bytes long, and %d is the most that the system takes", len(path), maxSocketPath)
	}
	defer lockDir(ctx, filepath.Dir(path))()
	if info, err := os.Lstat(path); err == nil {
		if err := removeDead(ctx, path, info); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	// Between the two calls the socket has the mode that umask left; who connects then is asked for a token like
	// every stranger.
	u := ln.(*net.UnixListener)
	u.SetUnlinkOnClose(false)
	err = os.Chmod(path, 0o600)
	var made fs.FileInfo
	if err == nil {
		made, err = os.Lstat(path)
	}
	if err != nil {
		return errors.Join(err, ln.Close(), os.Remove(path))
	}
	l.ln = ln
	l.remove = func() {
		// Only our own: another server may have the name by now.
		if now, err := os.Lstat(path); err == nil && os.SameFile(now, made) {
			os.Remove(path)
		}
	}
	return nil
}

// removeDead removes a socket of this user that nobody listens on, and says why anything else stays.
func removeDead(ctx context.Context, path string, info fs.FileInfo) error {
	if !isSocket(info) {
		return fmt.Errorf("%s is there and is not a socket", path)
	}
	if err := checkOwner(info); err != nil {
		return fmt.Errorf("%s %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("a server is listening on %s already", path)
	case connRefused(err):
		return os.Remove(path)
	default:
		return fmt.Errorf("%s is there, and whether a server listens on it is not to be found out: %w", path, err)
	}
}

// URL is the address in use: the port is the real one.
func (l *Listener) URL() string { return l.addr.String() }

// Pin is what a client gives as its TLS pin, "sha256:" and the base64 of the hash of the certificate's public key; ""
// without TLS.
func (l *Listener) Pin() string { return l.pin }

// Auth decides on tokens as the listener does, for doors that get a token in another way.
func (l *Listener) Auth() Auth { return l.auth }

// stop ends accepting. What clients find the listener by goes first, so that nobody takes the next one's.
func (l *Listener) stop() {
	l.once.Do(func() {
		l.remove()
		close(l.closed)
		if err := l.ln.Close(); err != nil {
			l.log.Debug("closing a listener", "url", l.URL(), "error", err)
		}
	})
}

// Close ends the listener, as the end of Serve's context does, and waits for Serve. A door must not call it.
func (l *Listener) Close() error {
	l.stop()
	l.mu.Lock()
	serving := l.serving
	l.mu.Unlock()
	if serving {
		<-l.served
	}
	return nil
}

// Serve accepts connections and leads each to its door, until ctx ends or Close is called. Doors then have two seconds
// to say good-bye before their connections are cut. It returns when every door has, with nil; a door that does not
// return for long is an error. It may be called once.
func (l *Listener) Serve(ctx context.Context, d Doors) error {
	l.mu.Lock()
	if l.serving {
		l.mu.Unlock()
		return errors.New("listen: Serve is called twice")
	}
	l.serving = true
	l.mu.Unlock()
	defer close(l.served)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, l.stop)()
	web := l.newWeb(ctx, d)
	var running sync.WaitGroup
	l.accept(func(c net.Conn) {
		g := l.enter(c)
		running.Go(func() {
			defer l.forget(g)
			l.lead(ctx, g, d, web)
			g.Close()
			<-g.idle
		})
	})
	cancel()
	l.stop()

	// Who has not authenticated has nothing to say good-bye for.
	for g := range l.all() {
		g.drop(net.ErrClosed)
	}
	ended := make(chan struct{})
	go func() {
		web.shutdown(l.limits.grace)
		running.Wait()
		close(ended)
	}()
	if wait(ended, l.limits.grace) {
		return nil
	}
	for g := range l.all() {
		g.Close()
	}
	if wait(ended, l.limits.stuck) {
		return nil
	}
	return fmt.Errorf("listen on %s: %d connections were cut and their doors have not returned", l.addr, len(l.all()))
}

// wait reports whether a channel was closed in time.
func wait(ended <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// accept hands out connections until the listener is closed. While the system has none to give (no descriptors, no
// memory), it tries again ever more slowly.
func (l *Listener) accept(start func(net.Conn)) {
	const first, last = 5 * time.Millisecond, time.Second
	pause := first
	for {
		c, err := l.ln.Accept()
		if err == nil {
			pause = first
			tune(c)
			start(c)
			continue
		}
		select {
		case <-l.closed:
			return
		default:
		}
		if pause == first {
			l.log.Error("cannot accept a connection; trying again", "url", l.URL(), "error", err)
		}
		if wait(l.closed, pause) {
			return
		}
		pause = min(2*pause, last)
	}
}

// enter counts a new connection among those that wait. If they are too many, the oldest goes.
func (l *Listener) enter(c net.Conn) *gate {
	g := newGate(c, l.limits, l.leave)
	l.mu.Lock()
	l.conns[g] = struct{}{}
	l.places[g] = l.waiting.PushBack(g)
	var oldest *gate
	if l.waiting.Len() > l.limits.unauthenticated {
		oldest = l.waiting.Front().Value.(*gate)
	}
	l.mu.Unlock()
	if oldest != nil {
		oldest.drop(errCrowded)
	}
	return g
}

// leave takes a connection out of those that wait.
func (l *Listener) leave(g *gate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.places[g]; e != nil {
		l.waiting.Remove(e)
		delete(l.places, g)
	}
}

func (l *Listener) forget(g *gate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, g)
}

// all is every connection there is.
func (l *Listener) all() map[*gate]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[*gate]struct{}, len(l.conns))
	for g := range l.conns {
		all[g] = struct{}{}
	}
	return all
}

// What the first byte of a connection can be.
const (
	byteNative = 0x00
	byteTLS    = 0x16
	byteLines  = '{'
)

func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }

// What is said to those at the wrong door, in their own language as far as that goes.
const (
	// A TLS alert: fatal, protocol version.
	refuseTLS   = "\x15\x03\x01\x00\x02\x02\x46"
	refuseHTTP  = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\nThis port speaks TLS only.\n"
	refuseLines = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"JSON-RPC lines are not spoken here; use a WebSocket or stdio"}}` + "\n"
)

// lead looks at a connection's first bytes and stays until its door has returned or, for HTTP, until it is closed.
func (l *Listener) lead(ctx context.Context, g *gate, d Doors, web *web) {
	peer := &Peer{Remote: remote(g), Trusted: l.noAuth || sameUser(g.Conn), auth: l.auth, gate: g, log: l.log}
	refuse := func(why string, answer string) {
		l.log.Debug("refused a connection", "url", l.URL(), "remote", peer.Remote, "reason", why)
		if answer != "" {
			farewell(g, answer)
		}
	}
	c, err := peek(g, peer)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			refuse(err.Error(), "")
		}
		return
	}
	if c.first == byteNote && peer.Trusted && l.addr.Scheme == "unix" {
		if peer.Note, err = readNote(g); err == nil {
			c, err = peek(g, peer)
		}
		if err != nil {
			refuse(err.Error(), "")
			return
		}
	}
	switch {
	case l.tls == nil && c.first == byteTLS:
		refuse("TLS on a plain listener", refuseTLS)
		return
	case l.tls != nil && c.first != byteTLS:
		answer := ""
		if isLetter(c.first) {
			answer = refuseHTTP
		}
		refuse("a plain connection on a TLS listener", answer)
		return
	case l.tls != nil:
		secure := tls.Server(c, l.tls)
		// The alert of a close is not worth waiting for; the gate closes below.
		if err := secure.HandshakeContext(ctx); err != nil {
			err = g.why(err)
			refuse("TLS: "+err.Error(), "")
			var alert *net.OpError // from the client: it has judged us
			if errors.As(err, &alert) && alert.Op == "remote error" && strings.Contains(err.Error(), "certificate") {
				l.log.Warn("the client did not accept the certificate or its pin", "url", l.URL(), "remote", peer.Remote, "error", err)
			}
			return
		}
		switch err := judgeClient(l.tls.ClientCAs, secure.ConnectionState().PeerCertificates); err {
		case nil:
			peer.Trusted = true
		case errNoCertificate:
		default:
			peer.auth = refusal{err}
		}
		if c, err = peek(secure, peer); err != nil {
			refuse(err.Error(), "")
			return
		}
	}
	switch {
	case c.first == byteNative && d.Native != nil:
		d.Native(ctx, c, peer)
		c.Close()
	case c.first == byteLines && d.Lines != nil && peer.Trusted && l.addr.Scheme == "unix":
		if peer.Authenticate("") == nil {
			d.Lines(ctx, c, peer)
			c.Close()
		}
	case c.first == byteLines:
		farewell(c, refuseLines)
		c.Close()
	case isLetter(c.first):
		web.serve(c)
		<-g.closed
	default:
		refuse(fmt.Sprintf("no protocol starts with byte %#02x", c.first), "")
	}
}

// remote is a connection's other end, for people.
func remote(c net.Conn) string {
	if a := c.RemoteAddr(); a != nil && a.String() != "" && a.String() != "@" {
		return a.String()
	}
	return "local"
}
