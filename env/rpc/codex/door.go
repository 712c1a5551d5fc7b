// Package codex is the door of an exec-server that speaks Codex's own protocol, JSON-RPC, so that an unmodified Codex
// drives it: an adapter onto the same environment, sessions and leases as the native door ([rpc.Server]). It owns no
// process, file or watch.
//
// One goroutine reads a connection and gives each request a goroutine of its own, so that none waits for another; what
// has to keep its order (a process's input, the blocks of a file) is put in order before that.
package codex

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"waldo/env"
	"waldo/env/rpc"
	"waldo/wire/jsonrpc"
)

// protocolVersion is the Codex whose protocol this is. Clients take it for what the server can do.
const protocolVersion = "0.171.0"

// defaultLease is how long a session outlives its connection, and a finished process its end, as in Codex.
const defaultLease = 80 * time.Second

// Options are the settings of a Door.
type Options struct {
	// Environ is the environment that processes are given as Codex's env policy says, "NAME=value".
	Environ []string
	Log     *slog.Logger // nil: nothing is logged
}

// Door offers the environment of an [rpc.Server] in Codex's protocol.
type Door struct {
	server  *rpc.Server
	options Options
	env     env.Env
	info    env.Info
	about   environmentInfo

	mu       sync.Mutex
	sessions map[string]*session
}

// NewDoor makes a door of server, whose environment is e.
func NewDoor(ctx context.Context, server *rpc.Server, e env.Env, options Options) (*Door, error) {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	info, err := e.Describe(ctx)
	if err != nil {
		return nil, err
	}
	d := &Door{server: server, options: options, env: e, info: info, sessions: make(map[string]*session)}
	d.about = d.describe(ctx)
	return d, nil
}

// ServeHTTP serves a WebSocket on the path "/", and nothing else.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		http.NotFound(w, r)
		return
	}
	transport, err := jsonrpc.Accept(w, r, jsonrpc.Options{})
	if err != nil {
		d.options.Log.Debug("refused a WebSocket", "remote", r.RemoteAddr, "reason", err)
		return
	}
	d.Serve(r.Context(), transport, ServeOptions{Remote: r.RemoteAddr})
}

// ServeOptions say whose connection it is.
type ServeOptions struct {
	Remote string     // for the log
	Origin rpc.Origin // where its processes start
	Last   bool       // the session ends with this connection, as with a pipe that nobody can open again
}

// Serve serves one connection until it or ctx ends, and closes it.
func (d *Door) Serve(ctx context.Context, transport jsonrpc.Transport, options ServeOptions) {
	c := &connection{door: d, options: options, peer: jsonrpc.NewPeer(transport), handles: make(map[string]*handle), streams: make(map[string]bool)}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	err := c.peer.Serve(ctx, c)
	c.end(err)
	d.options.Log.Info("connection ended", "remote", options.Remote, "error", err)
}

// find returns the session of this id, nil if there is none.
func (d *Door) find(id string) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[id]
}

// open makes a session.
func (d *Door) open(origin rpc.Origin) (*session, error) {
	opened, err := d.server.OpenSession(origin)
	if err != nil {
		return nil, err
	}
	s := newSession(d, opened, origin)
	d.mu.Lock()
	d.sessions[opened.ID()] = s
	d.mu.Unlock()
	return s, nil
}

// forget drops a session that has ended.
func (d *Door) forget(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.sessions, s.id)
}

// environ is what a process of origin is given before any policy.
func (d *Door) environ(origin rpc.Origin) []string {
	environ := d.options.Environ
	if origin.Environ != nil {
		environ = origin.Environ
	}
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		return strings.HasPrefix(entry, "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE=")
	})
}

var errGone = errors.New("the connection has ended")
