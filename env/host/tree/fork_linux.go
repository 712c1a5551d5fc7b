package tree

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const maxSignal = 64

// A leaderWaiter waits for one leader: in the poller by its pidfd, or, on a kernel without, in a thread.
type leaderWaiter struct{ pidfd *os.File }

// fork starts the leader, if it can inside its cgroup.
func fork(path string, argv []string, attr *syscall.ProcAttr, t *Tree) (int, leaderWaiter, error) {
	pidfd := -1
	attr.Sys.PidFD = &pidfd
	var pid int
	err := whileBusy(func() (err error) {
		children.forking.RLock()
		defer children.forking.RUnlock()
		pid, err = syscall.ForkExec(path, argv, attr)
		if err != nil && t.leaveCgroup(err, attr) {
			pid, err = syscall.ForkExec(path, argv, attr)
		}
		if err == nil {
			children.add(pid)
		}
		return err
	})
	if err != nil {
		return 0, leaderWaiter{}, err
	}
	if pidfd < 0 || unix.SetNonblock(pidfd, true) != nil {
		return pid, leaderWaiter{}, nil
	}
	return pid, leaderWaiter{os.NewFile(uintptr(pidfd), "pidfd")}, nil
}

func (w leaderWaiter) wait(pid int) (ws syscall.WaitStatus, usage syscall.Rusage) {
	if w.pidfd != nil {
		defer w.pidfd.Close() //nolint:errcheck // the process is gone
		if raw, err := w.pidfd.SyscallConn(); err == nil {
			done := false
			err = raw.Read(func(uintptr) bool {
				got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, &usage)
				for err == syscall.EINTR {
					got, err = syscall.Wait4(pid, &ws, syscall.WNOHANG, &usage)
				}
				done = err != nil || got == pid
				return done
			})
			if err == nil && done {
				return ws, usage
			}
		}
	}
	return waitBlocking(pid)
}
