package main

import (
	"fmt"
	"slices"
	"strings"

	"waldo/env"
)

// findProcess finds what a person calls a process: its SESSION/ID, a beginning of that, or the ID in its session,
// where only one is meant. Of several the one that still lives is. lister is the command line that shows them all.
func findProcess(processes []env.ProcessInfo, name, lister string) (env.ProcessInfo, error) {
	for _, p := range processes {
		if p.ID == name {
			return p, nil
		}
	}
	for _, means := range []func(id string) bool{
		func(id string) bool { return strings.HasPrefix(id, name) },
		func(id string) bool { _, own, _ := strings.Cut(id, "/"); return own == name },
	} {
		var found []env.ProcessInfo
		for _, p := range processes {
			if name != "" && means(p.ID) {
				found = append(found, p)
			}
		}
		if len(found) > 1 {
			if alive := slices.DeleteFunc(slices.Clone(found), func(p env.ProcessInfo) bool { return p.State == env.Closed }); len(alive) > 0 {
				found = alive
			}
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			ids := make([]string, 0, 4)
			for _, p := range found[:min(len(found), 3)] {
				ids = append(ids, p.ID)
			}
			if len(found) > 3 {
				ids = append(ids, "…")
			}
			return env.ProcessInfo{}, fmt.Errorf("%q means several processes (%s); give more of it", name, strings.Join(ids, ", "))
		}
	}
	return env.ProcessInfo{}, fmt.Errorf("%w %q; %s lists them", env.ErrUnknownProcess, name, lister)
}
