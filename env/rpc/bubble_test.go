package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire/wiretest"
)

// fake is an environment in memory, whose processes run until they are terminated. It waits on nothing but
// channels and locks, so it may be used inside a testing/synctest bubble.
type fake struct {
	env.Files   // none but Stat
	env.Watcher // none

	mu        sync.Mutex
	processes map[string]*fakeProcess
	starts    int
	signals   []string
	block     chan struct{} // if not nil, Signal and Stat wait for it to be closed
}

type fakeProcess struct {
	id    string
	pid   int
	ended chan struct{}
}

func newFake() *fake { return &fake{processes: make(map[string]*fakeProcess)} }

func (f *fake) find(id string) (*fakeProcess, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.processes[id]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%w: %q", env.ErrUnknownProcess, id)
}

func (f *fake) Start(_ context.Context, c env.Command) (env.Process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.processes[c.ID]
	if p == nil {
		f.starts++
		p = &fakeProcess{c.ID, f.starts, make(chan struct{})}
		f.processes[c.ID] = p
	}
	return newFakeAttachment(p), nil
}

func (f *fake) Attach(_ context.Context, id string, _ env.Attach) (env.Process, error) {
	p, err := f.find(id)
	if err != nil {
		return nil, err
	}
	return newFakeAttachment(p), nil
}

func (f *fake) Processes(context.Context) (list []env.ProcessInfo, _ error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.processes {
		info := env.ProcessInfo{ID: p.id, Pid: p.pid, State: env.Running}
		select {
		case <-p.ended:
			info.State = env.Closed
		default:
		}
		list = append(list, info)
	}
	return list, nil
}

func (f *fake) Signal(_ context.Context, id string, sig env.Signal) error {
	f.mu.Lock()
	f.signals = append(f.signals, string(sig))
	block := f.block
	f.mu.Unlock()
	if block != nil {
		<-block
	}
	return nil
}

func (f *fake) Terminate(_ context.Context, id string, _ time.Duration) error {
	p, err := f.find(id)
	if err == nil {
		closeOnce(p.ended)
	}
	return err
}

func (f *fake) signalled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.signals)
}

func (f *fake) Describe(context.Context) (env.Info, error) {
	return env.Info{OS: "linux", Paths: pathuri.Posix}, nil
}

func (f *fake) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

func (f *fake) Stat(ctx context.Context, _ pathuri.URI, _ bool) (env.FileInfo, error) {
	if f.block != nil {
		select {
		case <-f.block:
		case <-ctx.Done():
			return env.FileInfo{}, context.Cause(ctx)
		}
	}
	return env.FileInfo{Size: 5}, nil
}

// Sync waits whatever its context says.
func (f *fake) Sync(context.Context, pathuri.URI) error {
	if f.block != nil {
		<-f.block
	}
	return nil
}

func (f *fake) Close() error { return nil }

type fakeAttachment struct {
	*fakeProcess
	closed chan struct{}
}

func newFakeAttachment(p *fakeProcess) *fakeAttachment {
	return &fakeAttachment{p, make(chan struct{})}
}

func (a *fakeAttachment) ID() string              { return a.id }
func (a *fakeAttachment) Pid() int                { return a.pid }
func (a *fakeAttachment) Owner() bool             { return true }
func (a *fakeAttachment) Ack(int64)               {}
func (a *fakeAttachment) StdinOffset() int64      { return 0 }
func (a *fakeAttachment) Exited() <-chan struct{} { return a.ended }
func (a *fakeAttachment) Exit() (env.Exit, error) { return env.Exit{Code: 7}, nil }
func (a *fakeAttachment) Close() error            { closeOnce(a.closed); return nil }

func (a *fakeAttachment) Output(ctx context.Context) iter.Seq2[env.Chunk, error] {
	return func(yield func(env.Chunk, error) bool) {
		select {
		case <-a.ended:
		case <-a.closed:
			yield(env.Chunk{}, fs.ErrClosed)
		case <-ctx.Done():
			yield(env.Chunk{}, context.Cause(ctx))
		}
	}
}

func (a *fakeAttachment) Write(context.Context, []byte) (int, error) { return 0, env.ErrStdinClosed }
func (a *fakeAttachment) CloseStdin(context.Context) error           { return nil }
func (a *fakeAttachment) Signal(context.Context, env.Signal) error   { return nil }
func (a *fakeAttachment) Resize(context.Context, env.Size) error     { return nil }

var _ env.Env = (*fake)(nil)

// realTime says that a test has used yamux outside of a bubble.
var realTime atomic.Bool

// bubble runs a test whose time passes when all wait. yamux keeps timers in a pool, and one is of use only in the
// bubble it was made in: two collections empty it. A stream of an earlier test outside may ask for one up to half a
// minute later, so these tests come first, by the names of their files.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	if realTime.Load() {
		t.Skip("tests outside of bubbles have run in this process")
	}
	empty := func() { runtime.GC(); runtime.GC() }
	empty()
	defer empty()
	synctest.Test(t, test)
}

// network joins clients to a server through pipes that a test can cut and stall.
type network struct {
	tb      testing.TB
	serving sync.WaitGroup

	mu      sync.Mutex
	server  *Server
	down    bool // dialling fails
	stalled bool
	dials   int
	conns   []*wiretest.Faulty
}

func newNetwork(tb testing.TB, e env.Env, options ServerOptions) *network {
	tb.Helper()
	n := &network{tb: tb}
	n.serve(e, options)
	return n
}

// serve puts a new server in the place of the one before.
func (n *network) serve(e env.Env, options ServerOptions) {
	n.tb.Helper()
	server, err := NewServer(context.Background(), e, options)
	if err != nil {
		n.tb.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.server = server
}

func (n *network) dial(context.Context) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials++
	if n.down {
		return nil, errors.New("network is down")
	}
	near, far := wiretest.Pipe()
	faulty := wiretest.NewFaulty(near)
	faulty.Stall(n.stalled)
	n.conns = append(n.conns, faulty)
	server := n.server
	n.serving.Go(func() {
		server.Serve(context.Background(), far, Origin{}, func(string) error { return nil }) //nolint:errcheck // a cut is the tests' doing
	})
	return faulty, nil
}

// cut cuts all connections; with down no new one can be made.
func (n *network) cut(down bool) {
	n.mu.Lock()
	n.down = down
	conns := n.conns
	n.conns = nil
	n.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

func (n *network) up() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = false
}

func (n *network) stall(stalled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stalled = stalled
	for _, c := range n.conns {
		c.Stall(stalled)
	}
}

func (n *network) dialled() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

func (n *network) client(options ClientOptions) *Client {
	n.tb.Helper()
	options.Dial = n.dial
	c, err := Dial(context.Background(), options)
	if err != nil {
		n.tb.Fatal(err)
	}
	if err := c.Ready(context.Background()); err != nil {
		n.tb.Fatal(err)
	}
	return c
}

// close ends the server, once the clients are closed.
func (n *network) close() {
	n.server.Close()
	n.cut(true)
	n.serving.Wait()
}
