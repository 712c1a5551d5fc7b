//go:build unix

package tree

import (
	"syscall"
	"time"
)

// Start starts the leader, whose attributes New has prepared.
func (t *Tree) Start(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	t.leader, t.waiter, err = fork(path, argv, attr, t)
	return t.leader, err
}

// Wait waits for the leader and reaps it. It is called once.
func (t *Tree) Wait() (syscall.WaitStatus, syscall.Rusage) {
	ws, usage := t.waiter.wait(t.leader)
	children.remove(t.leader)
	t.gone.Store(true)
	return ws, usage
}

const (
	busyPatience = time.Second // how long a program that is being written is tried again
	busyPause    = 50 * time.Millisecond
)

// whileBusy calls fork again while the program is open for writing. One that some other thread has just written may
// still be open in a child of that moment, between its fork and its exec; that passes, on a busy machine not at once.
// fork must not hold a lock that other starts want from one call to the next.
func whileBusy(fork func() error) error {
	deadline := time.Now().Add(busyPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, busyPause) {
		if err := fork(); err != syscall.ETXTBSY || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

// waitBlocking waits for a leader in a thread of its own.
func waitBlocking(pid int) (ws syscall.WaitStatus, usage syscall.Rusage) {
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, &usage); err != syscall.EINTR {
			return ws, usage
		}
	}
}
