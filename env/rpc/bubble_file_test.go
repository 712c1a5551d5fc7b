package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"waldo/env"
	memory "waldo/env/envtest/fake"
	"waldo/pathuri"
	"waldo/wire"
)

// newFiles is an environment in memory with files and watches. It may be used inside a bubble.
func newFiles() (*fake, *memory.Machine) {
	files := memory.New(pathuri.Posix)
	machine := newFake()
	machine.Files, machine.Watcher = files, files
	return machine, files
}

func below(name string) pathuri.URI {
	path, err := root.JoinName("tmp")
	for part := range strings.SplitSeq(name, "/") {
		if err == nil {
			path, err = path.JoinName(part)
		}
	}
	if err != nil {
		panic(err)
	}
	return path
}

// writers are files whose writers a test holds up. It fails when one is closed while it commits.
type writers struct {
	env.Files
	tb     testing.TB
	commit chan struct{} // commits wait for it to be closed
	write  chan struct{} // so do writes
	count  bool          // nothing is kept of them
}

func (w *writers) Write(ctx context.Context, path pathuri.URI, options env.WriteOptions) (env.FileWriter, error) {
	if w.count {
		return &heldWriter{FileWriter: new(counting), held: w}, nil
	}
	writer, err := w.Files.Write(ctx, path, options)
	return &heldWriter{FileWriter: writer, held: w}, err
}

// counting counts what is written and keeps nothing.
type counting struct{ taken int64 }

func (c *counting) Write(p []byte) (int, error) { return len(p), c.Skip(int64(len(p))) }
func (c *counting) Skip(n int64) error          { c.taken += n; return nil }
func (c *counting) Taken() int64                { return c.taken }
func (c *counting) Close() error                { return nil }
func (c *counting) Commit() (env.Written, error) {
	return env.Written{Info: env.FileInfo{Size: c.taken}}, nil
}

type heldWriter struct {
	env.FileWriter
	held *writers
	busy sync.Mutex
}

func (w *heldWriter) enter(what string) (leave func()) {
	if !w.busy.TryLock() {
		w.held.tb.Errorf("%s in the middle of another call", what)
		return func() {}
	}
	return w.busy.Unlock
}

func (w *heldWriter) Write(p []byte) (int, error) {
	defer w.enter("Write")()
	if w.held.write != nil {
		<-w.held.write
	}
	return w.FileWriter.Write(p)
}

func (w *heldWriter) Commit() (env.Written, error) {
	defer w.enter("Commit")()
	if w.held.commit != nil {
		<-w.held.commit
	}
	return w.FileWriter.Commit()
}

func (w *heldWriter) Close() error {
	defer w.enter("Close")()
	return w.FileWriter.Close()
}

