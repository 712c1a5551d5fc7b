package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"waldo/env"
	"waldo/wire"
	"waldo/wire/wiretest"
)

// hostile is a client of a server that serves every call by serve.
func hostile(t *testing.T, serve wire.Handler) (c *Client, end func()) {
	t.Helper()
	var mu sync.Mutex
	var servers []*wire.Conn
	c, err := Dial(context.Background(), ClientOptions{Dial: func(context.Context) (net.Conn, error) {
		near, far := wiretest.Pipe()
		server, err := wire.Server(far, func(context.Context, wire.Hello) (wire.Welcome, error) {
			return wire.Welcome{Version: wire.MaxVersion, Instance: "i", Lease: 60_000}, nil
		}, serve)
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, server)
		return near, err
	}})
	if err == nil {
		err = c.Ready(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		c.Close()
		for _, server := range servers {
			server.Close()
		}
	}
}

// Whatever a server says, a client's code gets what it asked for or an error, never more, and in bounded memory.
func TestHostileServer(t *testing.T) {
	ctx := context.Background()
	type raw = json.RawMessage
	read := func(options env.ReadOptions) func(*Client) error {
		return func(c *Client) error {
			reader, err := c.Read(ctx, below("f"), options)
			if err != nil {
				return err
			}
			defer reader.Close()
			for chunk, err := range reader.Chunks() {
				if n := int64(len(chunk.Data)) + chunk.Hole; err != nil || chunk.Offset < 0 || chunk.Offset+n < 0 || options.Length > 0 && chunk.Offset+n > options.Length {
					return errors.Join(err, fmt.Errorf("chunk of %d at %d", n, chunk.Offset))
				}
			}
			return nil
		}
	}
	list := func(c *Client) (err error) {
		var entry env.Entry
		for entry, err = range c.List(ctx, below("d")) {
			if err == nil && !below("d").Contains(entry.Path) {
				t.Errorf("an entry outside: %v", entry.Path)
			}
			if entry.Err != nil {
				err = entry.Err
				if strings.ContainsAny(err.Error(), "\x1b\x07") {
					t.Errorf("an error that a terminal obeys: %q", err)
				}
			}
		}
		return err
	}
	lines := func(text string) wire.Handler {
		return func(ctx context.Context, call *wire.Call) error { return call.Send(ctx, 0, []byte(text)) }
	}
	write := func(c *Client) error {
		_, err := env.WriteFile(ctx, c, below("f"), make([]byte, 1<<20), env.WriteOptions{})
		return err
	}
	watch := func(c *Client) error {
		w, err := c.Watch(ctx, below("d"), env.WatchOptions{})
		if err != nil {
			return err
		}
		defer w.Close()
		for batch, err := range w.Changes(ctx) {
			if err != nil || len(batch) > 2*maxBatch {
				return errors.Join(err, fmt.Errorf("a batch of %d", len(batch)))
			}
		}
		return nil
	}
	endless := func(line string) wire.Handler {
		text := []byte(strings.Repeat(line, 1+100_000/len(line)))
		return func(ctx context.Context, call *wire.Call) error {
			call.Reply(watching{true})
			for {
				if err := call.Send(ctx, 0, text); err != nil {
					return err
				}
			}
		}
	}
	info := &env.FileInfo{Version: "v"}
	var second bool
	for name, test := range map[string]struct {
		serve wire.Handler
		call  func(*Client) error
		want  error
	}{
		"read ends before it begins":     {func(context.Context, *wire.Call) error { return nil }, read(env.ReadOptions{}), wire.Internal},
		"read of bytes without a reply":  {lines("x"), read(env.ReadOptions{}), wire.Internal},
		"read with a reply that is none": {func(_ context.Context, call *wire.Call) error { return call.Reply(raw(`[]`)) }, read(env.ReadOptions{}), wire.Internal},
		"read of holes unasked": {func(_ context.Context, call *wire.Call) error {
			call.Reply(reading{info})
			return call.Control(fileControl{Hole: 5})
		}, read(env.ReadOptions{}), wire.Internal},
		"read of holes of 2^63": {func(_ context.Context, call *wire.Call) error {
			call.Reply(reading{info})
			for range 4 {
				call.Control(fileControl{Hole: 1 << 62})
			}
			return nil
		}, read(env.ReadOptions{Holes: true}), wire.Internal},
		"read of more than asked": {func(ctx context.Context, call *wire.Call) error {
			call.Reply(reading{info})
			return call.Send(ctx, 0, make([]byte, 11))
		}, read(env.ReadOptions{Length: 10}), wire.Internal},
		"read of another file after a cut": {func(ctx context.Context, call *wire.Call) error {
			if second {
				call.Reply(reading{&env.FileInfo{Version: "w"}})
				return call.Send(ctx, 0, []byte("other"))
			}
			call.Reply(reading{info})
			call.Send(ctx, 0, []byte("text"))
			second = true
			go call.Conn().Close()
			<-ctx.Done()
			return nil
		}, read(env.ReadOptions{}), env.ErrChanged},
		"list with a line of 10 MiB":  {lines(strings.Repeat("x", 10<<20)), list, env.ErrTooLarge},
		"list that ends in a line":    {lines(`420 5 1.0 0 1 "a"`), list, wire.Internal},
		"list of what is above":       {lines(`420 5 1.0 0 1 ".."` + "\n"), list, errAny},
		"list of what is beside":      {lines(`420 5 1.0 0 1 "a/../../b"` + "\n"), list, errAny},
		"list of the root":            {lines(`420 5 1.0 0 1 "/"` + "\n"), list, errAny},
		"list with escapes in errors": {lines(`{"path":"x","error":{"code":"permission","message":"\u001b[2J\u0007"}}` + "\n"), list, fs.ErrPermission},
		"list of noise":               {lines("\x00\xff\n"), list, wire.Internal},
		"an endless process list": {endless(`{"id":"x","argv":["` + strings.Repeat("x", 1000) + `"]}` + "\n"), func(c *Client) error {
			_, err := c.Processes(ctx)
			return err
		}, env.ErrTooLarge},
		"a list that says the same for ever": {endless(`420 5 1.0 0 1 "a"` + "\n"), func(c *Client) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			var last error
			for _, last = range c.List(ctx, below("d")) {
				cancel()
			}
			return last
		}, context.Canceled},
		"watch ends before it begins": {func(context.Context, *wire.Call) error { return nil }, watch, wire.Internal},
		"watch of noise":              {endless("x\n"), watch, wire.Internal},
		"watch goes on after the end": {endless(`{"path":"file:///tmp/d","kind":"gone"}` + "\n"), watch, nil},
		"watch in one endless batch": {endless(`{"path":"file:///tmp/d","kind":"modified"}` + "\n"), func(c *Client) error {
			w, err := c.Watch(ctx, below("d"), env.WatchOptions{})
			if err != nil {
				return err
			}
			for batch := range w.Changes(ctx) {
				if len(batch) > 2*maxBatch {
					t.Errorf("a batch of %d", len(batch))
				}
				break
			}
			return w.Close()
		}, nil},
		"dial ends before it begins": {func(context.Context, *wire.Call) error { return nil }, func(c *Client) error {
			_, err := c.Dial(ctx, "tcp", "x:1")
			return err
		}, wire.Internal},
		"write ends before it is committed": {func(_ context.Context, call *wire.Call) error { return call.End(env.Written{}) }, write, wire.Internal},
		"write held beyond what was sent": {func(ctx context.Context, call *wire.Call) error {
			held := int64(1 << 40)
			call.Reply(writing{&held})
			call.Receive(ctx)
			go call.Conn().Close()
			<-ctx.Done()
			return nil
		}, write, wire.Internal},
		"write held less than nothing": {func(ctx context.Context, call *wire.Call) error {
			held := int64(-5)
			call.Reply(writing{&held})
			call.Receive(ctx)
			go call.Conn().Close()
			<-ctx.Done()
			return nil
		}, write, wire.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			if raceEnabled && test.want == env.ErrTooLarge {
				t.Skip("so many bytes take a minute under the race detector")
			}
			bubble(t, func(t *testing.T) {
				second = false
				c, end := hostile(t, test.serve)
				defer end()
				err := test.call(c)
				switch {
				case test.want == errAny:
					if err == nil {
						t.Error("no error")
					}
				case test.want == nil:
					if err != nil {
						t.Error(err)
					}
				default:
					wantError(t, name, err, test.want)
				}
			})
		})
	}
}

