package search

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"waldo/env"
)

// A handle is an open directory.
type handle struct {
	root *os.Root
}

// identity tells one file from another. Here nothing is opened again from below, so none is needed.
type identity struct{}

func fromFile(f *os.File) (*handle, env.FileInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, env.FileInfo{}, err
	}
	if !info.IsDir() {
		return &handle{}, infoOf(info), f.Close()
	}
	// A root can be opened by its path only, so it is made sure that it is the same directory.
	root, err := os.OpenRoot(f.Name())
	if err != nil {
		return nil, env.FileInfo{}, err
	}
	again, err := root.Stat(".")
	if err == nil && !os.SameFile(info, again) {
		err = env.ErrChanged
	}
	if err != nil {
		root.Close() //nolint:errcheck // only read
		return nil, env.FileInfo{}, err
	}
	return &handle{root: root}, infoOf(info), f.Close()
}

func (h *handle) close() {
	if h.root != nil {
		h.root.Close() //nolint:errcheck // only read
	}
}

// open opens a directory in h, never through a link.
func (h *handle) open(name string) (*handle, error) {
	before, err := h.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, syscall.ENOTDIR
	}
	root, err := h.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	// A link in the root that leads elsewhere in the root would have been followed.
	after, err := root.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = syscall.ENOTDIR
	}
	if err != nil {
		root.Close() //nolint:errcheck // only read
		return nil, err
	}
	return &handle{root: root}, nil
}

func (h *handle) above() (*handle, error) { return nil, errors.ErrUnsupported }

// identity fails, which keeps the directory open.
func (h *handle) identity() (identity, error) { return identity{}, errors.ErrUnsupported }

// describe describes an entry of h, and says where a link leads.
func (h *handle) describe(name string) (env.FileInfo, string, error) {
	info, err := h.root.Lstat(name)
	if err != nil {
		return env.FileInfo{}, "", err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = h.root.Readlink(name); err != nil {
			return env.FileInfo{}, "", err
		}
	}
	return infoOf(info), target, nil
}

// A reader reads directories.
type reader struct{}

// names returns the names in a directory that was just opened; with an error, those read before it.
func (*reader) names(h *handle) ([]string, error) {
	f, err := h.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return f.Readdirnames(-1)
}

// swapped reports whether err says that what was a directory is one no more.
func swapped(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func infoOf(info fs.FileInfo) env.FileInfo {
	return env.FileInfo{Size: info.Size(), Mode: info.Mode(), Modified: info.ModTime(), Allocated: -1}
}
