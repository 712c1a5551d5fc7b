//go:build unix

package host

import (
	"io"
	"os"
	"path"
	"strings"

	"waldo/env"
)

// shellKinds are the shells that are looked for, the best to work with first.
var shellKinds = []string{"bash", "zsh", "sh", "fish", "dash", "pwsh"}

// shellDirectories are where shells are that /etc/shells does not list, as it does not in many containers.
var shellDirectories = []string{
	"/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/local/bin", "/run/current-system/sw/bin",
}

// noShells are what a user has as his shell who is to have none.
var noShells = map[string]bool{"": true, "false": true, "true": true, "nologin": true, "sync": true}

// findShells finds the shells of this machine, one of each kind, the user's own first.
func findShells(login string) []env.Shell {
	var listed []string
	if f, err := os.Open("/etc/shells"); err == nil {
		text, _ := io.ReadAll(io.LimitReader(f, 64<<10)) //nolint:errcheck // what could be read
		f.Close()                                        //nolint:errcheck // only read
		listed = parseShells(string(text))
	}
	return chooseShells(login, listed, shellDirectories, isProgram)
}

// chooseShells takes the first of each kind that there is: the login shell, then what is listed, then what is in the
// directories.
func chooseShells(login string, listed, directories []string, is func(string) bool) []env.Shell {
	var shells []env.Shell
	if kind := path.Base(login); path.IsAbs(login) && !noShells[kind] && is(login) {
		shells = append(shells, env.Shell{Kind: kind, Path: login})
	}
	for _, kind := range shellKinds {
		if len(shells) > 0 && shells[0].Kind == kind {
			continue
		}
		var candidates []string
		for _, file := range listed {
			if path.Base(file) == kind {
				candidates = append(candidates, file)
			}
		}
		for _, dir := range directories {
			candidates = append(candidates, dir+"/"+kind)
		}
		for _, file := range candidates {
			if is(file) {
				shells = append(shells, env.Shell{Kind: kind, Path: file})
				break
			}
		}
	}
	return shells
}

// parseShells reads what /etc/shells lists.
func parseShells(text string) (paths []string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); path.IsAbs(line) {
			paths = append(paths, line)
		}
	}
	return paths
}

func isProgram(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
