package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

const openNonblock = 0

// peerCredentials tells whether the system names the user at the other end of a unix socket. This one does not.
const peerCredentials = false

// maxSocketPath is the longest path that fits in a sockaddr_un with its zero byte.
const maxSocketPath = 107

// checkOwner says in words why a file is not this user's. The mode bits tell nothing here; what keeps others out is
// the access list that the state directory was made with and that files below it inherit.
func checkOwner(fs.FileInfo) error { return nil }

// checkPrivate says in words why a file or directory is not this user's alone; see checkOwner.
func checkPrivate(fs.FileInfo) error { return nil }

// restrictNew gives a directory that this process has just made an access list of its own: this user, the system and
// the administrators, and nothing inherited from above.
func restrictNew(path string) error {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return fmt.Errorf("directory %s: this user's id: %w", path, err)
	}
	list, err := windows.SecurityDescriptorFromString(fmt.Sprintf("D:P(A;OICI;FA;;;%s)(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)", user.User.Sid))
	if err != nil {
		return fmt.Errorf("directory %s: access list: %w", path, err)
	}
	dacl, _, err := list.DACL()
	if err != nil {
		return fmt.Errorf("directory %s: access list: %w", path, err)
	}
	err = windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, dacl, nil)
	// A file system without access lists (FAT, some shares) has nothing to set.
	if err != nil && !errors.Is(err, windows.ERROR_NOT_SUPPORTED) && !errors.Is(err, windows.ERROR_INVALID_FUNCTION) {
		return fmt.Errorf("directory %s: access list: %w", path, err)
	}
	return nil
}

// tryLock takes the lock of an open file, alone or shared with others, or says with false that another process has it.
// The locked byte lies far behind the content, because a locked one could not be read by others.
func tryLock(f *os.File, shared bool) (bool, error) {
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if !shared {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	at := &windows.Overlapped{OffsetHigh: 0x7fff0000}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// socketPath is the file of a unix address: unix:///C:/x.sock is C:\x.sock.
func socketPath(path string) string {
	if len(path) > 2 && path[0] == '/' && path[2] == ':' {
		path = path[1:]
	}
	return filepath.FromSlash(path)
}

// lockDir does nothing: a directory has no lock here.
func lockDir(context.Context, string) (unlock func()) { return func() {} }

// isSocket reports whether a file is a unix socket; some versions show it as an irregular file.
func isSocket(info fs.FileInfo) bool { return info.Mode()&(fs.ModeSocket|fs.ModeIrregular) != 0 }

// connRefused reports whether nobody listens any more.
func connRefused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

// sameUser reports whether the process at the other end is this user's, which this system does not tell.
func sameUser(net.Conn) bool { return false }