// A long operation is its caller's to give up, and nobody else's but the session's end: a cut does not end it, and its
// result reaches the retry.
func TestLongOperation(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(n *network, c *Client, cancel context.CancelFunc)
		goesOn    bool
		wants     []error
		within    time.Duration // it has ended by then
	}{
		"goes on across cuts": {func(n *network, _ *Client, _ context.CancelFunc) {
			n.cut(false)
			time.Sleep(time.Second)
			n.cut(false)
		}, true, nil, 0},
		"goes on while the network is silent": {func(n *network, _ *Client, _ context.CancelFunc) {
			n.stall(true)
			time.Sleep(10 * time.Second)
			n.stall(false)
		}, true, nil, 0},
		"its caller gives up": {func(_ *network, _ *Client, cancel context.CancelFunc) { cancel() }, false, []error{context.Canceled}, 2 * time.Second},
		"its caller gives up while cut off": {func(n *network, c *Client, cancel context.CancelFunc) {
			n.cut(true)
			cancel()
			synctest.Wait()
			n.up()
			go c.Symlink(context.Background(), "x", below("next"))
		}, false, []error{context.Canceled}, 5 * time.Second},
		"another client takes over": {func(n *network, c *Client, _ context.CancelFunc) {
			n.client(ClientOptions{Session: c.session}).Close()
		}, false, []error{env.ErrFenced}, time.Second},
		"goodbye":      {func(_ *network, c *Client, _ context.CancelFunc) { c.Goodbye(context.Background(), false) }, false, []error{env.ErrExpired}, time.Second},
		"lease":        {func(n *network, _ *Client, _ context.CancelFunc) { n.cut(true) }, false, []error{env.ErrUnknownOutcome, env.ErrExpired}, 2 * time.Minute},
		"server close": {func(n *network, c *Client, _ context.CancelFunc) { n.cut(true); n.server.Close(); c.Close() }, false, []error{env.ErrUnknownOutcome}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				machine, files := newFiles()
				files.Tree(map[string]string{"/tmp/from": "text"})
				n := newNetwork(t, machine, ServerOptions{DefaultLease: time.Minute})
				defer n.close()
				c := n.client(ClientOptions{Session: "s"})
				defer c.Close()
				var runs int
				release, ended := make(chan struct{}), make(chan struct{})
				files.Hook(func(ctx context.Context, call memory.Call) error {
					if call.Op != "copy" {
						return nil
					}
					runs++
					select {
					case <-release:
						return nil
					case <-ctx.Done():
						close(ended)
						return context.Cause(ctx)
					}
				})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				copied := make(chan error, 1)
				go func() { copied <- c.Copy(ctx, below("from"), below("to"), env.CopyOptions{}) }()
				synctest.Wait()
				began := time.Now()
				test.meanwhile(n, c, cancel)
				if test.goesOn {
					close(release)
				} else {
					<-ended
					if took := time.Since(began); took > test.within {
						t.Errorf("it went on for %v", took)
					}
				}
				err := <-copied
				if test.wants == nil && err != nil {
					t.Error(err)
				}
				wantError(t, name, err, test.wants...)
				if runs != 1 {
					t.Errorf("it ran %d times", runs)
				}
			})
		})
	}
}

// A client that takes a session over begins when what the one before had under way is over.
func TestTakeoverWaitsForOperations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine, files := newFiles()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		older := n.client(ClientOptions{Session: "s"})
		defer older.Close()
		release := make(chan struct{})
		files.Hook(func(_ context.Context, call memory.Call) error {
			if call.Path == below("old") {
				<-release // whatever its context says
			}
			return nil
		})
		go older.Mkdir(context.Background(), below("old"), env.MkdirOptions{})
		synctest.Wait()
		newer := n.client(ClientOptions{Session: "s"})
		defer newer.Close()
		made := make(chan error, 1)
		go func() { made <- newer.Mkdir(context.Background(), below("new"), env.MkdirOptions{}) }()
		synctest.Wait()
		if len(made) > 0 {
			t.Error("the newer client acted while the older one's operation went on")
		}
		close(release)
		if err := <-made; err != nil {
			t.Error(err)
		}
	})
}

// However many short operations come and go beside a long one, their results are kept no longer than they are of use.
func TestManyOperationsBesideALongOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine, _ := newFiles()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		c := n.client(ClientOptions{Session: "s"})
		defer c.Close()
		writer, err := c.Write(context.Background(), below("long"), env.WriteOptions{})
		if err == nil {
			_, err = writer.Write([]byte("text"))
		}
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		for i := range 2*maxJournal + 10 {
			if err := c.Mkdir(context.Background(), below(fmt.Sprint(i)), env.MkdirOptions{}); err != nil {
				t.Fatalf("operation %d: %v", i, err)
			}
		}
		if kept := len(n.server.sessions["s"].journal.entries); kept > maxJournal {
			t.Errorf("%d results are kept", kept)
		}
		n.cut(false)
		if written, err := writer.Commit(); err != nil || written.Info.Size != 4 {
			t.Errorf("committed %+v, %v", written, err)
		}
	})
}

