//go:build unix

package proc

import "syscall"

// waitBlocking waits for a leader in a thread of its own.
func waitBlocking(pid int) (ws syscall.WaitStatus, usage syscall.Rusage) {
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, &usage); err != syscall.EINTR {
			return ws, usage
		}
	}
}
