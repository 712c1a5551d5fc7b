//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"waldo/env"
)

// measureStdout measures a file that comes through the standard output of cat: to the end of a pipe behind the
// app-server's run command, and to a program of Go.
func measureStdout(ctx context.Context, b *bench) ([]line, error) {
	size := int64(b.sized(1<<30, 128<<20))
	file, err := b.randomFile(size)
	if err != nil {
		return nil, err
	}
	defer os.Remove(file) //nolint:errcheck // its directory goes too
	app, err := b.build(ctx, "cmd/app-server")
	if err != nil {
		return nil, err
	}
	server, client, err := b.connectWaldo(ctx)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	defer client.Close() //nolint:errcheck // returns nil
	peer, codex := b.connectCodex(ctx)
	if codex != nil {
		defer peer.stop()
		defer codex.close()
	}
	limit, err := b.startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer limit.stop()

	throughRun := sides{
		waldo: rate(size, func(ctx context.Context) (int64, error) {
			c := exec.CommandContext(ctx, app, "run", "-e", server.url, "--", "cat", file)
			c.Env = append(os.Environ(), "WALDO_HOME="+server.home)
			return output(c)
		}),
		raw: rate(size, func(ctx context.Context) (int64, error) {
			return output(exec.CommandContext(ctx, "cat", file))
		}),
	}
	if codex != nil {
		throughRun.codex = rate(size, func(ctx context.Context) (got int64, err error) {
			p, err := codex.start(ctx, false, func(chunk []byte) { got += int64(len(chunk)) }, "cat", file)
			if err != nil {
				return 0, err
			}
			return got, p.awaitClosed(ctx)
		})
	}
	throughClient := sides{
		waldo: rate(size, func(ctx context.Context) (got int64, err error) {
			p, err := client.Start(ctx, env.Command{Argv: []string{"cat", file}})
			if err != nil {
				return 0, err
			}
			err = finish(ctx, p, func(chunk []byte) { got += int64(len(chunk)) })
			return got, err
		}),
		raw: rate(size, func(context.Context) (int64, error) { return size, limit.bulk(size) }),
	}
	rounds := b.sized(3, 1)
	run, err := b.compare(ctx, rounds, throughRun)
	if err != nil {
		return nil, err
	}
	direct, err := b.compare(ctx, rounds, throughClient)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d MiB", size>>20)
	return []line{{
		What: what + " through app-server run", Unit: bytesPerSecond,
		Waldo: median(run.waldo), Raw: median(run.raw), RawIs: "os/exec", Codex: median(run.codex),
		Must: bound{ofCodex, 4}, Aim: bound{ofCodex, 6},
	}, {
		What: what + " through the Go client", Unit: bytesPerSecond,
		Waldo: median(direct.waldo), Raw: median(direct.raw), RawIs: "bare yamux", Codex: median(run.codex),
	}}, nil
}

// rate makes a measurement in bytes a second of something that moves size bytes.
func rate(size int64, move func(context.Context) (int64, error)) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		began := time.Now()
		got, err := move(ctx)
		took := time.Since(began).Seconds()
		if err == nil && got != size {
			err = fmt.Errorf("%d bytes came instead of %d", got, size)
		}
		return []float64{float64(size) / took}, err
	}
}

// randomFile makes a file that cannot be compressed. It stays in the page cache, so no disk is measured.
func (b *bench) randomFile(size int64) (string, error) {
	f, err := os.Create(filepath.Join(b.dir, "random"))
	if err != nil {
		return "", err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err = io.CopyN(w, rand.NewChaCha8([32]byte{1}), size); err == nil {
		err = w.Flush()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return f.Name(), err
}
