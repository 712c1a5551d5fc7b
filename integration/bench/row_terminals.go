//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"github.com/creack/pty"

	"waldo/env"
)

// sleepArgv does nothing, in a terminal.
var sleepArgv = []string{"sleep", "600"}

// crowd is what many terminals at once came to.
type crowd struct {
	took    float64 // to start them all, seconds
	threads float64 // of the server, while they run
	each    float64 // bytes that one makes the server grow by
}

func measureTerminals(ctx context.Context, b *bench) ([]line, error) {
	n := b.sized(500, 50)
	ours, err := b.crowdWaldo(ctx, n)
	if err != nil {
		return nil, err
	}
	raw, err := crowdRaw(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("raw: %w", err)
	}
	theirs, err := b.crowdCodex(ctx, n)
	if err != nil {
		b.leaveOut(ctx, err)
	}
	return []line{{
		What: fmt.Sprintf("start %d terminals", n), Unit: seconds,
		Waldo: ours.took, Raw: raw, RawIs: "local terminals", Codex: theirs.took,
		Must: bound{limit: 1},
	}, {
		What: "threads of the server then", Unit: count,
		Waldo: ours.threads, Codex: theirs.threads,
		Must: bound{limit: 29},
	}, {
		What: "resident in the server, each", Unit: bytesHeld,
		Waldo: ours.each, Codex: theirs.each,
		Must: bound{limit: 64 << 10},
	}}, nil
}

// gather starts one terminal and then n at once, and looks at the server before and after.
func gather(ctx context.Context, pid, n int, start func(context.Context) error) (c crowd, err error) {
	if err := start(ctx); err != nil {
		return c, err
	}
	if err := settle(ctx); err != nil {
		return c, err
	}
	before, err := resident(pid)
	if err != nil {
		return c, err
	}
	rate, err := atOnce(ctx, n, n, start)
	if err != nil {
		return c, err
	}
	c.took = float64(n) / rate[0]
	if err := settle(ctx); err != nil {
		return c, err
	}
	after, err := resident(pid)
	if err != nil {
		return c, err
	}
	c.each = (after - before) / float64(n)
	c.threads, err = threads(pid)
	return c, err
}

func (b *bench) crowdWaldo(ctx context.Context, n int) (c crowd, err error) {
	server, client, err := b.connectWaldo(ctx)
	if err != nil {
		return c, err
	}
	defer server.stop()
	defer client.Close()                              //nolint:errcheck // returns nil
	defer client.Goodbye(context.Background(), false) //nolint:errcheck // the server is stopped anyway
	return gather(ctx, server.pid(), n, func(ctx context.Context) error {
		_, err := client.Start(ctx, env.Command{Argv: sleepArgv, Terminal: &env.Size{Rows: 24, Columns: 80}})
		return err
	})
}

func (b *bench) crowdCodex(ctx context.Context, n int) (c crowd, err error) {
	peer, codex := b.connectCodex(ctx)
	if codex == nil {
		return c, nil
	}
	defer peer.stop()
	defer codex.close()
	return gather(ctx, peer.pid(), n, func(ctx context.Context) error {
		_, err := codex.start(ctx, true, nil, sleepArgv...)
		return err
	})
}

// crowdRaw is how long this process takes for as many terminals, in seconds.
func crowdRaw(ctx context.Context, n int) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var masters []*os.File
	var commands []*exec.Cmd
	defer func() {
		cancel()
		for i, c := range commands {
			c.Wait() //nolint:errcheck // it is killed
			masters[i].Close()
		}
	}()
	rate, err := atOnce(ctx, n, n, func(ctx context.Context) error {
		c := exec.CommandContext(ctx, sleepArgv[0], sleepArgv[1:]...)
		master, err := pty.Start(c)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		masters, commands = append(masters, master), append(commands, c)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return float64(n) / rate[0], nil
}
