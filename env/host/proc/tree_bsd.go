//go:build unix && !linux

package proc

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// A tree is the leader's group; what leaves it is not found on this machine.
type tree struct {
	leader int
	gone   atomic.Bool
}

func newTree(l launch, _ *syscall.ProcAttr) (*tree, error) {
	if limits := l.command.Limits; limits.Memory > 0 || limits.Processes > 0 {
		return nil, fmt.Errorf("limits on memory and process count: %w on this machine", errors.ErrUnsupported)
	}
	return &tree{}, nil
}

func (t *tree) reaped() { t.gone.Store(true) }

func (t *tree) signalGroup(sig syscall.Signal) error {
	if t.gone.Load() && unix.Kill(t.leader, 0) != unix.ESRCH {
		return unix.ESRCH
	}
	return unix.Kill(-t.leader, sig)
}

func (t *tree) terminate(terminal bool) bool {
	some := t.signalGroup(unix.SIGTERM) == nil
	if terminal {
		t.signalGroup(unix.SIGHUP) //nolint:errcheck // as before
	}
	t.signalGroup(unix.SIGCONT) //nolint:errcheck // as before
	return some
}

func (t *tree) kill()          { t.signalGroup(unix.SIGKILL) } //nolint:errcheck // it may be gone
func (t *tree) alive() bool    { return t.signalGroup(0) == nil }
func (t *tree) broken() string { return "" }
func (t *tree) settle()        {}
func (t *tree) close()         {}

func addUsage([]*process, []env.ProcessInfo) {}

type cgroups struct{}

func newCgroups(bool) *cgroups { return nil }
func (*cgroups) close()        {}

func (*cgroups) canLimit() bool { return false }
