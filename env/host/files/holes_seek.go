//go:build linux || darwin || freebsd

package files

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// nextData returns where the next data at or behind from begins and ends; io.EOF if there is none.
func nextData(file *os.File, from int64) (start, end int64, err error) {
	start, err = file.Seek(from, unix.SEEK_DATA)
	if err == nil {
		end, err = file.Seek(start, unix.SEEK_HOLE)
	}
	switch {
	case err == nil:
		return start, end, nil
	case errors.Is(err, unix.ENXIO):
		return 0, 0, io.EOF
	case errors.Is(err, unix.EINVAL):
		return 0, 0, errors.ErrUnsupported
	}
	return 0, 0, err
}
