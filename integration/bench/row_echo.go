//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/creack/pty"

	"waldo/env"
)

// echoArgv is a terminal that gives back each byte as it comes, and a first one when it is ready to.
var echoArgv = []string{"sh", "-c", "stty raw -echo; printf R; exec cat"}

// bulkArgv writes as fast as it is read.
var bulkArgv = []string{"cat", "/dev/zero"}

const (
	echoWarmUp = 10
	echoWithin = 25 * time.Second
)

// echoes are what typing came to while the bulk stream was read.
type echoes struct {
	waits []float64 // from a byte typed to its echo, seconds
	bulk  float64   // bytes a second
}

// typist types at a terminal. echoed gets a token for each byte that comes back, bulk counts what the stream beside
// it has brought.
type typist struct {
	press  func(context.Context, []byte) error
	echoed chan struct{}
	bulk   atomic.Int64
}

func newTypist() *typist { return &typist{echoed: make(chan struct{}, 1024)} }

// shown takes output of the terminal.
func (t *typist) shown(output []byte) {
	for range output {
		t.echoed <- struct{}{}
	}
}

func (t *typist) await(ctx context.Context) error {
	select {
	case <-t.echoed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run types n bytes, each after a pause, as a person does only in being no metronome.
func (t *typist) run(ctx context.Context, n int) (e echoes, err error) {
	if err := t.await(ctx); err != nil { // it is ready
		return e, fmt.Errorf("the terminal did not start: %w", err)
	}
	began, bulk := time.Now(), t.bulk.Load()
	for i := range n + echoWarmUp {
		time.Sleep(rand.N(4 * time.Millisecond))
		start := time.Now()
		if err := t.press(ctx, []byte{'x'}); err != nil {
			return e, err
		}
		if err := t.await(ctx); err != nil {
			return e, err
		}
		if i >= echoWarmUp {
			e.waits = append(e.waits, time.Since(start).Seconds())
		}
		if time.Since(began) > echoWithin && len(e.waits) > 20 {
			break
		}
	}
	e.bulk = float64(t.bulk.Load()-bulk) / time.Since(began).Seconds()
	return e, nil
}

func measureEcho(ctx context.Context, b *bench) ([]line, error) {
	n := b.sized(1000, 100)
	ours, err := b.echoWaldo(ctx, n)
	if err != nil {
		return nil, err
	}
	raw, err := echoRaw(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("raw: %w", err)
	}
	theirs, err := b.echoCodex(ctx, n)
	if err != nil {
		b.leaveOut(ctx, err)
	}
	return []line{{
		What: "echo, median", Unit: seconds,
		Waldo: median(ours.waits), Raw: median(raw.waits), RawIs: "local terminal", Codex: median(theirs.waits),
	}, {
		What: "echo, 99 of 100", Unit: seconds,
		Waldo: quantile(ours.waits, 0.99), Raw: quantile(raw.waits, 0.99), RawIs: "local terminal", Codex: quantile(theirs.waits, 0.99),
		Must: bound{limit: 5e-3}, Aim: bound{limit: 2e-3},
	}, {
		What: "the bulk stream meanwhile", Unit: bytesPerSecond,
		Waldo: ours.bulk, Raw: raw.bulk, RawIs: "local pipe", Codex: theirs.bulk,
	}}, nil
}

func (b *bench) echoWaldo(ctx context.Context, n int) (e echoes, err error) {
	server, client, err := b.connectWaldo(ctx)
	if err != nil {
		return e, err
	}
	defer server.stop()
	defer client.Close()                              //nolint:errcheck // returns nil
	defer client.Goodbye(context.Background(), false) //nolint:errcheck // the server is stopped anyway
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := newTypist()
	bulk, err := client.Start(ctx, env.Command{Argv: bulkArgv})
	if err != nil {
		return e, err
	}
	go finish(ctx, bulk, func(chunk []byte) { t.bulk.Add(int64(len(chunk))) }) //nolint:errcheck // it is broken off
	terminal, err := client.Start(ctx, env.Command{Argv: echoArgv, Terminal: &env.Size{Rows: 24, Columns: 80}})
	if err != nil {
		return e, err
	}
	go finish(ctx, terminal, t.shown) //nolint:errcheck // it is broken off
	t.press = func(ctx context.Context, p []byte) error {
		_, err := terminal.Write(ctx, p)
		return err
	}
	return t.run(ctx, n)
}

func (b *bench) echoCodex(ctx context.Context, n int) (e echoes, err error) {
	peer, codex := b.connectCodex(ctx)
	if codex == nil {
		return e, nil
	}
	defer peer.stop()
	defer codex.close()
	t := newTypist()
	if _, err := codex.start(ctx, false, func(chunk []byte) { t.bulk.Add(int64(len(chunk))) }, bulkArgv...); err != nil {
		return e, err
	}
	terminal, err := codex.start(ctx, true, t.shown, echoArgv...)
	if err != nil {
		return e, err
	}
	t.press = terminal.write
	return t.run(ctx, n)
}

// echoRaw is the same with a terminal and a pipe of this process, and nothing between.
func echoRaw(ctx context.Context, n int) (e echoes, err error) {
	ctx, cancel := context.WithCancel(ctx)
	bulk := exec.CommandContext(ctx, bulkArgv[0], bulkArgv[1:]...)
	terminal := exec.CommandContext(ctx, echoArgv[0], echoArgv[1:]...)
	t := newTypist()
	stdout, err := bulk.StdoutPipe()
	if err != nil {
		cancel()
		return e, err
	}
	if err := bulk.Start(); err != nil {
		cancel()
		return e, err
	}
	defer bulk.Wait() //nolint:errcheck // it is killed
	defer cancel()
	go read(stdout, func(p []byte) { t.bulk.Add(int64(len(p))) })
	master, err := pty.Start(terminal)
	if err != nil {
		return e, err
	}
	defer terminal.Wait() //nolint:errcheck // it is killed
	defer cancel()
	defer master.Close()
	go read(master, t.shown)
	t.press = func(_ context.Context, p []byte) error {
		_, err := master.Write(p)
		return err
	}
	return t.run(ctx, n)
}

// read gives what can be read to take, until there is an error.
func read(r io.Reader, take func([]byte)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := r.Read(buffer)
		take(buffer[:n])
		if err != nil {
			return
		}
	}
}
