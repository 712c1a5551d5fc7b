//go:build unix

package files

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// codeOf is what the contract calls an error of the system, nil where errors.Is finds it already.
func codeOf(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return nil
	}
	switch errno {
	case unix.EISDIR:
		return env.ErrIsDirectory
	case unix.ENOTDIR:
		return env.ErrNotDirectory
	case unix.ENOTEMPTY:
		return env.ErrNotEmpty
	case unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL, unix.EILSEQ:
		return env.ErrInvalid
	case unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EMLINK:
		return env.ErrLimit
	case unix.EFBIG:
		return env.ErrTooLarge
	case unix.ENXIO, unix.ENODEV:
		return env.ErrNotRegular
	case unix.EROFS:
		return fs.ErrPermission
	}
	return nil
}

func isOtherDevice(err error) bool { return errors.Is(err, unix.EXDEV) }

// hasNoDisk tells that a file cannot be synced because there is nothing to be synced to, as in /proc.
func hasNoDisk(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) }
