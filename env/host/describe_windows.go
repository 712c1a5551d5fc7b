package host

import (
	"cmp"
	"os"
	"strings"

	"waldo/pathuri"
)

const (
	convention     = pathuri.Windows
	conventionPath = "" // Windows finds its own programs without
)

func hasReservedName(name string) bool { return strings.HasPrefix(strings.ToUpper(name), "WALDO_") }

func isPath(name string) bool { return strings.EqualFold(name, "PATH") }

func loginShell(string) string { return cmp.Or(os.Getenv("COMSPEC"), `C:\Windows\System32\cmd.exe`) }
