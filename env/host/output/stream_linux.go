package output

import "golang.org/x/sys/unix"

const fionread = unix.TIOCINQ // FIONREAD by its other name

// growPipe gives a pipe that is always full a larger buffer. Where the user's share is used up it stays as it is.
func growPipe(fd, size int) {
	unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, size) //nolint:errcheck // as above
}
