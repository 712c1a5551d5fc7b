package host

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"runtime"

	"waldo/env"
	"waldo/pathuri"
)

// describe finds out what this machine is. What cannot be told is left empty; only the directory must be.
func describe(o Options) (info env.Info, directory string, err error) {
	info = env.Info{OS: runtime.GOOS, Arch: runtime.GOARCH, Paths: convention, Version: o.Version}
	info.Hostname, _ = os.Hostname() //nolint:errcheck // left empty
	home, _ := os.UserHomeDir()      //nolint:errcheck // as above
	if u, err := user.Current(); err == nil {
		info.User = u.Username
		home = cmp.Or(home, u.HomeDir)
	}
	info.User = cmp.Or(info.User, os.Getenv("USER"))
	info.Shell = loginShell(info.User)
	info.Shells = findShells(info.Shell)
	info.Kernel, info.Distribution = systemVersions()
	info.Home = uriOf(home)
	info.Temp = uriOf(os.TempDir())

	directory = o.Directory
	if directory == "" {
		for _, candidate := range []string{home, os.TempDir()} {
			if stat, err := os.Stat(candidate); err == nil && stat.IsDir() {
				directory = candidate
				break
			}
		}
	}
	if directory == "" {
		directory, err = os.Getwd()
		if err != nil {
			return info, "", fmt.Errorf("no directory to start commands in: %w", err)
		}
	}
	if info.Directory, err = pathuri.FromNative(directory, convention); err != nil {
		return info, "", fmt.Errorf("directory for commands: %w", err)
	}
	return info, directory, nil
}

func uriOf(path string) pathuri.URI {
	uri, _ := pathuri.FromNative(path, convention) //nolint:errcheck // left empty
	return uri
}
