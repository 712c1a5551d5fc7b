//go:build unix

package search

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// A handle is an open directory.
type handle struct {
	fd   int
	file *os.File // that fd is of, if it came from outside
}

// identity tells one file from another.
type identity struct{ device, number uint64 }

func fromFile(f *os.File) (*handle, env.FileInfo, error) {
	// Fd makes the file blocking, which a directory is anyway.
	h := &handle{fd: int(f.Fd()), file: f}
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(h.fd, &st) }); err != nil {
		return nil, env.FileInfo{}, err
	}
	return h, infoOf(&st), nil
}

func (h *handle) close() {
	if h.file != nil {
		h.file.Close() //nolint:errcheck // only read
		return
	}
	unix.Close(h.fd) //nolint:errcheck // only read
}

const openFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// open opens a directory in h, never through a link.
func (h *handle) open(name string) (*handle, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Openat(h.fd, name, openFlags, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &handle{fd: fd}, nil
}

// above opens the directory that h is in.
func (h *handle) above() (*handle, error) { return h.open("..") }

func (h *handle) identity() (identity, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstat(h.fd, &st) })
	return identity{uint64(st.Dev), uint64(st.Ino)}, err
}

// describe describes an entry of h, and says where a link leads.
func (h *handle) describe(name string) (info env.FileInfo, target string, err error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(h.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) }); err != nil {
		return info, "", err
	}
	info = infoOf(&st)
	if info.Mode&fs.ModeSymlink != 0 {
		if target, err = h.readLink(name, info.Size); err != nil {
			return env.FileInfo{}, "", err
		}
	}
	return info, target, nil
}

func (h *handle) readLink(name string, size int64) (string, error) {
	for n := max(int(size), 127) + 1; ; n *= 2 { // /proc says 0 of its links, and a link may be replaced
		b := make([]byte, n)
		var got int
		err := retry(func() (err error) {
			got, err = unix.Readlinkat(h.fd, name, b)
			return err
		})
		switch {
		case err == unix.EINVAL:
			return "", fs.ErrNotExist // it is no link any more; what it was has vanished
		case err != nil:
			return "", err
		case got < n:
			return string(b[:got]), nil
		}
	}
}

// A reader reads directories; it is reused for the sake of its buffer.
type reader struct{ buffer []byte }

// names returns the names in a directory that was just opened; with an error, those read before it.
func (r *reader) names(h *handle) (names []string, err error) {
	if r.buffer == nil {
		r.buffer = make([]byte, 32<<10)
	}
	for {
		var n int
		err := retry(func() (err error) {
			n, err = unix.ReadDirent(h.fd, r.buffer)
			return err
		})
		if err != nil || n <= 0 {
			return names, err
		}
		_, _, names = unix.ParseDirent(r.buffer[:n], -1, names)
	}
}

// swapped reports whether err says that what was a directory is one no more.
func swapped(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) ||
		errors.Is(err, syscall.EMLINK) // which is what FreeBSD says of a link
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func infoOf(st *unix.Stat_t) env.FileInfo {
	mode := fs.FileMode(st.Mode & 0o777)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	}
	for _, bit := range []struct {
		has uint32
		is  fs.FileMode
	}{{unix.S_ISUID, fs.ModeSetuid}, {unix.S_ISGID, fs.ModeSetgid}, {unix.S_ISVTX, fs.ModeSticky}} {
		if uint32(st.Mode)&bit.has != 0 {
			mode |= bit.is
		}
	}
	seconds, nanoseconds := st.Mtim.Unix()
	return env.FileInfo{
		Size: st.Size, Mode: mode, Modified: time.Unix(seconds, nanoseconds),
		Allocated: int64(st.Blocks) * 512, Links: uint64(st.Nlink),
	}
}