// A writer of the server's machine has one caller at a time, whatever becomes of the client.
func TestCommitIsLeftAlone(t *testing.T) {
	for name, end := range map[string]func(*network, *Client){
		"goodbye":   func(_ *network, c *Client) { c.Goodbye(context.Background(), false) },
		"lease":     func(n *network, _ *Client) { n.cut(true); time.Sleep(2 * time.Minute) },
		"take over": func(n *network, _ *Client) { n.client(ClientOptions{Session: "s"}).Close() },
		"close":     func(n *network, _ *Client) { n.cut(true); go n.server.Close() },
		"cut":       func(n *network, _ *Client) { n.cut(false) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				machine, files := newFiles()
				held := &writers{Files: files, tb: t, commit: make(chan struct{})}
				machine.Files = held
				n := newNetwork(t, machine, ServerOptions{DefaultLease: time.Minute})
				defer n.close()
				c := n.client(ClientOptions{Session: "s"})
				defer c.Close()
				writer, err := c.Write(context.Background(), below("file"), env.WriteOptions{})
				if err == nil {
					_, err = writer.Write([]byte("text"))
				}
				if err != nil {
					t.Fatal(err)
				}
				committed := make(chan error, 1)
				go func() {
					_, err := writer.Commit()
					committed <- err
				}()
				synctest.Wait()
				end(n, c)
				synctest.Wait()
				close(held.commit)
				synctest.Wait()
				if name == "cut" {
					if err := <-committed; err != nil {
						t.Error(err)
					}
				}
				n.up()
				writer.Close()
				time.Sleep(time.Minute)
				if n := n.server.handles.Load(); n != 0 {
					t.Errorf("%d handles are held", n)
				}
			})
		})
	}
}

// What a caller is not told is not guessed: a commit whose answer can never come may have been made.
func TestCommitWithoutAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine, files := newFiles()
		held := &writers{Files: files, tb: t, commit: make(chan struct{})}
		machine.Files = held
		n := newNetwork(t, machine, ServerOptions{DefaultLease: time.Minute})
		defer n.close()
		c := n.client(ClientOptions{})
		defer c.Close()
		writer, _ := c.Write(context.Background(), below("file"), env.WriteOptions{})
		committed := make(chan error, 1)
		go func() {
			_, err := writer.Commit()
			committed <- err
		}()
		synctest.Wait()
		n.cut(true)
		close(held.commit)
		wantError(t, "commit", <-committed, env.ErrUnknownOutcome, env.ErrExpired)
		writer.Close()
	})
}

// A watch that was waiting for a connection when its consumer gave up goes on for the next one.
func TestWatchGivenUpWhileCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine, files := newFiles()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		c := n.client(ClientOptions{})
		defer c.Close()
		files.Tree(map[string]string{"/tmp/dir/": ""})
		watch, err := c.Watch(context.Background(), below("dir"), env.WatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.cut(true)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		for range 2 {
			for _, err = range watch.Changes(ctx) {
			}
			wantError(t, "changes while cut off", err, context.DeadlineExceeded)
		}
		n.up()
		for batch, err := range watch.Changes(context.Background()) {
			if err != nil || len(batch) != 1 || batch[0] != (env.Change{Path: below("dir"), Kind: env.Rescan}) {
				t.Errorf("after the return: %v, %v", batch, err)
			}
			break
		}
		// Close ends the consumer while it waits for a connection, too.
		n.cut(true)
		ended := make(chan error, 1)
		go func() {
			var last error
			for _, last = range watch.Changes(context.Background()) {
			}
			ended <- last
		}()
		time.Sleep(3 * time.Second)
		closed := time.Now()
		if err := errors.Join(watch.Close(), watch.Close(), <-ended); err != nil || time.Since(closed) > 0 {
			t.Errorf("ended after %v with %v", time.Since(closed), err)
		}
		for batch, err := range watch.Changes(context.Background()) {
			t.Errorf("after Close: %v, %v", batch, err)
		}
		n.up()
	})
}

