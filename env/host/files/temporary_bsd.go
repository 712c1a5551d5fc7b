//go:build unix && !linux

package files

import (
	"errors"
	"io/fs"
	"os"
)

func (p place) unnamed(fs.FileMode) (*os.File, error) { return nil, nil }

func (t *temporary) link(place) error { return errors.ErrUnsupported }

func (t *temporary) name() error { return errors.ErrUnsupported }

func setFileTimes(_ *os.File, at place, times fileTimes) error {
	at.links = false
	return at.setTimes(times)
}
