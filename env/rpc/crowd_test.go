package rpc

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"waldo/env"
)

// Pings, output, its watchers and small calls share one connection; each frame of theirs stays whole.
func TestCrowdOnOneConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, ServerOptions{})
	client := r.dial(t, ClientOptions{})
	if err := client.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var pinger, tasks sync.WaitGroup
	pinger.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			client.link.mu.Lock()
			conn := client.link.conn
			client.link.mu.Unlock()
			if conn != nil {
				conn.Ping()
			}
		}
	})
	const processes, lines, calls = 50, 3000, 1000
	follow := func(i int, p env.Process) {
		defer p.Close()
		var text strings.Builder
		lost := int64(0)
		for chunk, err := range p.Output(ctx) {
			if err != nil {
				t.Errorf("%d: %v", i, err)
				return
			}
			lost += chunk.Lost
			text.Write(chunk.Data)
		}
		line := fmt.Sprintf("line of %d\n", i)
		if whole := int64(lines * len(line)); int64(text.Len())+lost != whole || lost > 0 && p.Owner() {
			t.Errorf("%d: %d bytes and %d lost, want %d", i, text.Len(), lost, whole)
		}
		if lost == 0 && text.String() != strings.Repeat(line, lines) {
			t.Errorf("%d: other text", i)
		}
	}
	for i := range processes {
		tasks.Go(func() {
			p, err := client.Start(ctx, env.Command{Argv: []string{"sh", "-c", fmt.Sprintf("yes line of %d | head -n %d", i, lines)}})
			if err != nil {
				t.Error(err)
				return
			}
			watcher, err := client.Attach(ctx, p.ID(), env.Attach{Watch: true})
			if err != nil {
				t.Error(err)
				return
			}
			tasks.Go(func() { follow(i, watcher) })
			follow(i, p)
		})
	}
	for range 10 {
		tasks.Go(func() {
			for range calls / 10 {
				if _, err := client.Stat(ctx, root, true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	tasks.Wait()
	stop()
	pinger.Wait()
	if n := r.proxy.Accepted(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// Wherever the connection is cut while a call that has an effect is made, the effect is there once.
func TestCutAtEveryByte(t *testing.T) {
	calls := []struct {
		name   string
		call   func(*Client) error
		effect func(*fake) int
	}{
		{"start", func(c *Client) error {
			p, err := c.Start(context.Background(), env.Command{ID: "p", Argv: []string{"x"}})
			if err == nil {
				p.Close()
			}
			return err
		}, func(f *fake) int { f.mu.Lock(); defer f.mu.Unlock(); return f.starts }},
		{"signal", func(c *Client) error { return c.Signal(context.Background(), "p", "HUP") }, (*fake).signalled},
	}
	for _, test := range calls {
		for _, way := range []string{"read", "write"} {
			t.Run(test.name+" "+way, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					at := int64(0)
					for cutAt(t, way, at, test.call, test.effect) {
						at++
					}
					if at < 20 { // even an answer is longer
						t.Errorf("it was over after %d bytes", at)
					}
				})
			})
		}
	}
}

// cutAt makes a call on a connection that is cut once it has read or written at bytes of it, and tells whether it
// came to that.
func cutAt(t *testing.T, way string, at int64, call func(*Client) error, effect func(*fake) int) bool {
	machine := newFake()
	n := newNetwork(t, machine, ServerOptions{})
	defer n.close()
	c := n.client(ClientOptions{})
	defer c.Close()
	synctest.Wait() // nothing else is on its way
	n.mu.Lock()
	faulty := n.conns[0]
	n.mu.Unlock()
	read, written := faulty.Count()
	if way == "read" {
		faulty.CutRead(at)
	} else {
		faulty.CutWrite(at)
	}
	if err := call(c); err != nil {
		t.Errorf("cut after %d bytes: %v", at, err)
	}
	if got := effect(machine); got != 1 {
		t.Errorf("cut after %d bytes: it was done %d times", at, got)
	}
	readNow, writtenNow := faulty.Count()
	if way == "read" {
		return readNow-read >= at
	}
	return writtenNow-written >= at
}
