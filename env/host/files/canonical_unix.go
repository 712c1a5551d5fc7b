//go:build unix

package files

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"waldo/pathuri"
)

func (f *Files) canonicalize(path pathuri.URI, text string) (pathuri.URI, error) {
	if f.confined() {
		return f.canonicalBelow(path)
	}
	fd, err := openat(unix.AT_FDCWD, text, openReach|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	switch err {
	case unix.ELOOP, unix.ENOENT, unix.ENOTDIR, unix.ENAMETOOLONG:
		return pathuri.URI{}, err
	case nil:
		found, ok := canonical(fd)
		unix.Close(fd) //nolint:errcheck // nothing was written to it
		if ok {
			return pathuri.FromNative(found, convention)
		}
	}
	// The kernel cannot tell, or not this one: name by name then.
	found, err := filepath.EvalSymlinks(text)
	if err != nil {
		return pathuri.URI{}, err
	}
	return pathuri.FromNative(found, convention)
}

// canonicalBelow is the names by which the walk came to the file.
func (f *Files) canonicalBelow(path pathuri.URI) (pathuri.URI, error) {
	for range maxTries {
		w, err := f.walk(path, true)
		if err != nil {
			return pathuri.URI{}, err
		}
		names := w.names
		if w.last != "." {
			names = append(names, w.last)
		}
		p := w.place(true)
		_, err = p.stat()
		p.close()
		if err == errSwapped { //nolint:errorlint // it is never wrapped
			continue
		}
		if err != nil {
			return pathuri.URI{}, err
		}
		result := f.root
		for _, name := range names {
			if result, err = result.JoinName(name); err != nil {
				return pathuri.URI{}, err
			}
		}
		return result, nil
	}
	return pathuri.URI{}, errLoop
}
