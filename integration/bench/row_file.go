//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"waldo/env"
	"waldo/pathuri"
)

// codexBlock is the largest block that Codex takes, and codexBlocks how many its client here has under way.
const (
	codexBlock  = 1 << 20
	codexBlocks = 8
)

// measureFile measures one large file, down to a program of Go and up from one. It stays in the page cache, and
// nobody waits for the disk.
func measureFile(ctx context.Context, b *bench) ([]line, error) {
	size := int64(b.sized(1<<30, 128<<20))
	file, err := b.randomFile(size)
	if err != nil {
		return nil, err
	}
	defer os.Remove(file) //nolint:errcheck // its directory goes too
	target := filepath.Join(b.dir, "target")
	defer os.Remove(target) //nolint:errcheck // as above
	from, err := pathuri.FromNative(file, pathuri.Posix)
	if err != nil {
		return nil, err
	}
	to, err := pathuri.FromNative(target, pathuri.Posix)
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

	down := sides{
		waldo: rate(size, func(ctx context.Context) (got int64, err error) {
			reader, err := client.Read(ctx, from, env.ReadOptions{})
			if err != nil {
				return 0, err
			}
			defer reader.Close() //nolint:errcheck // returns nil
			for chunk, err := range reader.Chunks() {
				if err != nil {
					return got, err
				}
				got += int64(len(chunk.Data))
			}
			return got, nil
		}),
		raw: rate(size, func(context.Context) (int64, error) { return size, limit.bulk(size) }),
	}
	block := make([]byte, codexBlock)
	up := sides{
		waldo: rate(size, func(ctx context.Context) (int64, error) {
			writer, err := client.Write(ctx, to, env.WriteOptions{Unsynced: true})
			if err != nil {
				return 0, err
			}
			defer writer.Close() //nolint:errcheck // Commit has said what counts
			for range size / codexBlock {
				if _, err := writer.Write(block); err != nil {
					return 0, err
				}
			}
			written, err := writer.Commit()
			return written.Info.Size, err
		}),
		raw: rate(size, func(context.Context) (n int64, err error) {
			f, err := os.Create(target)
			if err != nil {
				return 0, err
			}
			for range size / codexBlock {
				wrote, err := f.Write(block)
				n += int64(wrote)
				if err != nil {
					return n, errors.Join(err, f.Close())
				}
			}
			return n, f.Close()
		}),
	}
	if peer, codex := b.connectCodex(ctx); codex != nil {
		defer peer.stop()
		defer codex.close()
		part := min(size, 256<<20) // it takes long
		down.codex = rate(part, func(ctx context.Context) (got int64, err error) {
			err = codex.blocks(ctx, from, "read", part, func(offset int64) (codexAnswer, error) {
				return codex.send(ctx, "fs/readBlock", map[string]any{"handleId": "f", "offset": offset, "len": codexBlock})
			}, func(answer codexAnswer) error {
				var read struct {
					Chunk []byte `json:"chunk"`
				}
				err := codex.wait(ctx, answer, &read)
				got += int64(len(read.Chunk))
				return err
			})
			return got, err
		})
		up.codex = rate(part, func(ctx context.Context) (got int64, err error) {
			err = codex.blocks(ctx, to, "replace", part, func(offset int64) (codexAnswer, error) {
				return codex.send(ctx, "fs/writeBlock", map[string]any{"handleId": "f", "offset": offset, "chunk": block})
			}, func(answer codexAnswer) error {
				got += codexBlock
				return codex.wait(ctx, answer, nil)
			})
			return got, err
		})
	}
	rounds := b.sized(3, 1)
	downs, err := b.compare(ctx, rounds, down)
	if err != nil {
		return nil, err
	}
	ups, err := b.compare(ctx, rounds, up)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d MiB file", size>>20)
	return []line{{
		What: what + " down", Unit: bytesPerSecond,
		Waldo: median(downs.waldo), Raw: median(downs.raw), RawIs: "bare yamux", Codex: median(downs.codex),
		Must: bound{ofCodex, 10}, Aim: bound{ofRaw, 0.5},
	}, {
		What: what + " up", Unit: bytesPerSecond,
		Waldo: median(ups.waldo), Raw: median(ups.raw), RawIs: "os.File.Write", Codex: median(ups.codex),
		Must: bound{ofCodex, 10},
	}}, nil
}

// blocks opens a file of the peer's, and moves size bytes a block at a time, several under way.
func (c *codexClient) blocks(ctx context.Context, file pathuri.URI, mode string, size int64,
	begin func(offset int64) (codexAnswer, error), end func(codexAnswer) error,
) error {
	if err := c.call(ctx, "fs/open", map[string]any{"handleId": "f", "path": file, "mode": mode}, nil); err != nil {
		return err
	}
	var under []codexAnswer
	for offset := int64(0); offset < size || len(under) > 0; {
		if offset < size && len(under) < codexBlocks {
			answer, err := begin(offset)
			if err != nil {
				return err
			}
			under = append(under, answer)
			offset += codexBlock
			continue
		}
		if err := end(under[0]); err != nil {
			return err
		}
		under = under[1:]
	}
	return c.call(ctx, "fs/close", map[string]any{"handleId": "f"}, nil)
}

// measureDirectory measures a large directory, its entries described.
func measureDirectory(ctx context.Context, b *bench) ([]line, error) {
	entries := b.sized(50_000, 5000)
	directory := filepath.Join(b.dir, "directory")
	if err := os.Mkdir(directory, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory) //nolint:errcheck // its directory goes too
	for i := range entries {
		if err := os.WriteFile(filepath.Join(directory, fmt.Sprintf("entry-%06d.txt", i)), nil, 0o600); err != nil {
			return nil, err
		}
	}
	uri, err := pathuri.FromNative(directory, pathuri.Posix)
	if err != nil {
		return nil, err
	}
	server, client, err := b.connectWaldo(ctx)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	defer client.Close() //nolint:errcheck // returns nil
	times := func(list func(context.Context) (int, error)) func(context.Context) ([]float64, error) {
		return func(ctx context.Context) ([]float64, error) {
			return series(ctx, b.sized(10, 3), func(ctx context.Context) error {
				n, err := list(ctx)
				if err == nil && n != entries {
					err = fmt.Errorf("%d entries instead of %d", n, entries)
				}
				return err
			})
		}
	}
	of := sides{
		waldo: times(func(ctx context.Context) (n int, err error) {
			for entry, err := range client.List(ctx, uri) {
				if err = errors.Join(err, entry.Err); err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		}),
		raw: times(func(context.Context) (n int, err error) {
			list, err := os.ReadDir(directory)
			for _, entry := range list {
				if _, err := entry.Info(); err != nil {
					return n, err
				}
				n++
			}
			return n, err
		}),
	}
	if peer, codex := b.connectCodex(ctx); codex != nil {
		defer peer.stop()
		defer codex.close()
		of.codex = times(func(ctx context.Context) (int, error) {
			var list struct {
				Entries []struct {
					FileName string `json:"fileName"`
				} `json:"entries"`
			}
			err := codex.call(ctx, "fs/readDirectory", map[string]any{"path": uri}, &list)
			return len(list.Entries), err
		})
	}
	got, err := b.compare(ctx, 1, of)
	if err != nil {
		return nil, err
	}
	return []line{{
		What: fmt.Sprintf("directory of %d entries, described", entries), Unit: seconds,
		Waldo: median(got.waldo), Raw: median(got.raw), RawIs: "os.ReadDir and Info", Codex: median(got.codex),
	}}, nil
}
