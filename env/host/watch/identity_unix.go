//go:build unix

package watch

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/pathuri"
)

const convention = pathuri.Posix

// identity tells one file from another.
type identity struct{ device, number uint64 }

func identify(info fs.FileInfo) identity {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{uint64(st.Dev), uint64(st.Ino)}
}

// openDirectory opens a directory to list it, and nothing else; a link only if it is to be followed.
func openDirectory(path string, follow bool) (*os.File, error) {
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	for {
		fd, err := unix.Open(path, flags, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil // unlike os.Open without a try to poll it
		}
		if err != unix.EINTR {
			return nil, err
		}
	}
}
