package codex

import (
	"maps"
	"slices"
	"strings"

	"waldo/env/rpc"
	"waldo/pathuri"
)

// envPolicy says how a process's environment is made from the server's.
type envPolicy struct {
	Inherit               string            `json:"inherit"`
	IgnoreDefaultExcludes bool              `json:"ignoreDefaultExcludes"`
	Exclude               []string          `json:"exclude"`
	Set                   map[string]string `json:"set"`
	IncludeOnly           []string          `json:"includeOnly"`
}

// coreNames are what "core" inherits.
var coreNames = []string{"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER", "USERNAME"}

// coreNamesWindows are what programs of Windows do not do without.
var coreNamesWindows = []string{
	"PATH", "PATHEXT", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "USERNAME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH",
	"APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "TEMP", "TMP", "NUMBER_OF_PROCESSORS",
	"PROCESSOR_ARCHITECTURE", "OS",
}

// secretPatterns are what nobody means to hand on.
var secretPatterns = []string{"*KEY*", "*SECRET*", "*TOKEN*"}

// environment is that of a process which asks for these variables under this policy; without one they are all it has.
func (d *Door) environment(origin rpc.Origin, policy *envPolicy, variables map[string]string) []string {
	result := make(map[string]string)
	if policy != nil {
		d.inherit(origin, policy, result)
	}
	maps.Copy(result, variables)
	environ := make([]string, 0, len(result))
	for _, name := range slices.Sorted(maps.Keys(result)) {
		environ = append(environ, name+"="+result[name])
	}
	return environ
}

// inherit puts what the policy lets through into result.
func (d *Door) inherit(origin rpc.Origin, policy *envPolicy, result map[string]string) {
	core := coreNames
	if d.info.Paths == pathuri.Windows {
		core = coreNamesWindows
	}
	if policy.Inherit != "none" {
		for _, entry := range d.environ(origin) {
			name, value, ok := strings.Cut(entry, "=")
			isCore := slices.ContainsFunc(core, func(c string) bool {
				return c == name || d.info.Paths == pathuri.Windows && strings.EqualFold(c, name)
			})
			if ok && name != "" && (policy.Inherit == "all" || isCore) {
				result[name] = value
			}
		}
	}
	drop := func(patterns []string) {
		maps.DeleteFunc(result, func(name, _ string) bool { return matchesAny(patterns, name) })
	}
	if !policy.IgnoreDefaultExcludes {
		drop(secretPatterns)
	}
	drop(policy.Exclude)
	maps.Copy(result, policy.Set)
	if len(policy.IncludeOnly) > 0 {
		maps.DeleteFunc(result, func(name, _ string) bool { return !matchesAny(policy.IncludeOnly, name) })
	}
}

func matchesAny(patterns []string, name string) bool {
	name = strings.ToUpper(name)
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(strings.ToUpper(pattern), name) })
}

// matches compares a name with a pattern in which "*" is any text, "?" any one character, and all else itself.
func matches(pattern, name string) bool {
	p, n := []rune(pattern), []rune(name)
	star, back := -1, 0 // where to go on when what follows the last star does not fit
	i, j := 0, 0
	for j < len(n) {
		switch {
		case i < len(p) && p[i] == '*':
			star, back = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == n[j]):
			i++
			j++
		case star >= 0:
			back++
			i, j = star+1, back
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
