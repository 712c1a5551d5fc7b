//go:build unix && !linux

package tree

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// A Tree is the leader's group; what leaves it is not found on this machine.
type Tree struct {
	leader int
	waiter leaderWaiter
	gone   atomic.Bool
}

// New returns a tree whose leader is yet to be started. No limits can be set here.
func New(_ *Cgroups, limits env.Limits, _ bool, _ *syscall.ProcAttr) (*Tree, error) {
	if limits.Memory > 0 || limits.Processes > 0 {
		return nil, fmt.Errorf("limits on memory and process count: %w on this machine", errors.ErrUnsupported)
	}
	return &Tree{}, nil
}

// Signal signals the leader's group.
func (t *Tree) Signal(sig syscall.Signal) error {
	if t.gone.Load() && unix.Kill(t.leader, 0) != unix.ESRCH {
		return unix.ESRCH
	}
	return unix.Kill(-t.leader, sig)
}

// Terminate asks everything in the tree to end, and tells whether there was anything.
func (t *Tree) Terminate(terminal bool) bool {
	some := t.Signal(unix.SIGTERM) == nil
	if terminal {
		t.Signal(unix.SIGHUP) //nolint:errcheck // as before
	}
	t.Signal(unix.SIGCONT) //nolint:errcheck // as before
	return some
}

// Kill ends everything in the tree.
func (t *Tree) Kill() { t.Signal(unix.SIGKILL) } //nolint:errcheck // it may be gone

// Alive tells whether anything of the tree still runs.
func (t *Tree) Alive() bool { return t.Signal(0) == nil }

// Broken says which limit the tree ran into: none, here.
func (t *Tree) Broken() string { return "" }

// Settle would give back what finds the tree, if nothing is left in it.
func (t *Tree) Settle() {}

// Close would give that back whatever is in it.
func (t *Tree) Close() {}
