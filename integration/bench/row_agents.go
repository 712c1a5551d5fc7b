//go:build linux

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"waldo/env/agentsmd"
	"waldo/wire/listen"
)

// agentsDepth is how deep the directory lies below its project's root.
const agentsDepth = 12

// measureAgents measures, over a network of 50 ms round trip and on a connection that is there, how long it takes to
// find and read the instructions that count in a deep directory. Its unit is the round trip.
func measureAgents(ctx context.Context, b *bench) ([]line, error) {
	root := filepath.Join(b.dir, "project")
	directory := root
	var directories []string
	for i := range agentsDepth {
		directories = append(directories, directory)
		if err := os.MkdirAll(directory, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(directory, "AGENTS.md"), fmt.Appendf(nil, "Rule %d.\n", i), 0o600); err != nil {
			return nil, err
		}
		directory = filepath.Join(directory, fmt.Sprintf("below%d", i))
	}
	defer os.RemoveAll(root) //nolint:errcheck // its directory goes too
	if err := os.Mkdir(filepath.Join(root, ".git"), 0o700); err != nil {
		return nil, err
	}
	deepest := mustURI(directories[agentsDepth-1])

	server, err := b.startWaldo(ctx, "tcp://127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer server.stop()
	address, err := url.Parse(server.url)
	if err != nil {
		return nil, err
	}
	slowed, stop, err := b.slow(ctx, address.Host)
	if err != nil {
		return nil, err
	}
	defer stop()
	client, err := dialWaldo(ctx, "tcp://"+slowed, listen.DialOptions{TokenFile: server.tokenFile()})
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // returns nil
	if err := client.Ready(ctx); err != nil {
		return nil, err
	}
	inTrips := func(find func(context.Context) (int, error)) func(context.Context) ([]float64, error) {
		return func(ctx context.Context) ([]float64, error) {
			times, err := series(ctx, b.sized(15, 3), func(ctx context.Context) error {
				n, err := find(ctx)
				if err == nil && n != agentsDepth {
					err = fmt.Errorf("%d files instead of %d", n, agentsDepth)
				}
				return err
			})
			for i := range times {
				times[i] /= trip.Seconds()
			}
			return times, err
		}
	}
	of := sides{waldo: inTrips(func(ctx context.Context) (int, error) {
		project, err := agentsmd.Discover(ctx, client, agentsmd.Options{
			Environment: "box", Directory: deepest, RootMarkers: []string{".git"}, MaxBytes: agentsmd.DefaultMaxBytes,
		})
		return len(project.Docs), err
	})}
	if peer := b.startCodex(ctx); peer != nil {
		defer peer.stop()
		find, stop, err := b.codexAgents(ctx, peer, directories)
		if err != nil {
			b.leaveOut(ctx, err)
		} else {
			defer stop()
			of.codex = inTrips(find)
		}
	}
	got, err := b.compare(ctx, 1, of)
	if err != nil {
		return nil, err
	}
	return []line{{
		What: fmt.Sprintf("AGENTS.md, %d directories deep", agentsDepth), Unit: trips,
		Waldo: median(got.waldo), Codex: median(got.codex), Must: bound{limit: 2 + 0.2}, // two, and the work
	}}, nil
}

// codexAgents asks Codex for the same as its own client does: what is there of all directories at once, then the files.
func (b *bench) codexAgents(ctx context.Context, peer *codexServer, directories []string) (find func(context.Context) (int, error), stop func(), err error) {
	address, err := url.Parse(peer.url)
	if err != nil {
		return nil, nil, err
	}
	slowed, stopProxy, err := b.slow(ctx, address.Host)
	if err != nil {
		return nil, nil, err
	}
	client, err := dialCodex(ctx, "ws://"+slowed)
	if err == nil {
		err = client.ready(ctx)
	}
	if err != nil {
		stopProxy()
		return nil, nil, err
	}
	find = func(ctx context.Context) (found int, err error) {
		var asked []codexAnswer
		for _, method := range []string{"fs/getMetadata", "fs/readFile"} {
			asked = asked[:0]
			for _, directory := range directories {
				for _, name := range []string{".git", "AGENTS.override.md", "AGENTS.md"} {
					if method == "fs/readFile" && name != "AGENTS.md" {
						continue
					}
					answer, err := client.send(ctx, method, map[string]any{"path": mustURI(filepath.Join(directory, name))})
					if err != nil {
						return 0, err
					}
					asked = append(asked, answer)
				}
			}
			found = 0
			for _, answer := range asked {
				limited, cancel := context.WithTimeout(ctx, 10*time.Second)
				err := client.wait(limited, answer, nil)
				cancel()
				if err == nil {
					found++
				}
			}
		}
		return found, nil
	}
	return find, func() { client.close(); stopProxy() }, nil
}
