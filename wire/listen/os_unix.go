//go:build unix

package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const openNonblock = unix.O_NONBLOCK

// peerCredentials tells whether the system names the user at the other end of a unix socket.
const peerCredentials = true

// maxSocketPath is the longest path that fits in a sockaddr_un with its zero byte.
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// checkOwner says in words why a file is not this user's.
func checkOwner(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("has an owner that is not known")
	}
	if int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("belongs to user %d, not to this one (%d)", stat.Uid, os.Geteuid())
	}
	return nil
}

// checkPrivate says in words why a file or directory is not this user's alone.
func checkPrivate(info fs.FileInfo) error {
	if err := checkOwner(info); err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("is open to others (mode %04o); chmod go= it", mode)
	}
	return nil
}

// restrictNew closes a directory that this process has just made; Mkdir's mode did.
func restrictNew(string) error { return nil }

// tryLock takes the lock of an open file, alone or shared with others, or says with false that another process has it.
func tryLock(f *os.File, shared bool) (bool, error) {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch err {
		case nil:
			return true, nil
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			return false, nil
		default:
			return false, err
		}
	}
}

// socketPath is the file of a unix address.
func socketPath(path string) string { return path }

// lockDir keeps other servers from looking for a dead socket in the directory while this one does. The lock is on the
// directory itself, so nothing is left behind. Who holds it too long is not waited for: it may be a stranger.
func lockDir(ctx context.Context, dir string) (unlock func()) {
	f, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	deadline := time.Now().Add(2 * time.Second)
	for {
		ok, err := tryLock(f, false)
		if ok || err != nil || ctx.Err() != nil || time.Now().After(deadline) {
			return func() { f.Close() }
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// isSocket reports whether a file is a unix socket.
func isSocket(info fs.FileInfo) bool { return info.Mode()&fs.ModeSocket != 0 }

// connRefused reports whether nobody listens any more.
func connRefused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

// sameUser reports whether the process at the other end is this user's, as the kernel tells.
func sameUser(c net.Conn) bool {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	err = raw.Control(func(fd uintptr) {
		uid, err := peerUID(int(fd))
		same = err == nil && uid == os.Geteuid()
	})
	return err == nil && same
}
