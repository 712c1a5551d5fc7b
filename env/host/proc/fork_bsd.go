//go:build unix && !linux

package proc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const maxSignal = 31

func cloexecPipe(ends *[2]int) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(ends[:]); err != nil {
		return err
	}
	unix.CloseOnExec(ends[0])
	unix.CloseOnExec(ends[1])
	return nil
}

// A leaderWaiter waits for one leader, in a thread.
type leaderWaiter struct{}

func fork(path string, argv []string, attr *syscall.ProcAttr, _ *tree) (int, leaderWaiter, error) {
	var pid int
	err := whileBusy(func() (err error) {
		children.forking.RLock()
		defer children.forking.RUnlock()
		if pid, err = syscall.ForkExec(path, argv, attr); err == nil {
			children.add(pid)
		}
		return err
	})
	return pid, leaderWaiter{}, err
}

func (leaderWaiter) wait(pid int) (syscall.WaitStatus, syscall.Rusage) { return waitBlocking(pid) }
