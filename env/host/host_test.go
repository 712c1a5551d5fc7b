package host

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"waldo/env"
	"waldo/env/envtest"
	"waldo/env/host/proc"
)

func TestMain(m *testing.M) {
	if err := errors.Join(proc.CloseInherited(), proc.DefaultSignals()); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestEnv(t *testing.T) {
	envtest.Run(t, func(t *testing.T) env.Env {
		h, err := New(Options{Processes: proc.Options{Grace: time.Second}})
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
