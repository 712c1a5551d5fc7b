//go:build unix

package files

import (
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
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

// find returns the place that path names.
func (f *Files) find(path pathuri.URI, text string, how lookup) (place, error) {
	if f.confined() {
		w, err := f.walk(path, how&follow != 0)
		if err != nil {
			return place{}, err
		}
		return w.place(how&follow != 0), nil
	}
	if how&hold == 0 {
		return place{name: text, links: how&follow != 0}, nil
	}
	at := place{name: text, links: how&follow != 0}
	for range maxTries {
		parent, name := split(at.name)
		var fd int
		var err error
		if name == "." || name == ".." {
			parent, name = at.name, "."
		}
		fd, err = openat(at.fd(), parent, openReach|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		at.close()
		if err != nil {
			return place{}, err
		}
		at.dir, at.name = &directory{fd}, name
		if how&follow == 0 || name == "." {
			return at, nil
		}
		target, err := readlinkat(fd, name)
		if err != nil { // no link, or nothing: whoever opens it sees
			return at, nil
		}
		if at.magic = isMagic(fd); at.magic {
			return at, nil
		}
		at.name = target
	}
	at.close()
	return place{}, errLoop
}

// split parts a path into the directory to open and the name in it.
func split(path string) (parent, name string) {
	trimmed := strings.TrimRight(path, "/")
	if trimmed == "" {
		return "/", "."
	}
	if len(trimmed) < len(path) {
		return trimmed, "." // it says that it is a directory
	}
	i := strings.LastIndexByte(trimmed, '/')
	switch i {
	case -1:
		return ".", trimmed
	case 0:
		return "/", trimmed[1:]
	}
	return trimmed[:i], trimmed[i+1:]
}

// walker goes down from the directory that files are confined to, name by name and handle by handle. The kernel
// follows no link for it, so where it is, it has come to by directories below the root.
type walker struct {
	root  string       // as the links may spell it
	stack []*directory // from the root down to where it is
	names []string     // that led there; one less
	last  string       // in the topmost directory; "." is that itself
}

func (w *walker) top() *directory { return w.stack[len(w.stack)-1] }

func (w *walker) up(to int) {
	for len(w.stack) > to {
		w.top().close()
		w.stack = w.stack[:len(w.stack)-1]
	}
	w.names = w.names[:max(0, to-1)]
}

// place hands out what was found, and lets go of the rest.
func (w *walker) place(links bool) place {
	top := w.top()
	w.stack = w.stack[:len(w.stack)-1]
	w.up(0)
	return place{dir: top, name: w.last, links: links}
}

// openRoot opens the directory that files are confined to.
func (f *Files) openRoot() (*directory, error) {
	text, err := f.root.NativeFor(convention)
	if err != nil {
		return nil, err
	}
	var fd int
	err = f.outer.try(f.root, text, follow, func(p place) (err error) {
		fd, err = openat(p.fd(), p.name, openReach|unix.O_DIRECTORY|p.openFlags(), 0)
		return p.swapped(err)
	})
	if err != nil {
		return nil, err
	}
	return &directory{fd}, nil
}

// walk goes from the root to path, which must lie below it.
func (f *Files) walk(path pathuri.URI, links bool) (_ *walker, err error) {
	rel, ok := f.root.Rel(path)
	if !ok {
		return nil, errEscapes
	}
	root, err := f.openRoot()
	if err != nil {
		return nil, err
	}
	w := &walker{stack: []*directory{root}}
	defer func() {
		if err != nil {
			w.up(0)
		}
	}()
	if w.root, err = f.root.NativeFor(convention); err != nil {
		return nil, err
	}
	rest := strings.Split(rel, "/")
	if parent := rest[:len(rest)-1]; len(parent) > 0 {
		// Most paths have no link in them, and then the kernel goes the whole way in one step.
		if fd, err := openBeneath(root.fd, strings.Join(parent, "/")); err == nil {
			w.stack, w.names, w.last = append(w.stack, &directory{fd}), parent, rest[len(parent)]
			if !links {
				return w, nil
			}
			if _, err := readlinkat(fd, w.last); err != nil { // no link, or nothing: whoever opens it sees
				return w, nil
			}
			w.up(1)
		}
	}
	for tries := 0; ; {
		if len(rest) == 0 {
			w.last = "."
			return w, nil
		}
		name := rest[0]
		switch name {
		case "", ".":
			rest = rest[1:]
			continue
		case "..":
			if len(w.stack) == 1 {
				return nil, errEscapes
			}
			w.up(len(w.stack) - 1)
			rest = rest[1:]
			continue
		}
		last := len(rest) == 1
		if last && !links {
			w.last = name
			return w, nil
		}
		var fd int
		if !last {
			fd, err = openat(w.top().fd, name, openReach|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err == nil {
				w.stack, w.names, rest = append(w.stack, &directory{fd}), append(w.names, name), rest[1:]
				continue
			}
			if err != unix.ENOTDIR && err != unix.ELOOP && err != unix.EMLINK {
				return nil, err
			}
		}
		target, linkErr := readlinkat(w.top().fd, name)
		if linkErr != nil {
			if last { // no link, or nothing: whoever opens it sees
				w.last = name
				return w, nil
			}
			if st, statErr := w.top().child(name).lstat(); statErr != nil || !st.mode.IsDir() || tries > maxTries {
				return nil, err
			}
			tries++ // a directory has taken the link's place
			continue
		}
		if tries++; tries > maxTries {
			return nil, errLoop
		}
		if strings.HasPrefix(target, "/") {
			below, ok := belowRoot(w.root, target)
			if !ok {
				return nil, errEscapes
			}
			w.up(1)
			target = below
		}
		rest = append(strings.Split(target, "/"), rest[1:]...)
	}
}

// belowRoot returns what leads from the root to an absolute target, by spelling.
func belowRoot(root, target string) (string, bool) {
	if root == "/" {
		return target[1:], true
	}
	below, ok := strings.CutPrefix(target, root)
	if !ok || below != "" && below[0] != '/' {
		return "", false
	}
	return below, true
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

// listing reads the names in a directory.
type listing struct {
	directory // open to be read, so that entries are looked at in the very directory whose names these are
	file      *os.File
}

func (l *listing) close() { l.file.Close() } //nolint:errcheck // only read

// names returns some more names, io.EOF behind the last.
func (l *listing) names() ([]string, error) { return l.file.Readdirnames(256) }

// rewind starts again with the first name.
func (l *listing) rewind() error {
	_, err := l.file.Seek(0, io.SeekStart)
	return err
}

// list opens the directory at the place for its names.
func (p place) list() (*listing, error) {
	fd, err := openat(p.fd(), p.name, unix.O_RDONLY|unix.O_DIRECTORY|p.openFlags(), 0)
	if err != nil {
		return nil, p.swapped(err)
	}
	return &listing{directory{fd}, os.NewFile(uintptr(fd), p.name)}, nil
}

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

// syncDirectory makes names in the directory last. Where a directory cannot be read it is left to the machine.
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
	if err == unix.EINVAL || err == unix.ENOTSUP {
		return nil // this file system has nothing to do for it
	}
	return err
}

func statusOf(fd int) (status, error) {
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return status{}, err
	}
	return fromStat(&st), nil
}

func fileStatus(file *os.File) (st status, err error) {
	controlErr := control(file, func(fd int) error {
		st, err = statusOf(fd)
		return err
	})
	return st, controlErr
}

// control lends the descriptor of an open file.
func control(file *os.File, do func(fd int) error) (err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	if controlErr := raw.Control(func(fd uintptr) { err = do(int(fd)) }); controlErr != nil {
		return controlErr
	}
	return err
}

func fromStat(st *unix.Stat_t) status {
	return status{
		size:      st.Size,
		mode:      fileMode(uint32(st.Mode)),
		modified:  time.Unix(st.Mtim.Unix()),
		allocated: int64(st.Blocks) * 512,
		links:     uint64(st.Nlink),
		id:        identity{uint64(st.Dev), uint64(st.Ino)},
	}
}

// fileMode is a mode as io/fs has it.
func fileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	case unix.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		m |= fs.ModeDevice
	case unix.S_IFREG:
	default:
		m |= fs.ModeIrregular
	}
	if mode&unix.S_ISUID != 0 {
		m |= fs.ModeSetuid
	}
	if mode&unix.S_ISGID != 0 {
		m |= fs.ModeSetgid
	}
	if mode&unix.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// unixMode is the permission bits as chmod takes them.
func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		mode |= unix.S_ISUID
	}
	if m&fs.ModeSetgid != 0 {
		mode |= unix.S_ISGID
	}
	if m&fs.ModeSticky != 0 {
		mode |= unix.S_ISVTX
	}
	return mode
}

// fileTimes are the times of a file's last access and change.
type fileTimes []unix.Timespec

// timespecs are times as the kernel takes them; what is nil stays.
func timespecs(accessed, modified *time.Time) (fileTimes, error) {
	var result [2]unix.Timespec
	for i, t := range []*time.Time{accessed, modified} {
		if t == nil {
			result[i].Nsec = utimeOmit
			continue
		}
		var err error
		if result[i], err = unix.TimeToTimespec(*t); err != nil {
			return nil, coded{err, env.ErrInvalid}
		}
	}
	return result[:], nil
}

// again repeats a call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|openAlways, mode)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func readlinkat(dir int, name string) (string, error) {
	for size := 256; ; size *= 4 {
		b := make([]byte, size)
		n, err := unix.Readlinkat(dir, name, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", err
		}
		if n < size {
			return string(b[:n]), nil
		}
	}
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

// identity is the same for all names of a file, and for no two files at the same time.
type identity struct{ device, file uint64 }

func (i identity) same(other identity) bool { return i == other }

func (i identity) append(b []byte) []byte {
	b = strconv.AppendUint(b, i.device, 16)
	return strconv.AppendUint(append(b, '-'), i.file, 16)
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