var errAny = errors.New("any")

// A client that keeps losing a session to another one keeps its hands off the other's upload.
func TestFencedInTheMiddleOfAnUpload(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine, files := newFiles()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		var writers []env.FileWriter
		for i := range 4 {
			c := n.client(ClientOptions{Session: "s"})
			defer c.Close()
			w, err := c.Write(context.Background(), below("file"), env.WriteOptions{Mode: env.Exclusive})
			if err == nil {
				_, err = w.Write([]byte(strings.Repeat(fmt.Sprint(i), 1000)))
			}
			if err != nil {
				t.Fatal(err)
			}
			writers = append(writers, w)
			synctest.Wait()
		}
		for i, w := range writers {
			written, err := w.Commit()
			if i < 3 {
				wantError(t, fmt.Sprint("client ", i), err, env.ErrFenced)
			} else if err != nil || written.Info.Size != 1000 {
				t.Errorf("the last client: %+v, %v", written, err)
			}
			w.Close()
		}
		data, _, err := env.ReadFile(context.Background(), files, below("file"), 5000)
		if err != nil || string(data) != strings.Repeat("3", 1000) {
			t.Errorf("the file: %.20q, %v", data, err)
		}
		time.Sleep(time.Minute)
		if held := n.server.handles.Load(); held != 0 {
			t.Errorf("%d handles are held", held)
		}
	})
}

