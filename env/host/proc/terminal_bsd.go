//go:build unix && !linux

package proc

import (
	"fmt"
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"waldo/env"
)

const (
	ioctlGetTermios = unix.TIOCGETA
	ioctlSetTermios = unix.TIOCSETA
)

// openTerminal opens a terminal of the given size: its master, non-blocking and in the poller, and its other end.
func openTerminal(size env.Size) (master *os.File, slave int, err error) {
	m, s, err := pty.Open()
	if err != nil {
		return nil, -1, fmt.Errorf("open a terminal: %w", err)
	}
	// The files of that package may have been made blocking, so both ends are wrapped anew.
	defer m.Close() //nolint:errcheck // duplicated
	defer s.Close() //nolint:errcheck // duplicated
	fd, err := unix.FcntlInt(m.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("open a terminal: %w", err)
	}
	slave, err = unix.FcntlInt(s.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		if err = prepareTerminal(slave, size); err == nil {
			if err = unix.SetNonblock(fd, true); err == nil {
				return os.NewFile(uintptr(fd), m.Name()), slave, nil
			}
		}
		unix.Close(slave) //nolint:errcheck // the error before is told
	}
	unix.Close(fd) //nolint:errcheck // the error before is told
	return nil, -1, fmt.Errorf("open a terminal: %w", err)
}
