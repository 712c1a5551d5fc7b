//go:build !windows

package registry

import "syscall"

// refused is a connection that nobody accepts.
const refused = syscall.ECONNREFUSED
