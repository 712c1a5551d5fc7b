//go:build unix

package host

import (
	"bufio"
	"cmp"
	"os"
	"strings"

	"waldo/pathuri"
)

const (
	convention     = pathuri.Posix
	conventionPath = defaultPath
)

func hasReservedName(name string) bool { return strings.HasPrefix(name, "WALDO_") }

func isPath(name string) bool { return name == "PATH" }

// loginShell is the user's shell as the system has it, else as the environment has it.
func loginShell(user string) string {
	shell := ""
	if f, err := os.Open("/etc/passwd"); err == nil {
		defer f.Close() //nolint:errcheck // only read
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if fields := strings.Split(lines.Text(), ":"); len(fields) == 7 && fields[0] == user {
				shell = fields[6]
				break
			}
		}
	}
	for _, candidate := range []string{shell, os.Getenv("SHELL")} {
		if info, err := os.Stat(candidate); candidate != "" && err == nil && info.Mode()&0o111 != 0 {
			return candidate
		}
	}
	return cmp.Or(shell, "/bin/sh")
}
