//go:build unix

package tree

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// SignalNumber returns the machine's number for sig: by name, or for one that has no name by number.
func SignalNumber(sig env.Signal) (syscall.Signal, error) {
	name := strings.TrimPrefix(string(sig), "SIG")
	if n := unix.SignalNum("SIG" + name); n != 0 {
		return n, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= maxSignal {
		return syscall.Signal(n), nil
	}
	return 0, fmt.Errorf("%w: signal %q; use a name such as TERM, INT or KILL", env.ErrInvalid, string(sig))
}

// SignalName is the contrary.
func SignalName(n syscall.Signal) env.Signal {
	if name := unix.SignalName(n); name != "" {
		return env.Signal(strings.TrimPrefix(name, "SIG"))
	}
	return env.Signal(strconv.Itoa(int(n)))
}
