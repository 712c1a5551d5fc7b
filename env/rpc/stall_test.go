package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"waldo/env"
)

// Whoever gives up while the network is silent returns at once. It is no test for a bubble: yamux waits under its locks.
func TestGivingUpOnAStalledNetwork(t *testing.T) {
	tree := map[string]string{"/tmp/large": strings.Repeat("x", 8<<20)}
	for i := range 4000 {
		tree[fmt.Sprintf("/tmp/many/%s%d", strings.Repeat("x", 200), i)] = ""
	}
	for name, test := range map[string]struct {
		waiting int // reads and writes of the connection, when all that came is taken
		call    func(ctx context.Context, c *Client, began func()) error
	}{
		"list": {1, func(ctx context.Context, c *Client, began func()) (err error) {
			n := 0
			for _, err = range c.List(ctx, below("many")) {
				if n++; n == 1 {
					began()
				}
			}
			return err
		}},
		"read": {2, func(ctx context.Context, c *Client, began func()) error {
			reader, err := c.Read(ctx, below("large"), env.ReadOptions{})
			if err != nil {
				return err
			}
			defer reader.Close()
			for chunk, err := range reader.Chunks() {
				if err != nil {
					return err
				}
				if chunk.Offset == 0 {
					began()
				}
			}
			return nil
		}},
		"write": {1, func(ctx context.Context, c *Client, began func()) error {
			writer, err := c.Write(ctx, below("file"), env.WriteOptions{})
			if err != nil {
				return err
			}
			began()
			for b := make([]byte, 1<<20); err == nil; {
				_, err = writer.Write(b)
				clear(b) // it is the caller's again, which the race detector checks
			}
			return err
		}},
		"watch": {0, func(ctx context.Context, c *Client, began func()) error {
			watch, err := c.Watch(ctx, below("many"), env.WatchOptions{})
			if err != nil {
				return err
			}
			defer watch.Close()
			began()
			for _, err = range watch.Changes(ctx) {
			}
			return err
		}},
		"copy": {1, func(ctx context.Context, c *Client, began func()) error {
			began()
			return c.Copy(ctx, below("large"), below("copy"), env.CopyOptions{})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			machine, files := newFiles()
			files.Tree(tree)
			n := newNetwork(t, machine, ServerOptions{})
			defer n.close()
			c := n.client(ClientOptions{})
			defer c.Close()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			stalled := n.conns[0]
			go func() { ended <- test.call(ctx, c, func() { n.stall(true) }) }()
			stalled.AwaitStalled(test.waiting)
			gaveUp := time.Now()
			cancel()
			wantError(t, name, <-ended, context.Canceled)
			if took := time.Since(gaveUp); took > 3*time.Second { // a stalled connection lives for 45 s
				t.Errorf("it took %v", took)
			}
			n.stall(false)
		})
	}
}
