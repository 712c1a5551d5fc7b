package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/windows"

	"waldo/pathuri"
)

const convention = pathuri.Windows

// directory is a directory held open, to reach what is in it.
type directory struct {
	root *os.Root
	path string
}

func (d *directory) close() { d.root.Close() } //nolint:errcheck // nothing was written to it

func (d *directory) status() (status, error) { return fromInfo(d.root.Stat(".")) }

func (d *directory) child(name string) place { return place{dir: d, name: name} }

func openDirectory(path string) (*directory, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &directory{root, path}, nil
}

// place is a name in a directory that is held open; "." is the directory itself. Without a directory the name is a
// whole path.
type place struct {
	dir   *directory
	name  string
	links bool // a link in the last name is followed, or has been already
}

func (p place) close() {
	if p.dir != nil {
		p.dir.close()
	}
}

func (p place) isDirectoryItself() bool {
	return p.name == "." || p.dir == nil && filepath.Dir(p.name) == p.name
}

func (p place) isMagic() bool { return false }

func (p place) sibling(name string) place {
	return place{dir: p.dir, name: filepath.Join(filepath.Dir(p.name), name)}
}

// find returns the place that path names. Confined, all links but the last are followed by the root that is held
// open, which they cannot leave; the last one is followed here, and where it leads is looked up in that root again.
func (f *Files) find(path pathuri.URI, text string, how lookup) (place, error) {
	if f.confined() {
		return f.findBelow(path, how)
	}
	p := place{name: text, links: how&follow != 0}
	if how&hold == 0 {
		return p, nil
	}
	for range maxTries {
		target, err := os.Readlink(p.name)
		if how&follow == 0 || err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(p.name), target)
		}
		p.name = target
	}
	parent, name := filepath.Dir(p.name), filepath.Base(p.name)
	if parent == p.name {
		name = "."
	}
	dir, err := openDirectory(parent)
	p.dir, p.name = dir, name
	return p, err
}

func (f *Files) findBelow(path pathuri.URI, how lookup) (_ place, err error) {
	rel, ok := f.root.Rel(path)
	if !ok {
		return place{}, errEscapes
	}
	if _, err := path.Native(); err != nil { // a name that Windows would read in another way
		return place{}, err
	}
	rel = filepath.Clean(filepath.FromSlash(rel))
	dir, err := f.openRoot()
	if err != nil {
		return place{}, err
	}
	defer func() {
		if err != nil {
			dir.close()
		}
	}()
	for tries := 0; how&follow != 0; tries++ {
		target, err := dir.root.Readlink(rel)
		if err != nil {
			break // no link, or nothing: whoever opens it sees
		}
		if tries == maxTries {
			return place{}, errLoop
		}
		if filepath.IsAbs(target) {
			if target, ok = belowRoot(dir.path, target); !ok {
				return place{}, errEscapes
			}
		} else {
			target = filepath.Join(filepath.Dir(rel), target)
		}
		if rel = filepath.Clean(target); !filepath.IsLocal(rel) {
			return place{}, errEscapes
		}
	}
	if how&hold == 0 || rel == "." {
		return place{dir: dir, name: rel, links: how&follow != 0}, nil
	}
	parent, err := dir.root.OpenRoot(filepath.Dir(rel))
	if err != nil {
		return place{}, err
	}
	dir.close()
	dir = &directory{parent, filepath.Join(dir.path, filepath.Dir(rel))}
	return place{dir: dir, name: filepath.Base(rel), links: how&follow != 0}, nil
}

// openRoot opens the directory that files are confined to.
func (f *Files) openRoot() (dir *directory, err error) {
	text, err := f.root.NativeFor(convention)
	if err != nil {
		return nil, err
	}
	err = f.outer.try(f.root, text, follow, func(p place) error {
		if p.dir == nil {
			dir, err = openDirectory(p.name)
			return err
		}
		root, err := p.dir.root.OpenRoot(p.name)
		dir = &directory{root, text}
		return err
	})
	return dir, err
}

