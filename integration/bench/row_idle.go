//go:build linux

package main

import (
	"context"
	"os"
	"time"
)

// measureIdle measures what lies there when nothing is done: a server with one client that is silent, and the files.
func measureIdle(ctx context.Context, b *bench) ([]line, error) {
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
	if err := settle(ctx); err != nil {
		return nil, err
	}
	memory := line{What: "resident, one silent client", Unit: bytesHeld, Must: bound{limit: 25e6}}
	if memory.Waldo, err = resident(server.pid()); err != nil {
		return nil, err
	}
	if codex != nil {
		if memory.Codex, err = resident(peer.pid()); err != nil {
			return nil, err
		}
	}
	lines := []line{memory}
	for _, pkg := range []string{"cmd/exec-server", "cmd/app-server"} {
		binary := line{What: "binary of " + pkg[len("cmd/"):], Unit: bytesHeld, Must: bound{limit: 20e6}, Codex: fileSize(b.codex)}
		path, err := b.build(ctx, pkg)
		if err != nil {
			return lines, err
		}
		binary.Waldo = fileSize(path)
		lines = append(lines, binary)
	}
	return lines, nil
}

// settle gives a server a moment to become quiet.
func settle(ctx context.Context) error {
	select {
	case <-time.After(500 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func fileSize(path string) float64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return float64(info.Size())
}
