//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGKILL)
	if err == syscall.ESRCH {
		return os.ErrProcessDone
	}
	return err
}

// lentTerminal is the terminal here while a child may ask the person at it. Its process group is in front of it
// then, as a job of a shell would be, so that Ctrl-C is for it.
type lentTerminal struct {
	fd, group int
	once      sync.Once
}

// mayAsk tells whether a child may ask the person at the terminal: it is ours, and we are in front. In the background
// it would be stopped instead.
func mayAsk() bool {
	front, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	return err == nil && front == unix.Getpgrp()
}

// lendTerminal puts the process group of a child in front, if ours is; else there is nothing to lend.
func lendTerminal(pid int) *lentTerminal {
	t := &lentTerminal{fd: int(os.Stdin.Fd()), group: unix.Getpgrp()}
	if !mayAsk() {
		return nil
	}
	if unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pid) != nil {
		return nil // it has ended
	}
	unix.Kill(-pid, unix.SIGCONT) //nolint:errcheck // it may have asked too early, and been stopped for that
	return t
}

// takeBack puts our process group in front again. It is idempotent.
func (t *lentTerminal) takeBack() {
	if t == nil {
		return
	}
	t.once.Do(func() {
		// Who does this from behind is stopped, unless the signal is ignored.
		if !signal.Ignored(syscall.SIGTTOU) {
			signal.Ignore(syscall.SIGTTOU)
			defer signal.Reset(syscall.SIGTTOU)
		}
		unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.group) //nolint:errcheck // a terminal that is gone needs none
	})
}
