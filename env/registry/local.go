package registry

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
)

const serverName = "exec-server"

// FindServer finds the exec-server that stands for this machine: beside our own executable, else on PATH.
func FindServer() (string, error) {
	beside, err := besideUs()
	if err != nil {
		return "", err
	}
	return findServer(beside, os.Getenv("PATH"))
}

// besideUs is the directory of our own executable.
func besideUs() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find our own executable: %w", err)
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	return filepath.Dir(self), nil
}

func findServer(beside, path string) (string, error) {
	name := serverName
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	for _, directory := range append([]string{beside}, filepath.SplitList(path)...) {
		// A relative element would mean another program in every directory.
		if !filepath.IsAbs(directory) {
			continue
		}
		file := filepath.Join(directory, name)
		if info, err := os.Stat(file); err == nil && runnable(info) {
			return file, nil
		}
	}
	return "", fmt.Errorf("no %s for this machine: neither in %s, beside this program, nor on PATH %s; install it in one of them, or name a server with -e URL",
		name, strconv.Quote(beside), strconv.Quote(path))
}

func runnable(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && (runtime.GOOS == "windows" || info.Mode().Perm()&0o111 != 0)
}
