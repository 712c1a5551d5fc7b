//go:build unix && !linux

package files

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const (
	openReach  = unix.O_RDONLY
	openAlways = 0
	utimeOmit  = -2
)

func isMagic(int) bool { return false }

// openBeneath is done step by step here.
func openBeneath(int, string) (int, error) { return -1, unix.ENOSYS }

func (p place) openRegular(flags int) (*os.File, status, error) { return p.openNamed(flags) }

func (p place) chmod(mode fs.FileMode) error {
	return again(func() error { return unix.Fchmodat(p.fd(), p.name, unixMode(mode), p.atFlags()) })
}

func (p place) setTimes(times fileTimes) error {
	return again(func() error { return unix.UtimesNanoAt(p.fd(), p.name, times, p.atFlags()) })
}

func (p place) isMount() (bool, error) { return p.onOtherDevice() }

func renameExclusive(from, to place) error { return renameByLink(from, to) }

func syncSystem(fd int) error { return again(func() error { return unix.Fsync(fd) }) }

// canonical cannot be told here.
func canonical(int) (string, bool) { return "", false }
