package files

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// unnamed makes a file without a name in the directory of the place, which nothing is left of whatever happens. It
// is nil where the file system has no such thing.
func (p place) unnamed(mode fs.FileMode) (*os.File, error) {
	if !hasProc() {
		return nil, nil
	}
	fd, err := openat(p.dir.fd, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, unixMode(mode))
	switch err {
	case nil:
		return os.NewFile(uintptr(fd), p.name), nil
	case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOENT:
		return nil, nil
	}
	return nil, err
}

// link gives the unnamed temporary the name of the place, if there is nothing yet.
func (t *temporary) link(to place) error {
	return control(t.file, func(fd int) error {
		return again(func() error {
			return unix.Linkat(unix.AT_FDCWD, procPath(fd), to.fd(), to.name, unix.AT_SYMLINK_FOLLOW)
		})
	})
}

// name gives the unnamed temporary a name for the moment until it is renamed.
func (t *temporary) name() error {
	for {
		at := t.at.sibling(temporaryName())
		err := t.link(at)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			t.at = at
		}
		return err
	}
}

func setFileTimes(file *os.File, _ place, times fileTimes) error {
	return control(file, func(fd int) error { return setTimes(fd, times) })
}
