package proc

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"waldo/env"
)

const (
	ioctlGetTermios = unix.TCGETS
	ioctlSetTermios = unix.TCSETS
)

// openTerminal opens a terminal of the given size: its master, non-blocking and in the poller, and its other end.
func openTerminal(size env.Size) (master *os.File, slave int, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open a terminal: %w", err)
	}
	fail := func(err error) (*os.File, int, error) {
		unix.Close(fd) //nolint:errcheck // the error before is told
		return nil, -1, fmt.Errorf("open a terminal: %w", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail(err)
	}
	slave, err = peerOf(fd)
	if err != nil {
		return fail(err)
	}
	if err := prepareTerminal(fd, size); err != nil {
		unix.Close(slave) //nolint:errcheck // the error before is told
		return fail(err)
	}
	return os.NewFile(uintptr(fd), "/dev/ptmx"), slave, nil
}

// peerOf opens the other end, by its master where the kernel can, since /dev/pts may be another instance's.
func peerOf(master int) (int, error) {
	flags := unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, uintptr(flags))
	if errno == 0 {
		return int(fd), nil
	}
	n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	return unix.Open("/dev/pts/"+strconv.Itoa(int(n)), flags, 0)
}
