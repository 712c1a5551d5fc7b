package watch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A way is how a path leads to its file.
type way struct {
	signposts []signpost
	parent    string   // real path of the directory that the path's last name is in
	parentID  identity // of it
	end       string   // real path of the file; "" if there is none
}

// A signpost is a name that decides where the path leads: that of a link, of the file itself, or the first one that
// is missing.
type signpost struct{ dir, name string }

func (w way) equal(other way) bool {
	return w.parent == other.parent && w.parentID == other.parentID && w.end == other.end && slices.Equal(w.signposts, other.signposts)
}

// resolve follows a path as the kernel does. It fails if the directory of its last name is not there.
func resolve(path string) (way, error) {
	type step struct {
		name string
		last bool // of the path that was given
	}
	split := func(path string) (start string, steps []step) {
		volume := filepath.VolumeName(path)
		rest := path[len(volume):]
		if rest != "" && os.IsPathSeparator(rest[0]) {
			start = volume + string(filepath.Separator)
		}
		for _, name := range strings.FieldsFunc(rest, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(byte(r)) }) {
			steps = append(steps, step{name, false})
		}
		return start, steps
	}
	var w way
	current, steps := split(path)
	if len(steps) == 0 {
		return way{parent: current, end: current}, nil
	}
	steps[len(steps)-1].last = true
	links := 0
	for len(steps) > 0 {
		next := steps[0]
		steps = steps[1:]
		if next.last {
			info, err := os.Lstat(current)
			if err != nil {
				return way{}, errGone
			}
			w.parent, w.parentID = current, identify(info)
		}
		switch next.name {
		case ".":
			continue
		case "..":
			current = filepath.Dir(current)
			continue
		}
		full := join(current, next.name)
		info, err := os.Lstat(full)
		switch {
		case err != nil:
			if w.parent == "" {
				return way{}, errGone
			}
			w.signposts = append(w.signposts, signpost{current, next.name})
			return w, nil
		case info.Mode()&fs.ModeSymlink != 0:
			w.signposts = append(w.signposts, signpost{current, next.name})
			target, err := os.Readlink(full)
			if links++; err != nil || links > 255 {
				return way{}, fmt.Errorf("too many links, from %q on", full)
			}
			start, more := split(target)
			if start != "" {
				current = start
			}
			steps = append(more, steps...)
		case len(steps) == 0:
			w.signposts = append(w.signposts, signpost{current, next.name})
			current = full
		default:
			current = full
		}
	}
	w.end = current
	return w, nil
}
