package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"waldo/env/rpc"
	"waldo/wire/listen"
)

// defaultAddress is where a server listens that is told nothing else.
var defaultAddress = listen.Address{Scheme: "tcp", Host: "127.0.0.1", Port: listen.DefaultPort}

const maxNotice = 64 << 10

// listeners speaks to each server that has told in the state directory where it listens.
func (x *examination) listeners(ctx context.Context) {
	const what = "listeners"
	dir := filepath.Join(x.stateDir, "listeners")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		x.fail(what, "make it readable for this user", "%v", err)
		return
	}
	for _, entry := range entries {
		x.listener(ctx, filepath.Join(dir, entry.Name()))
	}
	if len(entries) == 0 {
		x.ok(what, "no server tells here where it listens (with --no-auth or --client-ca none does)")
	}
}

// A notice is what a live server tells of a port; see package listen, which writes it.
type notice struct {
	URL   string `json:"url"`
	Token string `json:"token"` // never shown
	Pin   string `json:"pin"`
}

func readNotice(path string) (n notice, address listen.Address, err error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return n, address, err
	case !info.Mode().IsRegular():
		return n, address, fmt.Errorf("%q is not a regular file", path)
	case info.Size() > maxNotice:
		return n, address, fmt.Errorf("%q is over %d bytes long", path, maxNotice)
	}
	if _, err := private(info); err != nil {
		return n, address, fmt.Errorf("%q %w", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return n, address, err
	}
	if json.Unmarshal(content, &n) != nil { // its error might show the token
		return n, address, fmt.Errorf("%q does not hold what a server writes there", path)
	}
	if address, err = listen.ParseAddress(n.URL); err != nil {
		return n, address, fmt.Errorf("%q: %w", path, err)
	}
	return n, address, nil
}

func (x *examination) listener(ctx context.Context, path string) {
	const what = "listener"
	n, address, err := readNotice(path)
	if errors.Is(err, fs.ErrNotExist) {
		return // it has just ended
	}
	if err != nil {
		x.fail(what, "remove the file", "%v", err)
		return
	}
	shown := address.String()
	switch address.Host {
	case "0.0.0.0":
		address.Host = "127.0.0.1"
	case "::":
		address.Host = "::1"
	}
	if address.Scheme == "ws" || address.Scheme == "wss" {
		address.Path = "/mux"
	}
	access := listen.DialOptions{StateDir: x.stateDir}
	if !address.Loopback() {
		if n.Pin == "" {
			x.fail(what, "remove the file "+path, "%s is neither of this machine nor encrypted", shown)
			return
		}
		// The pin keeps the token from whoever has no key of ours.
		access = listen.DialOptions{Token: n.Token, TLSPin: n.Pin}
	} else if token, err := listen.FindToken(address, access); token == "" || err != nil {
		x.warn(what, "remove the file", "%s: its server is gone and has left %q", shown, path)
		return
	}
	trip, err := greet(ctx, func(ctx context.Context) (net.Conn, error) {
		return listen.Dial(ctx, address, access)
	}, func() (string, error) { return listen.FindToken(address, access) })
	if errors.Is(err, syscall.ECONNREFUSED) {
		x.warn(what, "remove the file", "%s: its server is gone and has left %q", shown, path)
		return
	}
	if err != nil {
		x.fail(what, "restart that server; it has its port, and should answer", "%s does not answer as it should: %v", shown, err)
		return
	}
	if x.answered == nil {
		x.answered = map[uint16]bool{}
	}
	x.answered[address.Port] = true
	x.answer(what, shown, trip)
}

// daemon speaks to the server that the user's pipes join.
func (x *examination) daemon(ctx context.Context) {
	const what = "daemon"
	if !daemonsWork {
		return
	}
	socket := filepath.Join(x.stateDir, daemonName("sock"))
	switch _, err := os.Lstat(socket); {
	case errors.Is(err, fs.ErrNotExist):
		// What it cannot bind, it cannot bind under another name of that length.
		if err := trySocket(x.stateDir, filepath.Join(x.stateDir, "doctor"+daemonName("sock")[len("daemon"):])); err != nil {
			x.fail(what, "choose a --state-dir (or WALDO_HOME) with a shorter path, on a local file system", "none runs, and none can: a socket in %q: %v", x.stateDir, err)
			return
		}
		x.ok(what, "none runs; the first --listen stdio of this user starts it")
		return
	case err != nil:
		x.fail(what, "make the state directory readable for this user", "%v", err)
		return
	}
	trip, err := greet(ctx, func(ctx context.Context) (net.Conn, error) { return dialDaemon(ctx, socket) }, nil)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		x.ok(what, "none runs; the socket that one has left is replaced by the next")
	case err != nil:
		x.fail(what, "end it (its log is "+filepath.Join(x.stateDir, daemonName("log"))+"), and the next pipe starts a new one", "%q does not answer as it should: %v", socket, err)
	default:
		x.answer(what, "unix://"+socket, trip)
	}
}

// trySocket binds a socket, if there is a directory to bind it in.
func trySocket(dir, path string) error {
	if _, err := os.Stat(dir); err != nil {
		// A path that is too long is one whether the directory is there or not.
		if len(path) <= maxSocketPath {
			return nil
		}
		return fmt.Errorf("its path is %d bytes long, and %d is the most that the system takes", len(path), maxSocketPath)
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil // another doctor is just looking
	}
	if err != nil {
		return err
	}
	return l.Close()
}

// answer tells of a server that has answered.
func (x *examination) answer(what, where string, a answer) {
	if own := programName + " " + version; a.server != own {
		x.warn(what, "restart it when its processes may end", "%s is %q, and this program is %q", where, a.server, own)
		return
	}
	x.ok(what, "%s answers as %s, after %v", where, a.server, a.trip.Round(10*time.Microsecond))
}

// An answer is what a server says of itself.
type answer struct {
	server string
	trip   time.Duration
}

// greet says HELLO, and GOODBYE when it is answered.
func greet(ctx context.Context, dial func(context.Context) (net.Conn, error), token func() (string, error)) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeWithin, fmt.Errorf("no answer within %v", probeWithin))
	defer cancel()
	client, err := rpc.Dial(ctx, rpc.ClientOptions{Dial: dial, FindToken: token, Name: programName + " doctor " + version, Lease: time.Second})
	if err != nil {
		return answer{}, cmp.Or(context.Cause(ctx), err)
	}
	defer client.Close() //nolint:errcheck // returns nil
	if err := client.Ready(ctx); err != nil {
		return answer{}, cmp.Or(context.Cause(ctx), err)
	}
	a := answer{client.Connection().Server, client.Connection().Latency}
	return a, client.Goodbye(ctx, false)
}

// port finds out whether a server could listen at an address, and if not, who does.
func (x *examination) port(ctx context.Context, address listen.Address) {
	const what = "default port"
	if x.answered[address.Port] {
		x.ok(what, "%s is in use by this user's own server", address)
		return
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(address.Host, fmt.Sprint(address.Port)))
	if err == nil {
		l.Close() //nolint:errcheck // nothing was done with it
		x.ok(what, "%s is free", address)
		return
	}
	holder := ""
	if errors.Is(err, syscall.EADDRINUSE) {
		holder = portHolder(address.Port)
	}
	x.warn(what, "end what is there, or choose another port with --listen (0 for any)", "%s is not free: %v%s", address, err, holder)
}
