// Package tree starts processes together with what it takes to find, signal, bound and end everything that descends from
// them.
//
// A [Tree] has one leader, which is started and waited for through it, in a session of its own. On Linux what leaves the
// leader's group is found by a cgroup, or by session, parents and a cookie in the environment. What a program does once
// for the children of all its trees are the explicit functions [CloseInherited], [DefaultSignals] and [StartReaper].
package tree

import "time"

// A Usage is what a tree uses.
type Usage struct {
	CPU    time.Duration
	Memory int64 // bytes, resident
}
