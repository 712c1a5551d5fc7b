//go:build unix

package codex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/env/host"
	"waldo/env/host/proc"
	"waldo/env/rpc"
	"waldo/pathuri"
	"waldo/wire/jsonrpc"
)

// patience bounds what a test waits for.
const patience = 30 * time.Second

// rig is this machine behind a door.
type rig struct {
	testing.TB
	door    *Door
	server  *rpc.Server
	dir     string
	serving sync.WaitGroup
}

func newRig(t testing.TB) *rig {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	machine, err := host.New(host.Options{Environ: os.Environ(), Directory: dir, Processes: proc.Options{Grace: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(t.Context(), machine, rpc.ServerOptions{Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	door, err := NewDoor(t.Context(), server, machine, Options{Environ: append(os.Environ(), "DOOR_TEST=value", "DOOR_EMPTY=")})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, door: door, server: server, dir: dir}
	t.Cleanup(func() {
		if err := errors.Join(machine.Close(), server.Close()); err != nil {
			t.Error(err)
		}
		r.serving.Wait()
	})
	return r
}

// uri is that of a file of the test's directory.
func (r *rig) uri(names ...string) string {
	uri, err := pathuri.FromNative(filepath.Join(append([]string{r.dir}, names...)...), r.door.info.Paths)
	if err != nil {
		r.Fatal(err)
	}
	return uri.String()
}

func (r *rig) write(content string, names ...string) {
	r.Helper()
	path := filepath.Join(append([]string{r.dir}, names...)...)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		r.Fatal(err)
	}
}

// client is one connection to the door.
type client struct {
	*rig
	peer *jsonrpc.Peer
	conn net.Conn
	over chan struct{} // closed when neither end has anything under way any more

	mu    sync.Mutex
	told  []told
	seen  func(told) // called, under mu, for each; then they are not kept
	fresh chan struct{}
}

type told struct {
	method string
	params json.RawMessage
}

// Handle implements [jsonrpc.Handler].
func (c *client) Handle(_ context.Context, r *jsonrpc.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen != nil {
		c.seen(told{r.Method, r.Params})
		return nil
	}
	c.told = append(c.told, told{r.Method, r.Params})
	select {
	case c.fresh <- struct{}{}:
	default:
	}
	return nil
}

// dial connects, and says nothing yet.
func (r *rig) dial() *client {
	near, far := net.Pipe()
	c := &client{rig: r, conn: near, peer: jsonrpc.NewPeer(jsonrpc.NewLines(near, jsonrpc.Options{})), over: make(chan struct{}), fresh: make(chan struct{}, 1)}
	var ends sync.WaitGroup
	ends.Go(func() {
		r.door.Serve(context.Background(), jsonrpc.NewLines(far, jsonrpc.Options{}), ServeOptions{Remote: "test"})
	})
	ends.Go(func() { c.peer.Serve(context.Background(), c) }) //nolint:errcheck // it is cut
	r.serving.Go(func() {
		ends.Wait()
		close(c.over)
	})
	r.Cleanup(c.cut)
	return c
}

// cut ends the connection without a word.
func (c *client) cut() {
	c.conn.Close()
	c.peer.Close(errors.New("cut"))
	<-c.over
}

// open connects and opens a session, or resumes one.
func (r *rig) open(resume string) (c *client, session string) {
	r.Helper()
	c = r.dial()
	session, err := c.initialize(resume)
	if err != nil {
		r.Fatal(err)
	}
	return c, session
}

func (c *client) initialize(resume string) (string, error) {
	params := map[string]any{"clientName": "test", "resumeSessionId": nil}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	var result struct {
		SessionID string `json:"sessionId"`
	}
	err := c.try("initialize", params, &result)
	if err == nil {
		err = c.peer.Notify(context.Background(), "initialized", map[string]any{})
	}
	for err == nil { // a call may overtake a notification
		if err = c.try("environment/status", nil, nil); err == nil {
			break
		}
		if answer := (*jsonrpc.Error)(nil); errors.As(err, &answer) && strings.Contains(answer.Message, "must send initialized") {
			err = nil
		}
	}
	return result.SessionID, err
}

// try makes a call.
func (c *client) try(method string, params, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.peer.Call(ctx, method, params, result)
}

// call makes a call that has to go well.
func (c *client) call(method string, params, result any) {
	c.Helper()
	if err := c.try(method, params, result); err != nil {
		c.Fatalf("%s %v: %v", method, params, err)
	}
}

// refused makes a call that has to be refused, in these words.
func (c *client) refused(method string, params any, code int, words string) {
	c.Helper()
	err := c.try(method, params, nil)
	var answer *jsonrpc.Error
	if !errors.As(err, &answer) || answer.Code != code || !strings.Contains(answer.Message, words) {
		c.Errorf("%s %v: got %v, want %d %s", method, params, err, code, words)
	}
}

// await waits until found says so of what was told.
func (c *client) await(what string, found func([]told) bool) {
	c.Helper()
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		all := slices.Clone(c.told)
		c.mu.Unlock()
		if found(all) {
			return
		}
		select {
		case <-c.fresh:
		case <-c.over:
			c.Fatalf("the connection ended while waiting for %s", what)
		case <-timeout:
			c.Fatalf("no %s; told was %s", what, all)
		}
	}
}

// processEvent is any notification about a process.
type processEvent struct {
	ProcessID string `json:"processId,omitempty"`
	Seq       uint64 `json:"seq,omitempty"`
	Stream    string `json:"stream,omitempty"`
	Chunk     []byte `json:"chunk,omitempty"`
	ExitCode  int64  `json:"exitCode,omitempty"`
}

// life is what was told of a process until it closed.
type life struct {
	output map[string]string
	code   int64
	events []string
}

// ended waits for the end of a process.
func (c *client) ended(id string) (l life) {
	c.Helper()
	c.await("end of "+id, func(all []told) bool {
		l = life{output: make(map[string]string)}
		next := uint64(1)
		closed := false
		for _, one := range all {
			var event processEvent
			if json.Unmarshal(one.params, &event) != nil || event.ProcessID != id || !strings.HasPrefix(one.method, "process/") {
				continue
			}
			if event.Seq != next {
				c.Fatalf("%s has the number %d, want %d", one.method, event.Seq, next)
			}
			next++
			l.events = append(l.events, strings.TrimPrefix(one.method, "process/"))
			switch one.method {
			case "process/output":
				l.output[event.Stream] += string(event.Chunk)
			case "process/exited":
				l.code = event.ExitCode
			case "process/closed":
				closed = true
			}
		}
		return closed
	})
	return l
}

// start starts a process.
func (c *client) start(id string, more map[string]any, argv ...string) {
	c.Helper()
	c.call("process/start", c.startParams(id, more, argv...), nil)
}

func (r *rig) startParams(id string, more map[string]any, argv ...string) map[string]any {
	params := map[string]any{
		"processId": id, "argv": argv, "cwd": r.uri(), "env": map[string]string{"PATH": os.Getenv("PATH")}, "tty": false,
	}
	for key, value := range more {
		params[key] = value
	}
	return params
}

func (t told) String() string { return fmt.Sprintf("%s %.200s", t.method, t.params) }
