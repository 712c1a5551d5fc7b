//go:build !linux

package wire

import (
	"syscall"
	"time"
)

// tuneSocket has nothing to tune here, and the round trip is not known.
func tuneSocket(syscall.RawConn) (roundTrip time.Duration) { return 0 }
