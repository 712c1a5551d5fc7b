//go:build unix

package proc

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// prepareTerminal sets the size, before anything can ask for it, and that lines are edited as UTF-8.
func prepareTerminal(fd int, size env.Size) error {
	if err := setSize(fd, size); err != nil {
		return err
	}
	termios, err := unix.IoctlGetTermios(fd, ioctlGetTermios)
	if err != nil {
		return err
	}
	termios.Iflag |= unix.IUTF8
	return unix.IoctlSetTermios(fd, ioctlSetTermios, termios)
}

func setSize(fd int, size env.Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
}

// resizeTerminal sets the size of a terminal that is in use, which tells its foreground group.
func resizeTerminal(raw syscall.RawConn, size env.Size) error {
	var err error
	if closed := raw.Control(func(fd uintptr) { err = setSize(int(fd), size) }); closed != nil {
		return fmt.Errorf("%w: its terminal is closed", env.ErrInvalid)
	}
	return err
}
