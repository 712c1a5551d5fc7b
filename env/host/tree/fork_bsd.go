//go:build unix && !linux

package tree

import "syscall"

const maxSignal = 31

// A leaderWaiter waits for one leader, in a thread.
type leaderWaiter struct{}

func fork(path string, argv []string, attr *syscall.ProcAttr, _ *Tree) (int, leaderWaiter, error) {
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
