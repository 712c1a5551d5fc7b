//go:build linux

package main

import (
	"bytes"
	"context"
	"os/exec"

	"waldo/env"
)

const (
	truePath    = "/bin/true"
	atATime     = 32
	trueInTurn  = 60
	trueAtOnce  = 640
	trueRounds  = 5
	trueParalls = 3
)

// starters are the three ways to run /bin/true: from its start to its exit, and waldo and os/exec also to the end
// of its output.
type starters struct {
	waldo, raw, codex func(context.Context) error
	stop              func()
}

func (b *bench) startTrue(ctx context.Context) (*starters, error) {
	server, client, err := b.connectWaldo(ctx)
	if err != nil {
		return nil, err
	}
	s := &starters{
		waldo: func(ctx context.Context) error {
			p, err := client.Start(ctx, env.Command{Argv: []string{truePath}})
			if err != nil {
				return err
			}
			return finish(ctx, p, nil)
		},
		raw: func(ctx context.Context) error {
			var stdout, stderr bytes.Buffer // makes os/exec use pipes
			c := exec.CommandContext(ctx, truePath)
			c.Stdout, c.Stderr = &stdout, &stderr
			return c.Run()
		},
	}
	peer, codex := b.connectCodex(ctx)
	if codex != nil {
		s.codex = func(ctx context.Context) error {
			p, err := codex.start(ctx, false, nil, truePath)
			if err != nil {
				return err
			}
			return p.await(ctx)
		}
	}
	s.stop = func() {
		client.Close() //nolint:errcheck // returns nil
		server.stop()
		if codex != nil {
			codex.close()
			peer.stop()
		}
	}
	return s, nil
}

// measured makes sides of the three ways.
func (s *starters) measured(measure func(context.Context, func(context.Context) error) ([]float64, error)) sides {
	side := func(do func(context.Context) error) func(context.Context) ([]float64, error) {
		if do == nil {
			return nil
		}
		return func(ctx context.Context) ([]float64, error) { return measure(ctx, do) }
	}
	return sides{waldo: side(s.waldo), raw: side(s.raw), codex: side(s.codex)}
}

func measureTrue(ctx context.Context, b *bench) ([]line, error) {
	s, err := b.startTrue(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	got, err := b.compare(ctx, b.sized(trueRounds, 2), s.measured(
		func(ctx context.Context, do func(context.Context) error) ([]float64, error) {
			return series(ctx, b.sized(trueInTurn, 15), do)
		}))
	if err != nil {
		return nil, err
	}
	return []line{{
		What: "start to exit, median", Unit: seconds,
		Waldo: median(got.waldo), Raw: median(got.raw), RawIs: "os/exec", Codex: median(got.codex),
		Must: bound{ofRaw, 2}, Aim: bound{ofRaw, 1.5},
	}}, nil
}

func measureParallel(ctx context.Context, b *bench) ([]line, error) {
	s, err := b.startTrue(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	got, err := b.compare(ctx, b.sized(trueParalls, 1), s.measured(
		func(ctx context.Context, do func(context.Context) error) ([]float64, error) {
			return atOnce(ctx, b.sized(trueAtOnce, 4*atATime), atATime, do)
		}))
	if err != nil {
		return nil, err
	}
	return []line{{
		What: "32 at a time", Unit: perSecond,
		Waldo: median(got.waldo), Raw: median(got.raw), RawIs: "os/exec", Codex: median(got.codex),
		Must: bound{ofCodex, 5}, Aim: bound{ofRaw, 0.6},
	}}, nil
}
