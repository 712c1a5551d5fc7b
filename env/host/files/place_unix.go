//go:build unix

package files

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"waldo/pathuri"
)

const convention = pathuri.Posix

// directory is a directory held open, to reach what is in it. It cannot always be read.
type directory struct{ fd int }

func (d *directory) close() { unix.Close(d.fd) } //nolint:errcheck // nothing was written to it

func (d *directory) status() (status, error) { return statusOf(d.fd) }

func (d *directory) child(name string) place { return place{dir: d, name: name} }

// place is a name in a directory that is held open; "." is the directory itself. Without a directory the name is a
// whole path, which the kernel resolves in one step.
type place struct {
	dir   *directory
	name  string
	links bool // a link in the last name is followed: by the kernel in a whole path, else it has been already
	magic bool // it is one that only the kernel can follow
}

func (p place) close() {
	if p.dir != nil {
		p.dir.close()
	}
}

func (p place) fd() int {
	if p.dir == nil {
		return unix.AT_FDCWD
	}
	return p.dir.fd
}

// isDirectoryItself tells whether the place is a directory without a name to it: a root, or what ".." led to.
func (p place) isDirectoryItself() bool { return p.name == "." || p.name == "/" }

// isMagic tells whether the place is a link that leads to a file with, maybe, no name.
func (p place) isMagic() bool { return p.magic }

// sibling is another name in the same directory, which must be held.
func (p place) sibling(name string) place { return place{dir: p.dir, name: name} }

// kernelFollows tells whether the kernel is to follow a link in the last name.
func (p place) kernelFollows() bool { return p.links && (p.dir == nil || p.magic) }

func (p place) atFlags() int {
	if p.kernelFollows() {
		return 0
	}
	return unix.AT_SYMLINK_NOFOLLOW
}

func (p place) openFlags() int {
	if p.kernelFollows() {
		return unix.O_CLOEXEC
	}
	return unix.O_CLOEXEC | unix.O_NOFOLLOW
}

// swapped is err, or errSwapped if it says that a link is in the way which was not there a moment before.
func (p place) swapped(err error) error {
	if err == nil || p.kernelFollows() {
		return err
	}
	if err == unix.ELOOP || err == unix.EMLINK || err == unix.ENOTDIR {
		if st, statErr := p.lstat(); statErr == nil && st.isLink() {
			return errSwapped
		}
	}
	return err
}

// stat describes what is at the place.
func (p place) stat() (status, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstatat(p.fd(), p.name, &st, p.atFlags()) }); err != nil {
		return status{}, err
	}
	s := fromStat(&st)
	if p.links && s.isLink() {
		return status{}, errSwapped
	}
	return s, nil
}

// lstat is stat of a link itself.
func (p place) lstat() (status, error) {
	p.links = false
	return p.stat()
}

func (p place) readlink() (string, error) {
	target, err := readlinkat(p.fd(), p.name)
	if err == unix.EINVAL {
		return "", errNotLink
	}
	return target, err
}

// openDirectory opens the directory at the place to reach what is in it; a link is not followed.
func (p place) openDirectory() (*directory, error) {
	fd, err := openat(p.fd(), p.name, openReach|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &directory{fd}, nil
}

// parent opens the directory above, as far as there is one.
func (d *directory) parent() (*directory, error) { return place{dir: d, name: ".."}.openDirectory() }

// create makes a regular file of this mode, less what the umask takes, that must not be there yet.
func (p place) create(flags int, mode fs.FileMode) (*os.File, error) {
	fd, err := openat(p.fd(), p.name, flags|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, unixMode(mode))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), p.name), nil
}

// openNamed opens the regular file at the place by its name, without ever waiting for a FIFO or taking a terminal.
func (p place) openNamed(flags int) (*os.File, status, error) {
	fd, err := openat(p.fd(), p.name, flags|unix.O_NONBLOCK|unix.O_NOCTTY|p.openFlags(), 0)
	if err != nil {
		return nil, status{}, p.swapped(err)
	}
	st, err := statusOf(fd)
	if err == nil {
		err = st.regular()
	}
	if err != nil {
		unix.Close(fd) //nolint:errcheck // nothing was written to it
		return nil, status{}, err
	}
	return os.NewFile(uintptr(fd), p.name), st, nil
}

// regular is why it is no regular file.
func (s *status) regular() error {
	switch {
	case s.mode.IsRegular():
		return nil
	case s.mode.IsDir():
		return unix.EISDIR
	case s.isLink():
		return errSwapped
	}
	return errSpecial
}

func (p place) mkdir(mode fs.FileMode) error {
	return again(func() error { return unix.Mkdirat(p.fd(), p.name, unixMode(mode)) })
}

func (p place) unlink() error {
	return again(func() error { return unix.Unlinkat(p.fd(), p.name, 0) })
}

func (p place) rmdir() error {
	return again(func() error { return unix.Unlinkat(p.fd(), p.name, unix.AT_REMOVEDIR) })
}

func (p place) symlink(target string) error {
	return again(func() error { return unix.Symlinkat(target, p.fd(), p.name) })
}

func link(from, to place) error {
	return again(func() error { return unix.Linkat(from.fd(), from.name, to.fd(), to.name, 0) })
}

func rename(from, to place) error {
	return again(func() error { return unix.Renameat(from.fd(), from.name, to.fd(), to.name) })
}

// renameByLink renames to a name that is not there yet, where the system cannot do so in one step. A directory may
// take the place of an empty one that was just made, anything else gets its second name first.
func renameByLink(from, to place) error {
	st, err := from.lstat()
	if err != nil {
		return err
	}
	if st.mode.IsDir() {
		if err := to.mkdir(0o700); err != nil {
			return err
		}
		if err := rename(from, to); err != nil {
			to.rmdir() //nolint:errcheck // it was made above, and is empty or not ours any more
			return err
		}
		return nil
	}
	if err := link(from, to); err != nil {
		return err
	}
	return from.unlink()
}

// sync makes names in the directory last. Where a directory cannot be read it is left to the machine.
func (d *directory) sync() error {
	fd, err := openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.EACCES {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // only read
	err = again(func() error { return unix.Fsync(fd) })
	if hasNoDisk(err) {
		return nil
	}
	return err
}

// onOtherDevice tells whether what is at the place lies on another device than its directory.
func (p place) onOtherDevice() (bool, error) {
	st, err := p.lstat()
	if err != nil {
		return false, err
	}
	above, err := p.dir.status()
	return st.mode.IsDir() && st.id.device != above.id.device, err
}

// target describes what the link at the place leads to, wherever that is, only to tell whether it is a certain file.
func (p place) target() (status, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstatat(p.fd(), p.name, &st, 0) }); err != nil {
		return status{}, err
	}
	return fromStat(&st), nil
}

// syncSystem syncs the file system that what is at the place lies on.
func (p place) syncSystem() error {
	st, err := p.stat()
	if err != nil {
		return err
	}
	if st.mode.IsDir() {
		l, err := p.list()
		if err != nil {
			return err
		}
		defer l.close()
		return syncSystem(l.fd)
	}
	file, _, err := p.openRegular(os.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	return control(file, syncSystem)
}
