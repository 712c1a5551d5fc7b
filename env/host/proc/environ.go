package proc

import (
	"fmt"
	"slices"
	"strings"

	"waldo/env"
)

// overlay lays changes ("NAME=value", or "NAME" to remove) over base. The last value of a name counts; the order
// of first mention is kept.
func overlay(base, changes []string) []string {
	result := make([]string, 0, len(base)+len(changes)+4)
	where := make(map[string]int, cap(result))
	for i, list := range [][]string{base, changes} {
		for _, entry := range list {
			name, _, value := strings.Cut(entry, "=")
			at, known := where[name]
			switch {
			case !value && i == 0 || name == "":
				// what is no variable in the server's own environment is nothing to hand on
			case !value && known:
				result[at] = ""
				delete(where, name)
			case !value:
			case known:
				result[at] = entry
			default:
				where[name] = len(result)
				result = append(result, entry)
			}
		}
	}
	return slices.DeleteFunc(result, func(entry string) bool { return entry == "" })
}

// lookEnv finds a variable.
func lookEnv(environ []string, name string) (string, bool) {
	for _, entry := range slices.Backward(environ) {
		if n, value, ok := strings.Cut(entry, "="); ok && n == name {
			return value, true
		}
	}
	return "", false
}

// check refuses a command that can never be right, before anything is started.
func check(c *env.Command) error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{env.ErrInvalid}, args...)...)
	}
	switch {
	case len(c.Argv) == 0:
		return invalid("no program to start; argv is empty")
	case c.Argv[0] == "":
		return invalid("no program to start; argv[0] is empty")
	case strings.ContainsRune(c.Arg0, 0):
		return invalid("arg0 %q contains a NUL", c.Arg0)
	case len(c.ID) > maxID || strings.ContainsRune(c.ID, 0):
		return invalid("process id %q: at most %d bytes, without a NUL", c.ID[:min(len(c.ID), 64)], maxID)
	case c.Delivery != "" && c.Delivery != env.Lossless && c.Delivery != env.Latest:
		return invalid("delivery %q; it is %q or %q", string(c.Delivery), env.Lossless, env.Latest)
	case c.Terminal != nil && (c.Terminal.Rows == 0 || c.Terminal.Columns == 0):
		return invalid("a terminal of %d rows and %d columns", c.Terminal.Rows, c.Terminal.Columns)
	case c.Limits.WallClock < 0 || c.Limits.Memory < 0 || c.Limits.Processes < 0:
		return invalid("a limit is negative")
	}
	for i, arg := range c.Argv {
		if strings.ContainsRune(arg, 0) {
			return invalid("argv[%d] %q contains a NUL", i, arg)
		}
	}
	for i, entry := range c.Env {
		name, _, _ := strings.Cut(entry, "=")
		switch { // no value is shown: it may be a secret
		case name == "":
			return invalid("environment entry %d has no name", i)
		case strings.ContainsRune(entry, 0):
			return invalid("environment variable %q contains a NUL", name)
		}
	}
	return nil
}

const maxID = 1024
