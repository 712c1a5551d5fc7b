//go:build unix

package files

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// resemble gives the temporary the owner and the extended attributes of the file that it is to replace.
func (t *temporary) resemble(old *os.File) bool {
	var is, was unix.Stat_t
	if stat(t.file, &is) != nil || stat(old, &was) != nil || is.Dev != was.Dev {
		return false
	}
	// A user or group that is the same already needs no right to be kept.
	user, group := -1, -1
	if is.Uid != was.Uid {
		user = int(was.Uid)
	}
	if is.Gid != was.Gid {
		group = int(was.Gid)
	}
	if (user >= 0 || group >= 0) && t.file.Chown(user, group) != nil {
		return false
	}
	return copyAttributes(old, t.file) == nil
}

func stat(file *os.File, st *unix.Stat_t) error {
	return control(file, func(fd int) error { return again(func() error { return unix.Fstat(fd, st) }) })
}

// isRunning tells that a file cannot be written because it is run.
func isRunning(err error) bool { return errors.Is(err, unix.ETXTBSY) }
