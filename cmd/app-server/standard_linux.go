package main

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// standardPipe is what a pipe on a standard stream is made to hold: a write that fits costs no change of threads.
const standardPipe = 1 << 20

// polled is a standard stream that no thread waits on. A pipe is opened anew, so that it can be made non-blocking
// for this process alone; whatever else it is, it stays as it is.
func polled(f *os.File, flag int) *os.File {
	info, err := f.Stat()
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return f
	}
	own, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), flag|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil { // no /proc, or a pipe that may not be opened
		return f
	}
	if raw, err := own.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { //nolint:errcheck // the file is open
			unix.FcntlInt(fd, unix.F_SETPIPE_SZ, standardPipe) //nolint:errcheck // only slower without
		})
	}
	return own
}
