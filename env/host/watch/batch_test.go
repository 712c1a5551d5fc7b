package watch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"waldo/env"
)

func always() bool { return true }

func TestMerge(t *testing.T) {
	type event struct {
		kind      env.ChangeKind
		directory bool
	}
	for _, test := range []struct {
		name   string
		events []event
		want   env.ChangeKind
	}{
		{"made and changed", []event{{env.Created, false}, {env.Modified, false}}, env.Created},
		{"made twice", []event{{env.Created, false}, {env.Created, false}}, env.Created},
		{"changed twice", []event{{env.Modified, false}, {env.Modified, false}}, env.Modified},
		{"renamed over after a change", []event{{env.Modified, false}, {env.Created, false}}, env.Modified},
		{"made and removed", []event{{env.Created, false}, {env.Removed, false}}, env.Removed},
		{"removed and made", []event{{env.Removed, false}, {env.Created, false}}, env.Modified},
		{"directory removed and made", []event{{env.Removed, true}, {env.Created, false}}, env.Rescan},
		{"directory removed and made and changed", []event{{env.Removed, true}, {env.Created, false}, {env.Modified, false}}, env.Rescan},
		{"directory removed, made, removed", []event{{env.Removed, true}, {env.Created, false}, {env.Removed, false}}, env.Removed},
		{"directory removed, made, removed, made as a file", []event{{env.Removed, true}, {env.Created, false}, {env.Removed, false}, {env.Created, false}}, env.Rescan},
		{"missed and made", []event{{env.Rescan, false}, {env.Created, false}}, env.Rescan},
		{"made and missed", []event{{env.Created, false}, {env.Rescan, false}}, env.Rescan},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBatch("/r")
				for _, e := range test.events {
					b.add("/r/x", e.kind, e.directory)
				}
				got, err := b.next(t.Context(), always)
				if err != nil || len(got) != 1 || got[0].kind != test.want || got[0].path != "/r/x" {
					t.Errorf("got %v, %v", got, err)
				}
			})
		})
	}
}

// When batches are told, by bursts of changes.
func TestBatchTimes(t *testing.T) {
	ms := time.Millisecond
	type burst struct {
		at, every time.Duration
		count     int
	}
	for _, test := range []struct {
		name   string
		bursts []burst
		want   []time.Duration
	}{
		{"one", []burst{{0, 0, 1}}, []time.Duration{50 * ms}},
		{"three bursts", []burst{{0, ms / 2, 100}, {1000 * ms, ms / 2, 100}, {2000 * ms, ms / 2, 100}},
			[]time.Duration{99*ms + ms/2, 1099*ms + ms/2, 2099*ms + ms/2}},
		{"no end of it", []burst{{0, 11 * ms, 101}}, []time.Duration{500 * ms, 1006 * ms, 1150 * ms}},
		{"slow", []burst{{0, 60 * ms, 3}}, []time.Duration{50 * ms, 110 * ms, 170 * ms}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBatch("/r")
				begun := time.Now()
				go func() {
					n := 0
					for _, burst := range test.bursts {
						time.Sleep(time.Until(begun.Add(burst.at)))
						for i := range burst.count {
							time.Sleep(time.Until(begun.Add(burst.at + time.Duration(i)*burst.every)))
							n++
							b.add(fmt.Sprint("/r/", n), env.Modified, false)
						}
					}
					time.Sleep(time.Second)
					b.fail(context.Canceled)
				}()
				var times []time.Duration
				seen, want := 0, 0
				for _, burst := range test.bursts {
					want += burst.count
				}
				for {
					got, err := b.next(t.Context(), always)
					if err != nil {
						break
					}
					seen += len(got)
					times = append(times, time.Since(begun))
				}
				if diff := cmp.Diff(test.want, times); diff != "" || seen != want {
					t.Errorf("%d of %d told, at (-want +got):\n%s", seen, want, diff)
				}
			})
		})
	}
}

// A consumer who is away loses nothing, and what he is told when he comes back is there at once.
func TestBatchSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatch("/r")
		for i := range maxPending {
			b.add(fmt.Sprint("/r/", i), env.Created, false)
		}
		time.Sleep(time.Hour)
		begun := time.Now()
		got, err := b.next(t.Context(), always)
		if len(got) != maxPending || err != nil || time.Since(begun) != 0 {
			t.Fatalf("%d changes, %v, after %v", len(got), err, time.Since(begun))
		}
		for i := range maxPending + 1 {
			b.add(fmt.Sprint("/r/", i), env.Created, false)
		}
		b.add("/r/more", env.Created, false)
		got, err = b.next(t.Context(), always)
		if diff := cmp.Diff([]change{{"/r", env.Rescan, false}}, got, cmp.AllowUnexported(change{})); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
		b.add("/r/last", env.Created, false)
		got, err = b.next(t.Context(), always)
		if diff := cmp.Diff([]change{{"/r/last", env.Created, false}}, got, cmp.AllowUnexported(change{})); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func TestBatchEnds(t *testing.T) {
	errEnd := errors.New("the end")
	for _, test := range []struct {
		name  string
		do    func(*batch)
		there bool
		want  []string // the kinds, or the error
	}{
		{"gone drops what may be wrong", func(b *batch) { b.add("/r/x", env.Created, false); b.end(); b.add("/r/y", env.Created, false) }, true, []string{"gone", "nothing"}},
		{"found gone", func(b *batch) { b.add("/r/x", env.Created, false) }, false, []string{"gone", "nothing"}},
		{"failed after what is pending", func(b *batch) { b.add("/r/x", env.Created, false); b.fail(errEnd); b.end() }, true, []string{"created", "the end", "the end"}},
		{"gone, then closed", func(b *batch) { b.end(); b.fail(errEnd) }, true, []string{"gone", "nothing"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBatch("/r")
				test.do(b)
				for i, want := range test.want {
					got, err := b.next(t.Context(), func() bool { return test.there })
					text := "nothing"
					switch {
					case err != nil:
						text = err.Error()
					case len(got) > 0:
						text = string(got[0].kind)
					}
					if text != want || len(got) > 1 {
						t.Errorf("step %d: %q (%v), want %q", i, text, got, want)
					}
				}
			})
		})
	}
}

// The end and a context wake a consumer that waits.
func TestBatchWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatch("/r")
		time.AfterFunc(time.Second, b.end)
		begun := time.Now()
		got, err := b.next(t.Context(), always)
		if len(got) != 1 || err != nil || time.Since(begun) != time.Second {
			t.Errorf("%v, %v after %v", got, err, time.Since(begun))
		}
		b = newBatch("/r")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		if got, err := b.next(ctx, always); got != nil || err == nil || err.Error() != "enough" {
			t.Errorf("%v, %v", got, err)
		}
	})
}
