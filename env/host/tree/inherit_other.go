//go:build !linux

package tree

import (
	"os"
	"os/signal"
	"syscall"
)

// CloseInherited would keep descriptors that this program was started with from its children. Go programs start
// children with the three they are given, and here no more can be done.
func CloseInherited() error { return nil }

// DefaultSignals makes children start with default signal dispositions though this program was started with some
// ignored (by nohup, in the background of a script). Call it first in main.
func DefaultSignals() error {
	sink := make(chan os.Signal, 1) // never read: what arrives is dropped
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(sink, sig)
		}
	}
	return nil
}