// belowRoot returns what leads from the root to an absolute target, by spelling.
func belowRoot(root, target string) (string, bool) {
	root = strings.TrimRight(root, `\`)
	if len(target) < len(root) || !strings.EqualFold(target[:len(root)], root) {
		return "", false
	}
	rest := target[len(root):]
	if rest != "" && rest[0] != '\\' {
		return "", false
	}
	return filepath.Clean(strings.TrimLeft(rest, `\`)), true
}

func (p place) stat() (status, error) {
	switch {
	case p.dir == nil && p.links:
		return fromInfo(os.Stat(p.name))
	case p.dir == nil:
		return fromInfo(os.Lstat(p.name))
	case p.links:
		return fromInfo(p.dir.root.Stat(p.name))
	}
	return fromInfo(p.dir.root.Lstat(p.name))
}

func (p place) lstat() (status, error) {
	p.links = false
	return p.stat()
}

func (p place) target() (status, error) {
	p.links = true
	return p.stat()
}

func (p place) readlink() (string, error) {
	st, err := p.lstat()
	if err != nil {
		return "", err
	}
	if !st.isLink() {
		return "", errNotLink
	}
	if p.dir == nil {
		return os.Readlink(p.name)
	}
	return p.dir.root.Readlink(p.name)
}

func (p place) open(flags int, mode fs.FileMode) (*os.File, error) {
	if p.dir == nil {
		return os.OpenFile(p.name, flags, mode)
	}
	return p.dir.root.OpenFile(p.name, flags, mode)
}

// openDirectory opens the directory at the place to reach what is in it; a link is not followed.
func (p place) openDirectory() (*directory, error) {
	st, err := p.lstat()
	if err != nil {
		return nil, err
	}
	if !st.mode.IsDir() {
		return nil, errNotDirectory
	}
	dir, err := p.enter()
	if err != nil {
		return nil, err
	}
	if opened, err := dir.status(); err != nil || !opened.id.same(st.id) {
		dir.close()
		return nil, errNotDirectory // something else by now
	}
	return dir, nil
}

func (p place) enter() (*directory, error) {
	if p.dir == nil {
		return openDirectory(p.name)
	}
	root, err := p.dir.root.OpenRoot(p.name)
	if err != nil {
		return nil, err
	}
	return &directory{root, filepath.Join(p.dir.path, p.name)}, nil
}

func (d *directory) parent() (*directory, error) {
	path, err := filepath.EvalSymlinks(d.path)
	if err != nil {
		return nil, err
	}
	return openDirectory(filepath.Dir(path))
}

// listing reads the names in a directory.
type listing struct {
	*directory // open to be read, so that entries are looked at in the very directory whose names these are
	file       *os.File
}

func (l *listing) close() {
	l.file.Close() //nolint:errcheck // only read
	l.directory.close()
}

// names returns some more names, io.EOF behind the last.
func (l *listing) names() ([]string, error) { return l.file.Readdirnames(256) }

// rewind starts again with the first name.
func (l *listing) rewind() error {
	_, err := l.file.Seek(0, io.SeekStart)
	return err
}

func (p place) list() (*listing, error) {
	st, err := p.stat()
	if err != nil {
		return nil, err
	}
	if !st.mode.IsDir() {
		return nil, errNotDirectory
	}
	open := p.openDirectory
	if p.links {
		open = p.enter
	}
	dir, err := open()
	if err != nil {
		return nil, err
	}
	file, err := dir.root.Open(".")
	if err != nil {
		dir.close()
		return nil, err
	}
	return &listing{dir, file}, nil
}

func (p place) create(flags int, mode fs.FileMode) (*os.File, error) {
	return p.open(flags|os.O_CREATE|os.O_EXCL, mode)
}

func (p place) openRegular(flags int) (*os.File, status, error) {
	if !p.links {
		if st, err := p.lstat(); err == nil && st.isLink() {
			return nil, status{}, errSwapped
		}
	}
	file, err := p.open(flags, 0)
	if err != nil {
		if st, statErr := p.stat(); statErr == nil && st.mode.IsDir() {
			err = syscall.EISDIR
		}
		return nil, status{}, err
	}
	st, err := fileStatus(file)
	switch {
	case err != nil:
	case st.mode.IsDir():
		err = syscall.EISDIR
	case !st.mode.IsRegular():
		err = errSpecial
	default:
		return file, st, nil
	}
	file.Close() //nolint:errcheck // nothing was written to it
	return nil, status{}, err
}

func (s *status) regular() error {
	if s.mode.IsDir() {
		return syscall.EISDIR
	}
	return errSpecial
}

func (p place) mkdir(mode fs.FileMode) error {
	if p.dir == nil {
		return os.Mkdir(p.name, mode)
	}
	return p.dir.root.Mkdir(p.name, mode)
}

func (p place) unlink() error {
	if p.dir == nil {
		return os.Remove(p.name)
	}
	return p.dir.root.Remove(p.name)
}

func (p place) rmdir() error { return p.unlink() }

func (p place) symlink(target string) error {
	if p.dir == nil {
		return os.Symlink(target, p.name)
	}
	return p.dir.root.Symlink(target, p.name)
}

// pair does what has two places, by whole paths or in the one directory that both are in.
func pair(from, to place, whole func(from, to string) error, in func(r *os.Root, from, to string) error) error {
	switch {
	case from.dir == nil && to.dir == nil:
		return whole(from.name, to.name)
	case from.dir != nil && to.dir != nil && from.dir.path == to.dir.path:
		return in(from.dir.root, from.name, to.name)
	}
	return errors.ErrUnsupported
}

func link(from, to place) error { return pair(from, to, os.Link, (*os.Root).Link) }

func rename(from, to place) error { return pair(from, to, os.Rename, (*os.Root).Rename) }

func renameExclusive(from, to place) error {
	if _, err := to.lstat(); err == nil {
		return fs.ErrExist
	}
	if from.dir == nil && to.dir == nil {
		return pair(from, to, moveExclusive, nil)
	}
	return renameByLink(from, to)
}

func moveExclusive(from, to string) error {
	f, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	t, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	return windows.MoveFileEx(f, t, 0)
}

// renameByLink gives a file its second name first, which fails where there is something. A directory takes no
// other one's place anyway.
func renameByLink(from, to place) error {
	st, err := from.lstat()
	if err != nil {
		return err
	}
	if !st.mode.IsRegular() {
		if _, err := to.lstat(); err == nil {
			return fs.ErrExist
		}
		return rename(from, to)
	}
	if err := link(from, to); err != nil {
		return err
	}
	return from.unlink()
}

func (d *directory) sync() error { return nil } // a directory cannot be synced here

func fileStatus(file *os.File) (status, error) {
	st, err := fromInfo(file.Stat())
	if err != nil {
		return status{}, err
	}
	var info windows.ByHandleFileInformation
	if windows.GetFileInformationByHandle(windows.Handle(file.Fd()), &info) == nil {
		st.links = uint64(info.NumberOfLinks)
	}
	return st, nil
}

func fromInfo(info fs.FileInfo, err error) (status, error) {
	if err != nil {
		return status{}, err
	}
	st := status{size: info.Size(), mode: info.Mode(), modified: info.ModTime(), allocated: -1, id: identity{info: info}}
	if data, ok := info.Sys().(*syscall.Win32FileAttributeData); ok {
		st.id.created = data.CreationTime.Nanoseconds()
	}
	return st, nil
}

// identity is the same for all names of a file, and for no two files at the same time.
type identity struct {
	info    fs.FileInfo
	created int64
}

func (i identity) same(other identity) bool {
	return i.info != nil && other.info != nil && os.SameFile(i.info, other.info)
}

func (i identity) append(b []byte) []byte { return strconv.AppendInt(b, i.created, 16) }

func (p place) chmod(mode fs.FileMode) error {
	if p.dir == nil {
		return os.Chmod(p.name, mode)
	}
	return p.dir.root.Chmod(p.name, mode)
}

// fileTimes are the times of a file's last access and change; zero leaves one as it is.
type fileTimes struct{ accessed, modified time.Time }

func timespecs(accessed, modified *time.Time) (times fileTimes, err error) {
	if accessed != nil {
		times.accessed = *accessed
	}
	if modified != nil {
		times.modified = *modified
	}
	return times, nil
}

func (p place) setTimes(times fileTimes) error {
	if st, err := p.lstat(); err == nil && st.isLink() && !p.links {
		return nil // those of a link itself cannot be set
	}
	if p.dir == nil {
		return os.Chtimes(p.name, times.accessed, times.modified)
	}
	return p.dir.root.Chtimes(p.name, times.accessed, times.modified)
}

// isMount tells nothing here: what is mounted in a directory is removed as the link that it is, never entered.
func (p place) isMount() (bool, error) {
	_, err := p.lstat()
	return false, err
}

func (p place) syncSystem() error {
	st, err := p.stat()
	if err != nil || st.mode.IsDir() {
		return err
	}
	file, _, err := p.openRegular(os.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it is synced
	return file.Sync()
}
