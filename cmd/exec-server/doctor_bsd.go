//go:build unix && !linux

package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// limitsRemedy is empty: there are no limits on this system.
const limitsRemedy = ""

func (x *examination) system() { x.openFiles() }

func kernel() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "kernel unknown"
	}
	return "kernel " + unix.ByteSliceToString(name.Release[:])
}

// freeSpace is not looked at: each of these systems tells it in another way.
func freeSpace(string) (uint64, error) { return 0, errors.ErrUnsupported }

// portHolder says nothing: other users' sockets are not shown.
func portHolder(uint16) string { return "" }
