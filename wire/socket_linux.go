package wire

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unsentBytes bounds what waits unsent in the socket, so that a keystroke does not queue behind a bulk transfer.
const unsentBytes = 128 << 10

// tuneSocket bounds the unsent bytes of a TCP socket and returns its round trip, 0 if it is not known.
func tuneSocket(c syscall.RawConn) (roundTrip time.Duration) {
	c.Control(func(fd uintptr) { //nolint:errcheck // the connection is open
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes) //nolint:errcheck // only slower without
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			roundTrip = time.Duration(info.Rtt) * time.Microsecond
		}
	})
	return roundTrip
}
