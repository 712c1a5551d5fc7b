package rpc

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"waldo/env"
)

func TestStats(t *testing.T) {
	r := newRig(t, ServerOptions{})
	c := r.dial(t, ClientOptions{})
	if _, err := c.Processes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(t.Context(), "none", "INT"); !errors.Is(err, env.ErrUnknownProcess) {
		t.Fatal(err)
	}
	s, err := r.server.OpenSession(Origin{})
	if err != nil {
		t.Fatal(err)
	}
	end := func(error) error { return nil }
	for range 2 { // the second resumes
		if _, err := s.Take(t.Context(), end, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.server.CountCall(CodexDoor, "process/read", "-32600")
	r.server.CountCall(CodexDoor, "process/read", "-32600")

	got := r.server.Stats()
	for end := time.Now().Add(30 * time.Second); len(got.Calls) < 3 && time.Now().Before(end); {
		runtime.Gosched() // an answer may be here before its call has ended there
		got = r.server.Stats()
	}
	want := Stats{
		Open:        map[string]int64{NativeDoor: 1, CodexDoor: 1},
		Connections: map[string]int64{NativeDoor: 1, CodexDoor: 2},
		Resumes:     map[string]int64{CodexDoor: 1},
		Sessions:    2,
		Calls: map[CallKind]int64{
			{NativeDoor, methodProcessList, OK}:                  1,
			{NativeDoor, methodProcessSignal, "unknown_process"}: 1,
			{CodexDoor, "process/read", "-32600"}:                2,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got.Calls[CallKind{}] = 1 // it is the caller's
	if len(r.server.Stats().Calls) != len(want.Calls) {
		t.Error("what Stats returns is still the server's")
	}
}
