package files

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"

	"waldo/env"
)

// codeOf is what the contract calls an error of the system, nil where errors.Is finds it already.
func codeOf(err error) error {
	if strings.Contains(err.Error(), "path escapes from parent") { // package os has no name for it
		return fs.ErrPermission
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return nil
	}
	switch errno {
	case syscall.EISDIR:
		return env.ErrIsDirectory
	case syscall.ENOTDIR, windows.ERROR_DIRECTORY:
		return env.ErrNotDirectory
	case syscall.ENOTEMPTY, windows.ERROR_DIR_NOT_EMPTY:
		return env.ErrNotEmpty
	case syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EINVAL, windows.ERROR_INVALID_NAME, windows.ERROR_BAD_PATHNAME,
		windows.ERROR_FILENAME_EXCED_RANGE, windows.ERROR_CANT_RESOLVE_FILENAME, windows.ERROR_INVALID_PARAMETER:
		return env.ErrInvalid
	case windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED,
		windows.ERROR_TOO_MANY_OPEN_FILES, windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_TOO_MANY_LINKS:
		return env.ErrLimit
	case windows.ERROR_FILE_TOO_LARGE:
		return env.ErrTooLarge
	case windows.ERROR_WRITE_PROTECT, windows.ERROR_SHARING_VIOLATION, windows.ERROR_LOCK_VIOLATION:
		return fs.ErrPermission
	case windows.ERROR_INVALID_FUNCTION:
		return errors.ErrUnsupported
	}
	return nil
}

func isOtherDevice(err error) bool { return errors.Is(err, windows.ERROR_NOT_SAME_DEVICE) }

func hasNoDisk(error) bool { return false }
