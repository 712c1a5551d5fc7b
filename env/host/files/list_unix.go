//go:build unix

package files

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

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
