package files

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

func (p place) unnamed(fs.FileMode) (*os.File, error) { return nil, nil }

func (t *temporary) link(place) error { return errors.ErrUnsupported }

func (t *temporary) name() error { return errors.ErrUnsupported }

// resemble tells whether the temporary has the access control list of the file that it is to replace: that is so
// where that has all of it from the directory, as the temporary has.
func (t *temporary) resemble(old *os.File) bool {
	security, err := windows.GetSecurityInfo(windows.Handle(old.Fd()), windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		// The handle may only write. A file system without lists has none to be lost.
		return errors.Is(err, windows.ERROR_NOT_SUPPORTED) || errors.Is(err, windows.ERROR_INVALID_FUNCTION)
	}
	list, _, err := security.DACL()
	if err != nil || list == nil {
		return true
	}
	for i := range uint32(list.AceCount) {
		var entry *windows.ACCESS_ALLOWED_ACE
		if windows.GetAce(list, i, &entry) != nil || entry.Header.AceFlags&windows.INHERITED_ACE == 0 {
			return false
		}
	}
	return true
}

func setFileTimes(_ *os.File, at place, times fileTimes) error {
	at.links = false
	return at.setTimes(times)
}

// isRunning tells that a file cannot be written because it is run; here it cannot be replaced either.
func isRunning(error) bool { return false }
