//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// sides are the three ways to do one thing. A side that is nil is not measured.
type sides struct {
	waldo, raw, codex func(context.Context) ([]float64, error)
}

// samples are the figures that each of the sides came to.
type samples struct {
	waldo, raw, codex []float64
}

// sideWithin bounds one round of one side, in case a server hangs.
const sideWithin = 2 * time.Minute

// compare measures the sides in turn, several times over, so that what else goes on on the machine meets all of
// them. When Codex fails, it is left out and that is told; the others' errors are the row's.
func (b *bench) compare(ctx context.Context, rounds int, of sides) (s samples, err error) {
	for range rounds {
		for _, side := range []struct {
			name    string
			measure func(context.Context) ([]float64, error)
			to      *[]float64
		}{{"raw", of.raw, &s.raw}, {"waldo", of.waldo, &s.waldo}, {"Codex", of.codex, &s.codex}} {
			if side.measure == nil {
				continue
			}
			limited, cancel := context.WithTimeoutCause(ctx, sideWithin, fmt.Errorf("not done after %v", sideWithin))
			got, err := side.measure(limited)
			cancel()
			if ctx.Err() != nil {
				return s, fmt.Errorf("%s: %w", side.name, context.Cause(ctx))
			}
			if err != nil && side.name == "Codex" {
				b.leaveOut(ctx, err)
				of.codex, s.codex = nil, nil
				continue
			}
			if err != nil {
				return s, fmt.Errorf("%s: %w", side.name, err)
			}
			*side.to = append(*side.to, got...)
		}
	}
	return s, nil
}

// enough is when a series of single measurements may end before its count.
const enough = 5 * time.Second

// series times n calls of do, one after another, in seconds; fewer if they take long.
func series(ctx context.Context, n int, do func(context.Context) error) ([]float64, error) {
	times := make([]float64, 0, n)
	began := time.Now()
	for range n {
		start := time.Now()
		if err := do(ctx); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start).Seconds())
		if time.Since(began) > enough && len(times) >= 5 {
			break
		}
	}
	return times, nil
}

// atOnce makes total calls of do, so many at a time, and returns how many a second were made.
func atOnce(ctx context.Context, total, workers int, do func(context.Context) error) ([]float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	turns := make(chan struct{}, total)
	for range total {
		turns <- struct{}{}
	}
	close(turns)
	began := time.Now()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for range turns {
				if ctx.Err() != nil {
					return
				}
				if err := do(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	working.Wait()
	took := time.Since(began).Seconds()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return []float64{float64(total) / took}, nil
}

func median(of []float64) float64 { return quantile(of, 0.5) }

// quantile is the smallest sample that at least the share q of them does not exceed; 0 of none.
func quantile(of []float64, q float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}