// What was promised of readers and writers.
func TestReaderAndWriterLives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine, files := newFiles()
		files.Tree(map[string]string{"/tmp/large": strings.Repeat("x", 4<<20)})
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		c := n.client(ClientOptions{})
		defer c.Close()
		reader, err := c.Read(context.Background(), below("large"), env.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		next := int64(0)
		for range 3 {
			for chunk, err := range reader.Chunks() {
				if err != nil || chunk.Offset != next {
					t.Errorf("chunk at %d, want %d; %v", chunk.Offset, next, err)
				}
				next += int64(len(chunk.Data))
				break
			}
			n.cut(false)
		}
		// It may be closed while another goroutine waits.
		n.cut(true)
		ended := make(chan error, 1)
		go func() {
			var last error
			for _, last = range reader.Chunks() {
			}
			ended <- last
		}()
		time.Sleep(time.Second)
		if err := errors.Join(reader.Close(), reader.Close()); err != nil {
			t.Error(err)
		}
		wantError(t, "chunks while it is closed", <-ended, fs.ErrClosed)
		n.up()
		for _, err := range reader.Chunks() {
			wantError(t, "chunks of what is closed", err, fs.ErrClosed)
		}

		// A writer that is committed stays so.
		writer, _ := c.Write(context.Background(), below("file"), env.WriteOptions{})
		writer.Write([]byte("text"))
		first, err := writer.Commit()
		second, again := writer.Commit()
		if err != nil || again != nil || first != second || first.Info.Size != 4 {
			t.Errorf("committed %+v, %v and %+v, %v", first, err, second, again)
		}
		_, err = writer.Write([]byte("more"))
		wantError(t, "write behind the commit", err, fs.ErrClosed)
		wantError(t, "skip behind the commit", writer.Skip(1), fs.ErrClosed)
		if err := errors.Join(writer.Close(), writer.Close()); err != nil {
			t.Error(err)
		}
		// One that is closed is nothing any more, and nothing is left of it when Close returns.
		writer, _ = c.Write(context.Background(), below("other"), env.WriteOptions{})
		writer.Write([]byte("text"))
		if err := errors.Join(writer.Close(), writer.Close()); err != nil {
			t.Error(err)
		}
		if n := n.server.handles.Load(); n > 1 { // the closer lets go a moment after the answer
			t.Errorf("%d handles", n)
		}
		for what, call := range map[string]func() error{
			"write":       func() error { _, err := writer.Write([]byte("more")); return err },
			"write of 0":  func() error { _, err := writer.Write(nil); return err },
			"skip":        func() error { return writer.Skip(1) },
			"skip of 0":   func() error { return writer.Skip(0) },
			"skip of < 0": func() error { return writer.Skip(-1) },
			"commit":      func() error { _, err := writer.Commit(); return err },
		} {
			wantError(t, what+" of what is closed", call(), fs.ErrClosed)
		}
	})
}

// Holes are CONTROL messages, of which a call may not have many waiting.
func TestManyHoles(t *testing.T) {
	for name, step := range map[string]func(env.FileWriter) error{
		"one behind another": func(w env.FileWriter) error { return w.Skip(1 << 20) },
		"and bytes": func(w env.FileWriter) error {
			_, err := w.Write([]byte("x"))
			return errors.Join(err, w.Skip(1<<20-1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				machine, files := newFiles()
				held := &writers{Files: files, tb: t, write: make(chan struct{}), count: true}
				machine.Files = held
				n := newNetwork(t, machine, ServerOptions{})
				defer n.close()
				c := n.client(ClientOptions{})
				defer c.Close()
				writer, _ := c.Write(context.Background(), below("file"), env.WriteOptions{})
				defer writer.Close()
				const steps = 100_000
				written := make(chan error, 1)
				go func() {
					var err error
					for i := 0; i < steps && err == nil; i++ {
						err = step(writer)
					}
					written <- err
				}()
				time.Sleep(time.Second) // the disk is slow
				close(held.write)
				if err := <-written; err != nil {
					t.Fatal(err)
				}
				n.cut(false)
				result, err := writer.Commit()
				if err != nil || result.Info.Size != steps<<20 || writer.Taken() != steps<<20 {
					t.Errorf("wrote %+v, %d taken, %v", result, writer.Taken(), err)
				}
			})
		})
	}
	bubble(t, func(t *testing.T) {
		machine, _ := newFiles()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		c := n.client(ClientOptions{})
		defer c.Close()
		writer, _ := c.Write(context.Background(), below("file"), env.WriteOptions{})
		defer writer.Close()
		if err := writer.Skip(1 << 62); err != nil {
			t.Error(err)
		}
		wantError(t, "a hole of 2^63", writer.Skip(1<<62), env.ErrInvalid)
	})
}

