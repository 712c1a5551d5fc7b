package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/wire"
)

// server plays a server that lets everybody in; each instance ends when cut is closed.
func server(instance string, cut <-chan struct{}) func(net.Conn) {
	return func(c net.Conn) {
		s, err := wire.Server(c, func(_ context.Context, hello wire.Hello) (wire.Welcome, error) {
			if hello.Expect != "" && hello.Expect != instance {
				return wire.Welcome{}, fmt.Errorf("%w: another instance", wire.Restarted)
			}
			return wire.Welcome{Instance: instance, Server: "played 1", Lease: 60_000}, nil
		}, func(context.Context, *wire.Call) error { return nil })
		if err != nil {
			return
		}
		select {
		case <-s.Done():
		case <-cut:
		}
		s.Close() //nolint:errcheck // returns nil
	}
}

// awaitStatus waits for a state.
func awaitStatus(t *testing.T, h *Handle, want State) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		s, changed := h.Status()
		if s.State == want {
			return s
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("it is %s (%v), not %s", s.State, s.Err, want)
		}
	}
}

// registryOf has one environment, p, whose program is played by f.
func registryOf(t *testing.T, f func(n int64, c net.Conn)) (r *Registry, spawned *atomic.Int64) {
	t.Helper()
	spawned = new(atomic.Int64)
	spawn := play(t, nil, func(c net.Conn) { f(spawned.Add(1), c) })
	r, err := Load(filepath.Join(t.TempDir(), FileName), Options{Spawn: spawn})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Add(Entry{ID: "p", Program: "played"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, spawned
}

// TestHandleIsShared: it is connected to when it is first wanted, once for all; a lost connection comes back by
// itself, and a server that is gone for good is connected to anew when it is wanted again.
func TestHandleIsShared(t *testing.T) {
	first, second := make(chan struct{}), make(chan struct{})
	r, spawned := registryOf(t, func(n int64, c net.Conn) {
		switch n {
		case 1:
			server("a", first)(c)
		case 2:
			server("a", second)(c)
		default:
			server("b", nil)(c)
		}
	})
	h, err := r.Handle("p")
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := h.Status(); s.State != Pending || spawned.Load() != 0 {
		t.Fatalf("%+v", s)
	}
	var opening sync.WaitGroup
	opened := make([]*Environment, 8)
	for i := range opened {
		opening.Go(func() {
			e, err := h.Open(t.Context())
			if err != nil {
				t.Error(err)
			}
			opened[i] = e
		})
	}
	opening.Wait()
	for _, e := range opened {
		if e != opened[0] || e == nil {
			t.Fatal("it is not shared")
		}
	}
	if s, _ := h.Status(); s.State != Connected || s.Server != "played 1" || s.Latency <= 0 || spawned.Load() != 1 {
		t.Errorf("%+v, %d", s, spawned.Load())
	}
	close(first)
	for deadline := time.After(30 * time.Second); ; { // it is told as lost, and then as back
		s, changed := h.Status()
		if s.State == Connected && spawned.Load() == 2 {
			break
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%+v", s)
		}
	}
	if e, err := h.Open(t.Context()); e != opened[0] || err != nil {
		t.Errorf("another one: %v", err)
	}
	close(second) // the next server is another instance
	s := awaitStatus(t, h, Failed)
	if !errors.Is(s.Err, wire.Restarted) {
		t.Errorf("%v", s.Err)
	}
	e, err := h.Open(t.Context())
	if err != nil || e == opened[0] {
		t.Errorf("%v", err)
	}
	awaitStatus(t, h, Connected)
}

func TestHandleFails(t *testing.T) {
	var good atomic.Bool
	r, spawned := registryOf(t, func(_ int64, c net.Conn) {
		if good.Load() {
			server("a", nil)(c)
			return
		}
		refusing(fmt.Errorf("%w: not today", wire.Unauthenticated))(c)
	})
	h, err := r.Handle("p")
	if err != nil {
		t.Fatal(err)
	}
	h.Start()
	s := awaitStatus(t, h, Failed)
	if !errors.Is(s.Err, wire.Unauthenticated) || !strings.Contains(s.Err.Error(), "environment p: ") {
		t.Errorf("%v", s.Err)
	}
	if _, err := h.Open(t.Context()); !errors.Is(err, wire.Unauthenticated) || spawned.Load() != 2 {
		t.Errorf("%v, %d", err, spawned.Load())
	}
	good.Store(true)
	if _, err := h.Open(t.Context()); err != nil {
		t.Error(err)
	}
	// A replaced environment stays with who has it; the next user gets the new one.
	if err := r.Add(Entry{ID: "p", Program: "other"}); err != nil {
		t.Fatal(err)
	}
	other, err := r.Handle("p")
	if err != nil || other == h {
		t.Errorf("%v", err)
	}
	awaitStatus(t, h, Connected)
	if err := r.Remove("p"); err != nil {
		t.Error(err)
	}
	if _, err := r.Handle("p"); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	if err := r.Add(Entry{ID: "p q", Program: "x"}); err == nil || !strings.Contains(err.Error(), `environment "p q": id: `) {
		t.Errorf("%v", err)
	}
	r.Close()
	if _, err := h.Open(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := r.Add(Entry{ID: "q", Program: "x"}); !errors.Is(err, errClosed) {
		t.Errorf("%v", err)
	}
}

// TestHandleWaitsNoLongerThanItsUser: who gives up leaves the attempt to the others; closing ends it.
func TestHandleWaitsNoLongerThanItsUser(t *testing.T) {
	r, _ := registryOf(t, func(_ int64, c net.Conn) { drained(c) }) // it never answers
	h, err := r.Handle("p")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.Start()
	awaitStatus(t, h, Connecting)
	cancel()
	if _, err := h.Open(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	r.Close()
	if s, _ := h.Status(); s.State != Failed || !errors.Is(s.Err, net.ErrClosed) {
		t.Errorf("%+v", s)
	}
}

// TestFirstAnswerIsBounded: a server that takes everything and says nothing is given up, and that is told.
func TestFirstAnswerIsBounded(t *testing.T) {
	spec := Spec{Program: []string{"p"}, InitializeWithin: 50 * time.Millisecond, Spawn: play(t, nil, drained)}
	err := openAndCall(t, spec)
	if err == nil || err.Error() != "environment p: connected, but the server has not answered within 50ms" {
		t.Errorf("%v", err)
	}
}
