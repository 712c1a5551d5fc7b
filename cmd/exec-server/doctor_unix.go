//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	terminalColours   = true
	temporaryVariable = "TMPDIR"
	maxSocketPath     = len(unix.RawSockaddrUnix{}.Path) - 1 // its zero byte
)

var (
	shellNames      = []string{"sh", "bash", "zsh", "fish", "dash", "ksh", "pwsh"}
	terminalCommand = []string{"/bin/sh", "-c", "test -t 0 && test -t 1"}
)

// trueCommand is a command that does nothing, in a shell.
func trueCommand(shell string) []string { return []string{shell, "-c", "exit 0"} }

func administrator() bool { return os.Geteuid() == 0 }

func owned(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// private says why a file or directory is not this user's alone, and which command makes it so.
func private(info fs.FileInfo) (remedy string, err error) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return "run this as its owner, or chown", fmt.Errorf("belongs to user %d, not to this one (%d)", stat.Uid, os.Geteuid())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "chmod go=", fmt.Errorf("is open to others (mode %04o)", mode)
	}
	return "", nil
}

// openFiles looks at how many descriptors the server may have. The Go runtime raises the soft limit to the hard one, for
// itself alone.
func (x *examination) openFiles() {
	const what = "open files"
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		x.warn(what, "look at ulimit -n", "%v", err)
		return
	}
	detail := fmt.Sprintf("%s, at most %s", rlimit(uint64(limit.Cur)), rlimit(uint64(limit.Max)))
	if uint64(limit.Cur) < fewFiles {
		x.warn(what, "raise it (ulimit -n, LimitNOFILE= of a service): a process takes up to five, a connection one", "%s", detail)
		return
	}
	x.ok(what, "%s", detail)
}

const fewFiles = 4096

func rlimit(n uint64) string {
	if n >= 1<<62 {
		return "unlimited"
	}
	return fmt.Sprint(n)
}
