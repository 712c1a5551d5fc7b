package listen

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// muxPath is where the native protocol is spoken inside a WebSocket.
const muxPath = "/mux"

const (
	maxHeader   = 64 << 10
	idleTimeout = 2 * time.Minute
)

// guard decides by its headers whether a request may come from a browser's page at all. A page of another site can make
// a browser send requests here, with any path and, by a name that it has pointed at this machine, any Host; but it
// cannot leave out or forge Origin and Host.
type guard struct {
	origins []string
	hosts   []string // in lower case
}

func newGuard(addr Address, o Options, leaf *x509.Certificate) (guard, error) {
	g := guard{hosts: []string{"localhost"}}
	for _, origin := range o.AllowOrigins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme == "" || u.Scheme+"://"+u.Host != origin || strings.ToLower(origin) != origin || strings.Contains(origin, "*") {
			return guard{}, fmt.Errorf("allowed origin %q is not of the form https://name or https://name:port, in lower case", origin)
		}
		g.origins = append(g.origins, origin)
	}
	add := func(name string) {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		if name != "" && !strings.Contains(name, "*") {
			g.hosts = append(g.hosts, name)
		}
	}
	add(addr.Host)
	if name, err := os.Hostname(); err == nil {
		add(name)
	}
	if leaf != nil {
		for _, name := range leaf.DNSNames {
			add(name)
		}
	}
	for _, name := range o.Hosts {
		add(name)
	}
	return g, nil
}

// origin reports whether the Origin headers let a request in: none, or one that is allowed as it stands.
func (g guard) origin(values []string) bool {
	return len(values) == 0 || len(values) == 1 && slices.Contains(g.origins, values[0])
}

// host reports whether the Host header names this server: an IP address, which no other site's name can be, or a name
// that is known. A client that sends none is no browser.
func (g guard) host(value string) bool {
	if value == "" {
		return true
	}
	host := value
	if h, port, err := net.SplitHostPort(value); err == nil {
		if strings.Trim(port, "0123456789") != "" {
			return false
		}
		host = h
	} else if inside, ok := strings.CutPrefix(value, "["); ok {
		host = strings.TrimSuffix(inside, "]")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return slices.Contains(g.hosts, strings.ToLower(strings.TrimSuffix(host, ".")))
}

// bearer is the token of a request, or "".
func bearer(values []string) string {
	if len(values) != 1 {
		return ""
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// connKey is where a request's context keeps its connection.
type connKey struct{}

// PeerOf tells whose request came to Doors.HTTP. It is nil for a request of another server.
func PeerOf(r *http.Request) *Peer {
	if c, ok := r.Context().Value(connKey{}).(*peeked); ok {
		return c.peer
	}
	return nil
}

// web is the HTTP server behind the first byte.
type web struct {
	server *http.Server
	conns  chan net.Conn // to the server, which takes them as from a listener
	done   chan struct{}
	once   sync.Once
}

func (l *Listener) newWeb(ctx context.Context, d Doors) *web {
	w := &web{conns: make(chan net.Conn), done: make(chan struct{})}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	w.server = &http.Server{
		Handler:           l.handler(d),
		ReadHeaderTimeout: l.limits.time,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		Protocols:         &http1,
		ErrorLog:          slog.NewLogLogger(l.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	go w.server.Serve(webListener{w, l.ln.Addr()})
	return w
}

// serve hands a connection to the server, which closes it.
func (w *web) serve(c *peeked) {
	select {
	case w.conns <- c:
	case <-w.done:
		c.Close()
	}
}

// shutdown lets requests end that have begun, for a while.
func (w *web) shutdown(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if w.server.Shutdown(ctx) != nil {
		w.server.Close()
	}
	w.once.Do(func() { close(w.done) })
}

// webListener is the net.Listener that the HTTP server sees.
type webListener struct {
	*web
	addr net.Addr
}

func (w webListener) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w webListener) Close() error {
	w.once.Do(func() { close(w.done) })
	return nil
}

func (w webListener) Addr() net.Addr { return w.addr }

// handler is what every request goes through.
func (l *Listener) handler(d Doors) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(connKey{}).(*peeked)
		g := c.peer.gate
		if !g.begin() {
			return
		}
		defer g.end()
		// A refused connection is closed, so that it does not stay among those that wait.
		if !g.open.Load() {
			w.Header().Set("Connection", "close")
		}
		refuse := func(status int, why string) {
			l.log.Debug("refused a request", "url", l.URL(), "remote", c.peer.Remote, "status", status, "reason", why)
			w.Header().Set("Connection", "close")
			http.Error(w, why, status)
		}
		switch {
		case !l.guard.origin(r.Header.Values("Origin")):
			refuse(http.StatusForbidden, "requests of this origin are not allowed; the server's --allow-origin lists those that are")
			return
		case !l.guard.host(r.Host):
			refuse(http.StatusForbidden, "the Host header names another server")
			return
		case r.URL.Path == "/healthz" || r.URL.Path == "/readyz":
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				w.Header().Set("Allow", "GET, HEAD")
				refuse(http.StatusMethodNotAllowed, "only GET and HEAD are possible here")
			}
			return
		}
		token := bearer(r.Header.Values("Authorization"))
		if err := c.peer.Authenticate(token); err != nil {
			if token == "" && r.URL.RawQuery != "" {
				err = fmt.Errorf("%w; it goes into the Authorization header, as Bearer TOKEN, and never into a URL, which others log", err)
			}
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(http.StatusUnauthorized, err.Error())
			return
		}
		w.Header().Del("Connection")
		switch {
		case r.URL.Path == muxPath && d.Native != nil:
			l.mux(w, r, c, d)
		case r.URL.Path == muxPath || d.HTTP == nil:
			http.NotFound(w, r)
		default:
			d.HTTP.ServeHTTP(w, r)
		}
	})
}

// mux leads a WebSocket to the native door.
func (l *Listener) mux(w http.ResponseWriter, r *http.Request, c *peeked, d Doors) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the guard has looked at Origin, more strictly
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		l.log.Debug("refused a WebSocket", "url", l.URL(), "remote", c.peer.Remote, "reason", err)
		return
	}
	conn := newMuxConn(ws, c)
	defer conn.Close()
	// This peer has shown its token already; HELLO may carry it once more or not.
	peer := &Peer{Remote: c.peer.Remote, Trusted: true, gate: c.peer.gate}
	d.Native(r.Context(), conn, peer)
}
