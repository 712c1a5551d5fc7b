package files

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	openReach  = unix.O_PATH
	openAlways = unix.O_LARGEFILE
	utimeOmit  = unix.UTIME_OMIT
)

// hasProc tells whether a descriptor can be opened again by its name in /proc.
var hasProc = sync.OnceValue(func() bool {
	var st unix.Statfs_t
	return unix.Statfs("/proc/self/fd", &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
})

// isMagic tells whether the links in a directory may be such of /proc that lead to open files, whatever they say.
func isMagic(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.PROC_SUPER_MAGIC
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openBeneath opens a directory below another one, if no link is on the way.
func openBeneath(dir int, path string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	return unix.Openat2(dir, path, &how)
}

// openRegular opens the regular file at the place. It is looked at by a handle that opens no device and no FIFO, and
// that handle is then opened for real.
func (p place) openRegular(flags int) (*os.File, status, error) {
	if !hasProc() {
		return p.openNamed(flags)
	}
	handle, err := openat(p.fd(), p.name, unix.O_PATH|p.openFlags(), 0)
	if err != nil {
		return nil, status{}, err
	}
	defer unix.Close(handle) //nolint:errcheck // nothing was written to it
	st, err := statusOf(handle)
	if err == nil {
		err = st.regular()
	}
	if err != nil {
		return nil, status{}, err
	}
	flags |= unix.O_NOCTTY | unix.O_CLOEXEC
	if flags&unix.O_ACCMODE == unix.O_RDONLY && st.size == 0 {
		// Some of /proc's regular files wait for something to read; non-blocking, that can be broken off.
		flags |= unix.O_NONBLOCK
	}
	fd, err := openat(unix.AT_FDCWD, procPath(handle), flags, 0)
	if err == unix.EAGAIN { // another program has a lease on the file, and is asked to give it up
		fd, err = openat(unix.AT_FDCWD, procPath(handle), flags&^unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, status{}, err
	}
	return os.NewFile(uintptr(fd), p.name), st, nil
}

// handle opens what is at the place without opening it for anything.
func (p place) handle() (int, status, error) {
	fd, err := openat(p.fd(), p.name, unix.O_PATH|p.openFlags(), 0)
	if err != nil {
		return -1, status{}, err
	}
	st, err := statusOf(fd)
	if err == nil && p.links && st.isLink() {
		err = errSwapped
	}
	if err != nil {
		unix.Close(fd) //nolint:errcheck // nothing was written to it
		return -1, status{}, err
	}
	return fd, st, nil
}

// chmod sets the permission bits of what is at the place. A link has none.
func (p place) chmod(mode fs.FileMode) error {
	fd, st, err := p.handle()
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	if st.isLink() {
		return unix.EOPNOTSUPP
	}
	if !hasProc() {
		return again(func() error { return unix.Fchmodat(fd, "", unixMode(mode), unix.AT_EMPTY_PATH) })
	}
	return again(func() error { return unix.Fchmodat(unix.AT_FDCWD, procPath(fd), unixMode(mode), 0) })
}

// setTimes sets the times of what is at the place, of a link itself too.
func (p place) setTimes(times fileTimes) error {
	fd, _, err := p.handle()
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	return setTimes(fd, times)
}

func setTimes(fd int, times fileTimes) error {
	err := again(func() error { return unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH) })
	if err == unix.EINVAL || err == unix.ENOENT { // an old kernel
		err = again(func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, procPath(fd), times, 0) })
	}
	return err
}

// isMount tells whether another file system, or another part of one, is mounted at the place.
func (p place) isMount() (bool, error) {
	var st unix.Statx_t
	err := again(func() error {
		return unix.Statx(p.fd(), p.name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &st)
	})
	if err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	if err != nil && err != unix.ENOSYS && err != unix.EPERM {
		return false, err
	}
	return p.onOtherDevice()
}

func renameExclusive(from, to place) error {
	err := again(func() error {
		return unix.Renameat2(from.fd(), from.name, to.fd(), to.name, unix.RENAME_NOREPLACE)
	})
	if err == unix.EINVAL || err == unix.ENOSYS {
		if errByLink := renameByLink(from, to); !errors.Is(errByLink, unix.EPERM) {
			return errByLink
		}
	}
	return err
}

// canonical returns where the descriptor's file is, if that can be told.
func canonical(fd int) (string, bool) {
	if !hasProc() {
		return "", false
	}
	text, err := readlinkat(unix.AT_FDCWD, procPath(fd))
	if err != nil || text == "" || text[0] != '/' {
		return "", false
	}
	is, err := statusOf(fd)
	if err != nil {
		return "", false
	}
	named, err := place{name: text}.stat() // a removed file is called "… (deleted)"
	return text, err == nil && named.id == is.id
}

// syncSystem writes to its disk all that the file system of an open file still has in memory.
func syncSystem(fd int) error { return again(func() error { return unix.Syncfs(fd) }) }