// Whatever ends in the middle of transfers, nobody hangs and nothing is held.
func TestEndInTheMiddle(t *testing.T) {
	for name, end := range map[string]func(*network, *Client){
		"server closes": func(n *network, c *Client) {
			n.mu.Lock()
			n.down = true
			n.mu.Unlock()
			n.server.Close()
			c.Close()
		},
		"client closes": func(_ *network, c *Client) { c.Close() },
		"goodbye": func(_ *network, c *Client) {
			if err := c.Goodbye(context.Background(), false); err != nil {
				panic(err)
			}
			c.Close()
		},
		"drain":          func(n *network, c *Client) { n.server.Drain(context.Background()); c.Close() },
		"client is gone": func(n *network, c *Client) { n.cut(true); time.Sleep(2 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				machine, files := newFiles()
				files.Tree(map[string]string{"/tmp/large": strings.Repeat("x", 8<<20), "/tmp/d/": ""})
				n := newNetwork(t, machine, ServerOptions{DefaultLease: time.Minute})
				defer n.close()
				c := n.client(ClientOptions{})
				defer c.Close()
				var tasks sync.WaitGroup
				reader, err := c.Read(context.Background(), below("large"), env.ReadOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer reader.Close()
				paused := make(chan struct{})
				tasks.Go(func() {
					for chunk, err := range reader.Chunks() {
						if err == nil && chunk.Offset == 0 {
							<-paused
						}
					}
				})
				writer, _ := c.Write(context.Background(), below("file"), env.WriteOptions{})
				defer writer.Close()
				tasks.Go(func() {
					for {
						if _, err := writer.Write(make([]byte, 1<<16)); err != nil {
							return
						}
						time.Sleep(time.Millisecond)
					}
				})
				watch, err := c.Watch(context.Background(), below("d"), env.WatchOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer watch.Close()
				tasks.Go(func() {
					for range watch.Changes(context.Background()) {
					}
				})
				time.Sleep(100 * time.Millisecond)
				end(n, c)
				close(paused)
				c.Close()
				tasks.Wait()
				time.Sleep(2 * time.Minute) // the lease of one that could say nothing
				if held := n.server.handles.Load(); held != 0 {
					t.Errorf("%d handles are held", held)
				}
				if _, err := files.Stat(context.Background(), below("file"), false); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("what was never committed: %v", err)
				}
			})
		})
	}
}
