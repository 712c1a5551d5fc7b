//go:build unix

package proc

import (
	"fmt"
	"syscall"
	"time"

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

// pace waits, if not for long, until what was typed has been read and what came of it is in the log. The kernel
// throws echo away when output is not taken as fast as input is given.
func (c *child) pace() {
	other, err := c.slave.SyscallConn()
	if err != nil {
		return
	}
	for deadline := time.Now().Add(ttyPause); time.Now().Before(deadline); time.Sleep(ttyPause / 100) {
		unread := false
		err := other.Control(func(fd uintptr) {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} // which also makes the kernel digest what was typed
			n, err := unix.Poll(poll, 0)
			unread = err == nil && n > 0
		})
		c.streams[0].CatchUp()
		if err != nil || !unread {
			return
		}
	}
}

// resizeTerminal sets the size of a terminal that is in use, which tells its foreground group.
func resizeTerminal(raw syscall.RawConn, size env.Size) error {
	var err error
	if closed := raw.Control(func(fd uintptr) { err = setSize(int(fd), size) }); closed != nil {
		return fmt.Errorf("%w: its terminal is closed", env.ErrInvalid)
	}
	return err
}
