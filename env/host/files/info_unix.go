//go:build unix

package files

import (
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
)

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

// identity is the same for all names of a file, and for no two files at the same time.
type identity struct{ device, file uint64 }

func (i identity) same(other identity) bool { return i == other }

func (i identity) append(b []byte) []byte {
	b = strconv.AppendUint(b, i.device, 16)
	return strconv.AppendUint(append(b, '-'), i.file, 16)
}
