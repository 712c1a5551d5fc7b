package host

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"waldo/env"
	"waldo/env/envtest"
	"waldo/env/host/proc"
	"waldo/env/host/tree"
)

func TestMain(m *testing.M) {
	if err := errors.Join(tree.CloseInherited(), tree.DefaultSignals()); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestEnv(t *testing.T) { testEnv(t, proc.Options{}) }

// A machine that lets nobody make cgroups, as most containers do.
func TestEnvWithoutCgroups(t *testing.T) { testEnv(t, proc.Options{NoCgroups: true}) }

func testEnv(t *testing.T, o proc.Options) {
	o.Grace = time.Second
	envtest.Run(t, func(t *testing.T) env.Env {
		h, err := New(Options{Processes: o})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return h
	})
}
