//go:build unix

package host

import (
	"cmp"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// systemVersions returns the version of the kernel, and the name and version of the system around it.
func systemVersions() (kernel, distribution string) {
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		kernel = unix.ByteSliceToString(name.Release[:])
		distribution = unix.ByteSliceToString(name.Sysname[:])
	}
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(f, 64<<10)) //nolint:errcheck // what could be read
		f.Close()                                        //nolint:errcheck // only read
		if pretty := prettyName(string(text)); pretty != "" {
			return kernel, pretty
		}
	}
	return kernel, cmp.Or(productName(), distribution)
}

// prettyName is what os-release(5) calls the system for people.
func prettyName(text string) string {
	var name, version, pretty string
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "NAME":
			name = unquote(value)
		case "VERSION", "VERSION_ID":
			version = cmp.Or(version, unquote(value))
		case "PRETTY_NAME":
			pretty = unquote(value)
		}
	}
	if name == "" {
		version = ""
	}
	return cmp.Or(pretty, strings.TrimSpace(name+" "+version))
}

// unquote reads a value as a shell would, in so far as os-release may use that; controls are left out, since people
// are shown it.
func unquote(value string) string {
	var b strings.Builder
	var quote rune
	escaped := false
	for _, r := range value {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", r) {
				b.WriteByte('\\')
			}
			escaped = false
		case r == '\\' && quote != '\'':
			escaped = true
			continue
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
			continue
		case r == quote:
			quote = 0
			continue
		}
		if r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f) {
			b.WriteRune(r)
		}
	}
	return b.String()
}
