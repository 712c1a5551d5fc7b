package host

import (
	"testing"

	"waldo/env/envtest"
	"waldo/pathuri"
)

// TestFiles: the machine itself passes the suite of files and watches.
func TestFiles(t *testing.T) {
	envtest.RunFiles(t, func(t *testing.T) envtest.FilesMachine {
		h, err := New(Options{Version: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
		scratch, err := pathuri.FromNative(t.TempDir(), convention)
		if err != nil {
			t.Fatal(err)
		}
		return envtest.FilesMachine{Files: h, Watcher: h, Describer: h, Scratch: scratch, Here: true}
	})
}
