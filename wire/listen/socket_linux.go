package listen

import (
	"net"

	"golang.org/x/sys/unix"
)

// unsentBytes bounds what waits unsent in a socket, so that a small answer does not queue behind megabytes of large
// ones.
const unsentBytes = 128 << 10

// tune sets the options of an accepted socket beyond TCP_NODELAY, which Go sets by itself.
func tune(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // only slower without
		unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes) //nolint:errcheck // only slower without
	})
}
