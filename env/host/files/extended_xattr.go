//go:build linux || darwin

package files

import (
	"bytes"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// copyAttributes gives one file the extended attributes of another, access control lists on Linux among them.
func copyAttributes(from, to *os.File) error {
	return control(from, func(from int) error {
		return control(to, func(to int) error {
			names, err := attributeNames(from)
			if err != nil {
				return err
			}
			for _, name := range names {
				if name == "security.ima" || name == "security.evm" { // these are of the content
					continue
				}
				value, err := attribute(from, name)
				if err != nil {
					return err
				}
				if has, err := attribute(to, name); err == nil && bytes.Equal(has, value) {
					continue
				}
				if err := again(func() error { return unix.Fsetxattr(to, name, value, 0) }); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func attributeNames(fd int) ([]string, error) {
	list, err := grow(func(b []byte) (int, error) { return unix.Flistxattr(fd, b) })
	if err == unix.ENOTSUP || err == unix.ENOSYS {
		return nil, nil
	}
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00"), nil
}

func attribute(fd int, name string) ([]byte, error) {
	return grow(func(b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
}

// grow calls get with more and more room until it is enough.
func grow(get func(b []byte) (int, error)) ([]byte, error) {
	for size := 256; ; size *= 4 {
		b := make([]byte, size)
		n, err := get(b)
		switch err {
		case nil:
			return b[:n], nil
		case unix.EINTR:
			size /= 4
		case unix.ERANGE:
		default:
			return nil, err
		}
		if size > 1<<20 {
			return nil, unix.E2BIG
		}
	}
}