// A time that no JSON can say fails no call, least of all one that has had its effect.
func TestDistantTimes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine, files := newFiles()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		c := n.client(ClientOptions{})
		defer c.Close()
		for _, year := range []int{-30000, 30000} {
			distant := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			path := below(fmt.Sprint("y", year))
			if _, err := env.WriteFile(context.Background(), files, path, nil, env.WriteOptions{Modified: distant}); err != nil {
				t.Fatal(err)
			}
			reader, err := c.Read(context.Background(), path, env.ReadOptions{})
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			reader.Close()
			for entry, err := range c.Walk(context.Background(), path, env.WalkOptions{}) {
				if err != nil || !entry.Info.Modified.Equal(distant) {
					t.Errorf("walked %v, %v", entry.Info.Modified, err)
				}
			}
		}
	})
}

// An argument list that was accepted can be listed.
func TestLongArguments(t *testing.T) {
	long := []string{"x", strings.Repeat("\x01", 600<<10)} // each six bytes in JSON
	line, err := json.Marshal(listed{Argv: wire.Texts(long)})
	if err != nil {
		t.Fatal(err)
	}
	if len(line) > maxLine {
		t.Errorf("a line of %d bytes", len(line))
	}
}

// A server is not idle while it holds something for a client that is away, and that ends with the lease.
func TestHeldIsNotIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine, _ := newFiles()
		n := newNetwork(t, machine, ServerOptions{DefaultLease: 10 * time.Minute})
		defer n.close()
		c := n.client(ClientOptions{})
		writer, _ := c.Write(context.Background(), below("file"), env.WriteOptions{})
		writer.Write([]byte("text"))
		synctest.Wait()
		c.Close()
		began := time.Now()
		if err := n.server.AwaitIdle(context.Background(), time.Minute); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 10*time.Minute || took > 12*time.Minute {
			t.Errorf("idle after %v", took)
		}
	})
}

// raw is a connection of a client that keeps no rules.
func (n *network) raw(session, holder string) *wire.Conn {
	n.tb.Helper()
	nc, err := n.dial(context.Background())
	if err != nil {
		n.tb.Fatal(err)
	}
	conn, err := wire.Client(nc)
	if err != nil {
		n.tb.Fatal(err)
	}
	answer, err := conn.Hello(wire.Hello{Session: session, Holder: holder})
	if err == nil {
		_, err = answer(context.Background())
	}
	if err != nil {
		n.tb.Fatal(err)
	}
	return conn
}

// hearEnd receives until the END of a call, or its error.
func hearEnd(call *wire.Call) error {
	for {
		event, err := call.Receive(context.Background())
		if err != nil || event.Kind == wire.EndEvent {
			return err
		}
	}
}

