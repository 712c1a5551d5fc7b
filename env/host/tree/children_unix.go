//go:build unix

package tree

import "sync"

// childSet knows the leaders that this program has started through trees and not reaped yet, so that the reaper
// leaves them alone. There is one, since a program's children are its own, whatever table their trees are in.
type childSet struct {
	forking sync.RWMutex // the read side is held from before a fork until its child is in the set

	mu   sync.Mutex
	pids map[int]struct{}
}

var children = childSet{pids: make(map[int]struct{})}

func (c *childSet) add(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids[pid] = struct{}{}
}

func (c *childSet) remove(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pids, pid)
}
