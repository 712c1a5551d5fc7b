package registry

import "syscall"

// refused is WSAECONNREFUSED; syscall.ECONNREFUSED is an invented number there.
const refused = syscall.Errno(10061)