// Whatever a client sends, it is told what is wrong with it, nobody else notices, and nothing is held for long.
func TestHostileClient(t *testing.T) {
	write := func(op uint64, params string) wire.Request {
		return wire.Request{Method: methodWrite, Op: op, Params: json.RawMessage(params)}
	}
	const file = `{"path":"file:///tmp/f"}`
	fails := func(want error, requests ...wire.Request) func(*testing.T, *network, *wire.Conn) {
		return func(t *testing.T, n *network, conn *wire.Conn) {
			for _, request := range requests {
				call, err := conn.Open(request)
				if err != nil {
					t.Fatal(err)
				}
				wantError(t, fmt.Sprintf("%.200s", fmt.Sprint(request)), hearEnd(call), want)
				call.Close()
			}
		}
	}
	get := func(method, params string) wire.Request {
		return wire.Request{Method: method, Params: json.RawMessage(params)}
	}
	sends := func(want error, controls ...any) func(*testing.T, *network, *wire.Conn) {
		return func(t *testing.T, n *network, conn *wire.Conn) {
			call, err := conn.Open(write(1, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range controls {
				call.Control(c)
			}
			wantError(t, fmt.Sprint(controls...), hearEnd(call), want)
			call.Close()
			// It is an operation: told again is the same.
			if call, err = conn.Open(write(1, file)); err != nil {
				t.Fatal(err)
			}
			wantError(t, "again", hearEnd(call), want)
			call.Close()
		}
	}
	type hole map[string]any
	for name, attack := range map[string]func(*testing.T, *network, *wire.Conn){
		"no operation id":     fails(env.ErrInvalid, write(0, file)),
		"modes and offsets":   fails(env.ErrInvalid, write(1, `{"path":"file:///tmp/f","mode":"x"}`), write(2, `{"path":"file:///tmp/f","mode":"patch","offset":-1}`)),
		"reading backwards":   fails(env.ErrInvalid, get("file.read", `{"path":"file:///tmp/old","offset":-1}`), get("file.read", `{"path":"file:///tmp/old","length":-1}`)),
		"another convention":  fails(env.ErrInvalid, get("file.read", `{"path":"file://host/share/f"}`), get("file.list", `{"path":"file://host/share"}`), write(1, `{"path":"file://host/share/f"}`)),
		"no path":             fails(env.ErrInvalid, get("file.read", `{}`), get("file.list", `{}`), get("watch", `{}`), write(1, `{}`)),
		"10,000 within":       fails(env.ErrInvalid, get("file.read", `{"path":"file:///tmp/old","within":["file:///"`+strings.Repeat(`,"file:///"`, 9999)+`]}`)),
		"a confined watch":    fails(errors.ErrUnsupported, get("watch", `{"path":"file:///tmp","within":["file:///tmp"]}`)),
		"a hole of -1":        sends(env.ErrInvalid, hole{"hole": -1}),
		"a hole of 2^63":      sends(env.ErrInvalid, hole{"hole": 1 << 62}, hole{"hole": 1 << 62}),
		"a hole that is none": sends(env.ErrInvalid, hole{"hole": "x"}),
		"END without commit": func(t *testing.T, n *network, conn *wire.Conn) {
			call, err := conn.Open(write(1, file))
			if err != nil {
				t.Fatal(err)
			}
			call.End(nil)
			if err := hearEnd(call); err == nil {
				t.Error("it was committed")
			}
			call.Close()
		},
		"a cut": func(t *testing.T, n *network, conn *wire.Conn) {
			call, err := conn.Open(write(1, file))
			if err != nil {
				t.Fatal(err)
			}
			call.Receive(context.Background())
			call.Close()
		},
		"twice at once": func(t *testing.T, n *network, conn *wire.Conn) {
			var calls []*wire.Call
			for range 20 {
				call, err := conn.Open(write(1, file))
				if err != nil {
					t.Fatal(err)
				}
				call.End(writeEnd{Commit: true})
				calls = append(calls, call)
			}
			for _, call := range calls {
				if err := hearEnd(call); err != nil {
					t.Error(err)
				}
				call.Close()
			}
		},
		"twice at once, refused": func(t *testing.T, n *network, conn *wire.Conn) {
			var calls []*wire.Call
			for range 20 {
				call, err := conn.Open(write(1, `{"path":"file:///none/f"}`))
				if err != nil {
					t.Fatal(err)
				}
				calls = append(calls, call)
			}
			for _, call := range calls {
				wantError(t, "write", hearEnd(call), fs.ErrNotExist)
				call.Close()
			}
		},
		"other parameters": func(t *testing.T, n *network, conn *wire.Conn) {
			fails(fs.ErrNotExist, write(1, `{"path":"file:///none/f"}`))(t, n, conn)
			fails(env.ErrInvalid, write(1, file), wire.Request{Method: methodMkdir, Op: 1, Params: json.RawMessage(`{"path":"file:///none/f"}`)})(t, n, conn)
		},
		"a mark that jumps": func(t *testing.T, n *network, conn *wire.Conn) {
			call, err := conn.Open(write(1, file))
			if err != nil {
				t.Fatal(err)
			}
			call.Receive(context.Background())
			jump := write(7, file)
			jump.Acked = 1<<64 - 1
			fails(env.ErrUnknownOutcome, jump, write(8, file))(t, n, conn)
			if err := hearEnd(call); err == nil {
				t.Error("what is below the mark was not given up")
			}
			call.Close()
		},
		"large parameters": func(t *testing.T, n *network, conn *wire.Conn) {
			long := strings.Repeat("x", 3<<20)
			fails(fs.ErrNotExist, wire.Request{Method: methodMkdir, Op: 1, Params: json.RawMessage(`{"path":"file:///none/` + long + `"}`)})(t, n, conn)
			kept := n.server.sessions["s"].journal.entries[1]
			if size := len(kept.err.Error()); size > 100_000 {
				t.Errorf("an error of %d bytes is kept", size)
			}
		},
		"CONTROL of more than waits": func(t *testing.T, n *network, conn *wire.Conn) {
			held := &writers{Files: n.server.env.(*fake).Files, tb: t, write: make(chan struct{})}
			n.server.env.(*fake).Files = held
			call, err := conn.Open(write(1, file))
			if err != nil {
				t.Fatal(err)
			}
			call.Send(context.Background(), 0, []byte("x"))
			for i := 0; i < 1000 && err == nil; i++ {
				err = call.Control(map[string]any{"hole": 1, "x": strings.Repeat("x", 10_000)})
			}
			synctest.Wait()
			close(held.write)
			wantError(t, "a flood", hearEnd(call), wire.ErrCut)
			call.Close()
		},
		"more operations than may be": func(t *testing.T, n *network, conn *wire.Conn) {
			files := n.server.env.(*fake).Files.(*memory.Machine)
			release := make(chan struct{})
			files.Hook(func(context.Context, memory.Call) error { <-release; return nil })
			limited := make(chan bool, 5000)
			var calls sync.WaitGroup
			for i := range 5000 {
				calls.Go(func() {
					err := conn.Do(context.Background(), wire.Request{Method: methodMkdir, Op: uint64(i + 1), Params: json.RawMessage(fmt.Sprintf(`{"path":"file:///tmp/%d"}`, i))}, nil)
					if limited <- errors.Is(err, env.ErrLimit); err != nil && !errors.Is(err, env.ErrLimit) {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			close(release)
			calls.Wait()
			files.Hook(nil)
			over := 0
			for range 5000 {
				if <-limited {
					over++
				}
			}
			if over != 5000-maxJournal {
				t.Errorf("%d are over the limit", over)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				machine, files := newFiles()
				files.Tree(map[string]string{"/tmp/old": "text"})
				n := newNetwork(t, machine, ServerOptions{})
				defer n.close()
				other := n.client(ClientOptions{Session: "other"})
				defer other.Close()
				conn := n.raw("s", "h")
				attack(t, n, conn)
				for range 30 { // it may take a while until a call is known to have been cut alone
					if time.Sleep(time.Second); n.server.handles.Load() == 0 {
						break
					}
				}
				if n := n.server.handles.Load(); n != 0 {
					t.Errorf("%d handles are held", n)
				}
				if err := conn.Do(context.Background(), wire.Request{Method: "describe"}, nil); err != nil {
					t.Errorf("the connection afterwards: %v", err)
				}
				if _, err := env.WriteFile(context.Background(), other, below("g"), []byte("x"), env.WriteOptions{}); err != nil {
					t.Errorf("another client: %v", err)
				}
				conn.Close()
			})
		})
	}
}

// A handler of a client that was fenced does not get at the journal of the next one.
func TestFencedHandlerHasNoJournal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine, _ := newFiles()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		calls := make(chan *wire.Call)
		s := n.server.sessions
		methods["test.hold"] = func(_ context.Context, s *session, call *wire.Call) error {
			calls <- call
			_, _, err := s.enter(<-calls)
			return err
		}
		defer delete(methods, "test.hold")
		older := n.raw("s", "older")
		held, err := older.Open(wire.Request{Method: "test.hold", Op: 1})
		if err != nil {
			t.Fatal(err)
		}
		call := <-calls
		newer := n.raw("s", "newer")
		_, _, err = s["s"].enter(call)
		wantError(t, "a fenced call", err, env.ErrFenced)
		calls <- call
		held.Close()
		older.Close()
		newer.Close()
	})
}
