package rpc

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

var root, _ = pathuri.Parse("file:///")

func start(t *testing.T, c *Client, id string) env.Process {
	t.Helper()
	p, err := c.Start(context.Background(), env.Command{ID: id, Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func wantError(t *testing.T, what string, err error, wants ...error) {
	t.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

func TestLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine := newFake()
		n := newNetwork(t, machine, ServerOptions{DefaultLease: time.Minute})
		defer n.close()
		c := n.client(ClientOptions{Session: "s"})
		defer c.Close()
		watcher := n.client(ClientOptions{Session: "w"})
		p := start(t, c, "p")

		// While the client is away the time left is told; it comes back in time.
		n.mu.Lock()
		n.down = true
		n.mu.Unlock()
		n.conns[0].Close()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		list, err := watcher.Processes(context.Background())
		if err != nil || len(list) != 1 || list[0].ID != "s/p" || list[0].LeaseLeft <= 29*time.Second || list[0].LeaseLeft > 30*time.Second {
			t.Errorf("listed %+v, %v", list, err)
		}
		watcher.Close()
		n.up()
		if _, err := c.Stat(context.Background(), root, true); err != nil {
			t.Errorf("call after the return: %v", err)
		}
		list, err = c.Processes(context.Background())
		if err != nil || list[0].ID != "p" || list[0].LeaseLeft != 0 {
			t.Errorf("listed %+v, %v", list, err)
		}

		// It does not come back in time.
		n.cut(true)
		<-machine.processes["s/p"].ended
		n.up()
		<-p.Exited()
		_, err = p.Exit()
		wantError(t, "exit", err, env.ErrExpired)
		_, err = c.Start(context.Background(), env.Command{ID: "q", Argv: []string{"x"}})
		wantError(t, "start", err, env.ErrExpired)
		if machine.starts != 1 {
			t.Errorf("%d starts", machine.starts)
		}
	})
}

func TestLeaseIsClamped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t, newFake(), ServerOptions{MaxLease: time.Minute})
		defer n.close()
		for wanted, granted := range map[time.Duration]time.Duration{
			0:           time.Minute, // the default is longer than the longest
			time.Second: time.Second, time.Hour: time.Minute, -time.Second: time.Minute, 1<<63 - 1: time.Minute,
		} {
			c := n.client(ClientOptions{Lease: wanted})
			if got := c.Connection().Lease; got != granted {
				t.Errorf("lease of %v for %v, want %v", got, wanted, granted)
			}
			c.Close()
		}
	})
}

func TestSessionNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t, newFake(), ServerOptions{})
		defer n.close()
		for _, bad := range []string{"a/b", "a\x00", strings.Repeat("x", 129)} {
			c, err := Dial(context.Background(), ClientOptions{Dial: n.dial, Session: bad})
			if err != nil {
				t.Fatal(err)
			}
			wantError(t, bad, c.Ready(context.Background()), env.ErrInvalid)
			c.Close()
		}
		// Processes of other sessions are reached as SESSION/ID, and one's own come first.
		a, b := n.client(ClientOptions{Session: "a"}), n.client(ClientOptions{Session: "b"})
		defer a.Close()
		defer b.Close()
		pa := start(t, a, "p")
		if got, err := b.Attach(context.Background(), "a/p", env.Attach{}); err != nil || got.Pid() != pa.Pid() || got.ID() != "a/p" {
			t.Errorf("attach to a/p: %v", err)
		}
		_, err := b.Attach(context.Background(), "p", env.Attach{})
		wantError(t, "attach to p", err, env.ErrUnknownProcess)
		pb := start(t, b, "a/p")
		if pb.Pid() == pa.Pid() {
			t.Error("a start reached into another session")
		}
		if got, err := b.Attach(context.Background(), "a/p", env.Attach{}); err != nil || got.Pid() != pb.Pid() {
			t.Errorf("attach to one's own a/p: %v", err)
		}
	})
}

func TestGoodbye(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine := newFake()
		n := newNetwork(t, machine, ServerOptions{DefaultLease: time.Minute})
		defer n.close()
		keeps, ends := n.client(ClientOptions{Session: "keeps"}), n.client(ClientOptions{Session: "ends"})
		start(t, keeps, "p")
		p := start(t, ends, "p")
		if err := errors.Join(keeps.Goodbye(context.Background(), true), keeps.Close()); err != nil {
			t.Error(err)
		}
		if err := ends.Goodbye(context.Background(), false); err != nil {
			t.Error(err)
		}
		<-p.Exited()
		_, err := ends.Start(context.Background(), env.Command{ID: "late", Argv: []string{"x"}})
		wantError(t, "start after goodbye", err, env.ErrExpired)
		// A goodbye whose answer was lost is made again, and finds the session gone.
		n.cut(false)
		if err := ends.Goodbye(context.Background(), false); err != nil {
			t.Error(err)
		}
		ends.Close()
		begin := time.Now()
		<-machine.processes["keeps/p"].ended
		if left := time.Since(begin); left < 55*time.Second || left > time.Minute {
			t.Errorf("kept for %v", left)
		}
	})
}

func TestServerRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine := newFake()
		machine.block = make(chan struct{})
		n := newNetwork(t, machine, ServerOptions{})
		c := n.client(ClientOptions{})
		defer c.Close()
		p, q := start(t, c, "p"), start(t, c, "q")
		signal := make(chan error)
		go func() { signal <- c.Signal(context.Background(), "p", "INT") }()
		stat := make(chan error)
		go func() {
			_, err := c.Stat(context.Background(), root, true)
			stat <- err
		}()
		synctest.Wait()
		before, again := n.server, newFake()
		n.serve(again, ServerOptions{})
		n.cut(false)
		wantError(t, "signal", <-signal, env.ErrUnknownOutcome, env.ErrRestarted)
		wantError(t, "stat", <-stat, env.ErrRestarted)
		for _, p := range []env.Process{p, q} {
			<-p.Exited()
			_, err := p.Exit()
			wantError(t, "exit", err, env.ErrRestarted)
			for _, err = range p.Output(context.Background()) {
			}
			wantError(t, "output", err, env.ErrRestarted)
		}
		err := c.Signal(context.Background(), "p", "INT")
		wantError(t, "later signal", err, env.ErrRestarted)
		if errors.Is(err, env.ErrUnknownOutcome) {
			t.Errorf("a signal that was never sent: %v", err)
		}
		if again.starts != 0 || again.signalled() != 0 || machine.signalled() != 1 {
			t.Error("something ran on the new server, or twice")
		}
		close(machine.block)
		before.Close()
		n.close()
	})
}

// Two clients of one session: the newer one has it, and the older one is told so and stays away.
func TestTakeover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine := newFake()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		older := n.client(ClientOptions{Session: "s"})
		defer older.Close()
		p := start(t, older, "p")
		if err := older.Signal(context.Background(), "p", "HUP"); err != nil {
			t.Fatal(err)
		}
		newer := n.client(ClientOptions{Session: "s"})
		defer newer.Close()
		// Its operations are its own, whatever the older one's ids were.
		if err := newer.Signal(context.Background(), "p", "HUP"); err != nil || machine.signalled() != 2 {
			t.Errorf("%d signals, %v", machine.signalled(), err)
		}
		<-p.Exited()
		_, err := p.Exit()
		wantError(t, "the older client", err, env.ErrFenced)
		if !strings.Contains(err.Error(), "another client") {
			t.Errorf("no reason in %q", err)
		}
		_, err = older.Processes(context.Background())
		wantError(t, "the older client", err, env.ErrFenced)
		time.Sleep(time.Hour)
		if n.dialled() != 3 {
			t.Errorf("%d connections, want one each and one to learn of it", n.dialled())
		}
		if got, err := newer.Attach(context.Background(), "p", env.Attach{}); err != nil || got.Pid() != p.Pid() {
			t.Errorf("the newer client: %v", err)
		}
	})
}

// Nothing of a connection may go on once a newer one acts, however many came between.
func TestFencedBeforeTheNextActs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine := newFake()
		machine.block = make(chan struct{})
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		c := n.client(ClientOptions{})
		defer c.Close()
		sync := make(chan error)
		go func() { sync <- c.Sync(context.Background(), root) }() // holds the first connection up
		synctest.Wait()
		n.cut(false)
		synctest.Wait()
		n.cut(false)
		listed := make(chan struct{})
		go func() {
			defer close(listed)
			c.Processes(context.Background())
		}()
		synctest.Wait()
		select {
		case <-listed:
			t.Error("a call was served while an older connection acted")
		default:
		}
		close(machine.block)
		<-listed
		if err := <-sync; err != nil {
			t.Error(err)
		}
	})
}

func TestAwaitIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine := newFake()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		begin := time.Now()
		await := func(want time.Duration) {
			t.Helper()
			if err := n.server.AwaitIdle(context.Background(), time.Minute); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took < want || took > want+time.Second {
				t.Errorf("idle after %v, want %v", took, want)
			}
			begin = time.Now()
		}
		await(time.Minute)
		go func() { // a client for half an hour, from just before the end
			time.Sleep(59 * time.Second)
			c := n.client(ClientOptions{Lease: time.Hour})
			start(t, c, "p")
			time.Sleep(30 * time.Minute)
			c.Close()
			time.Sleep(10 * time.Minute) // its process for longer
			closeOnce(machine.processes[c.session+"/p"].ended)
		}()
		await(59*time.Second + 41*time.Minute)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		wantError(t, "await", n.server.AwaitIdle(ctx, time.Minute), context.DeadlineExceeded)
	})
}
