//go:build linux

package main

import (
	"context"
	"os"
	"path/filepath"

	"waldo/pathuri"
)

// measureStat measures the smallest useful call.
func measureStat(ctx context.Context, b *bench) ([]line, error) {
	file := filepath.Join(b.dir, "small")
	if err := os.WriteFile(file, []byte("small\n"), 0o600); err != nil {
		return nil, err
	}
	uri, err := pathuri.FromNative(file, pathuri.Posix)
	if err != nil {
		return nil, err
	}
	server, client, err := b.connectWaldo(ctx)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	defer client.Close() //nolint:errcheck // returns nil
	limit, err := b.startBare(ctx)
	if err != nil {
		return nil, err
	}
	defer limit.stop()
	bareCall, err := limit.calls()
	if err != nil {
		return nil, err
	}
	inTurn := func(do func(context.Context) error) func(context.Context) ([]float64, error) {
		return func(ctx context.Context) ([]float64, error) { return series(ctx, b.sized(3000, 300), do) }
	}
	of := sides{
		waldo: inTurn(func(ctx context.Context) error {
			_, err := client.Stat(ctx, uri, true)
			return err
		}),
		raw: inTurn(func(context.Context) error { return bareCall() }),
	}
	peer, codex := b.connectCodex(ctx)
	if codex != nil {
		defer peer.stop()
		defer codex.close()
		params := map[string]any{"path": uri.String()}
		of.codex = inTurn(func(ctx context.Context) error {
			return codex.call(ctx, "fs/getMetadata", params, nil)
		})
	}
	got, err := b.compare(ctx, b.sized(3, 2), of)
	if err != nil {
		return nil, err
	}
	local, err := series(ctx, b.sized(3000, 300), func(context.Context) error {
		_, err := os.Stat(file)
		return err
	})
	if err != nil {
		return nil, err
	}
	return []line{{
		What: "metadata of a small file, median", Unit: seconds,
		Waldo: median(got.waldo), Raw: median(got.raw), RawIs: "bare yamux + stat", Codex: median(got.codex),
		Must: bound{ofCodex, 1.2}, Aim: bound{ofCodex, 1},
	}, {
		What: "the same, 99 of 100", Unit: seconds,
		Waldo: quantile(got.waldo, 0.99), Raw: quantile(got.raw, 0.99), RawIs: "bare yamux + stat", Codex: quantile(got.codex, 0.99),
	}, {
		What: "the same against os.Stat, median", Unit: seconds,
		Waldo: median(got.waldo), Raw: median(local), RawIs: "os.Stat", Codex: median(got.codex),
	}}, nil
}
