package files

import (
	"io/fs"
	"strconv"
	"time"

	"waldo/env"
)

// status is what the system says of a file.
type status struct {
	size      int64
	mode      fs.FileMode
	modified  time.Time
	allocated int64 // -1: not known
	links     uint64
	id        identity
}

func (s *status) info() env.FileInfo {
	info := s.entry()
	info.Version = s.version()
	return info
}

// entry is info without what lists leave out.
func (s *status) entry() env.FileInfo {
	return env.FileInfo{Size: s.size, Mode: s.mode, Modified: s.modified, Allocated: s.allocated, Links: s.links}
}

// version is hexadecimal numbers: device, file number, size, time.
func (s *status) version() string {
	var room [80]byte
	b := s.id.append(room[:0])
	b = strconv.AppendUint(append(b, '-'), uint64(s.size), 16)
	b = strconv.AppendInt(append(b, '-'), s.modified.Unix(), 16)
	b = strconv.AppendUint(append(b, '-'), uint64(s.modified.Nanosecond()), 16)
	return string(b)
}

func (s *status) isLink() bool { return s.mode&fs.ModeSymlink != 0 }

// permissionBits are what chmod sets.
const permissionBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
