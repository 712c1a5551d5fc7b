package proc

import "golang.org/x/sys/unix"

func cloexecPipe(ends *[2]int) error { return unix.Pipe2(ends[:], unix.O_CLOEXEC) }
