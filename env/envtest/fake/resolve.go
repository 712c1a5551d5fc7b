package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

// place is where a path leads.
type place struct {
	dir  *node  // that it is in; nil for a root
	name string // there
	node *node  // nil if nothing is there
	// above are the directories from the root to dir, of what is there.
	above []*entry
	// fixed says that it is a root, of the machine or of Within, which stays where it is.
	fixed bool
}

const maxLinks = 40

var (
	errLinks = errors.New("too many symbolic links")
	errName  = fmt.Errorf("%w: the name is too long", env.ErrInvalid)
	errFixed = fmt.Errorf("%w: it is a root", fs.ErrPermission)
)

func outside(root pathuri.URI) error {
	return fmt.Errorf("%w: it leads out of %q", fs.ErrPermission, root.Display())
}

// split takes a path apart into the root that it begins at and the names that lead on from there.
func (m *Machine) split(path pathuri.URI) (root pathuri.URI, names []string, err error) {
	for root := range m.roots {
		if rel, ok := root.Rel(path); ok {
			if rel != "" {
				names = strings.Split(rel, "/") // which no name has in it
			}
			return root, names, nil
		}
	}
	return root, nil, fs.ErrNotExist
}

// A walker goes from directory to directory.
type walker struct {
	f     files
	top   pathuri.URI
	stack []*entry    // from the root on
	floor int         // so many entries of the stack must stay
	root  pathuri.URI // of Within
	links int
}

// resolve finds the place that path leads to. The last name is followed if it is a link and follow says so; those
// before are. It is called with the machine's lock held.
func (f files) resolve(path pathuri.URI, follow bool) (place, error) {
	root, names, err := f.machine.split(path)
	if err != nil {
		return place{}, err
	}
	w := walker{f: f, top: root, stack: []*entry{{node: f.machine.roots[root]}}, floor: 1}
	depth := 0
	for _, within := range f.roots {
		_, inside, err := f.machine.split(within)
		if err != nil {
			return place{}, err
		}
		if len(inside) < depth || len(inside) == depth && !w.root.IsZero() {
			continue // one that is narrower counts
		}
		if err := w.enter(inside[depth:]); err != nil {
			return place{}, err
		}
		depth, w.floor, w.root = len(inside), len(w.stack), within
	}
	return w.walk(names[depth:], follow)
}

// enter goes to the directory that names lead to, which becomes the floor.
func (w *walker) enter(names []string) error {
	p, err := w.walk(names, true)
	switch {
	case err != nil:
		return err
	case p.node == nil:
		return fs.ErrNotExist
	case w.stack[len(w.stack)-1].node != p.node:
		w.stack = append(w.stack, &entry{p.name, p.node})
	}
	return nil
}

func (w *walker) walk(names []string, follow bool) (place, error) {
	m := w.f.machine
	for len(names) > 0 {
		name, last := names[0], len(names) == 1
		names = names[1:]
		here := w.stack[len(w.stack)-1]
		switch {
		case !here.node.mode.IsDir():
			return place{}, env.ErrNotDirectory
		case name == "" || name == ".":
			continue
		case name == "..":
			if len(w.stack) == w.floor {
				if w.root.IsZero() {
					continue
				}
				return place{}, outside(w.root)
			}
			w.stack = w.stack[:len(w.stack)-1]
			continue
		case len(name) > 255:
			return place{}, errName
		}
		found := here.node.entries[m.fold(name)]
		if found == nil {
			if !last {
				return place{}, fs.ErrNotExist
			}
			return place{dir: here.node, name: name}, nil
		}
		if found.node.mode.Type() == linkMode && (!last || follow) {
			if w.links++; w.links > maxLinks {
				return place{}, errLinks
			}
			var err error
			if names, err = w.jump(found.node.target, names); err != nil {
				return place{}, err
			}
			continue
		}
		if last {
			return place{dir: here.node, name: found.name, node: found.node, above: w.stack}, nil
		}
		w.stack = append(w.stack, found)
	}
	here := w.stack[len(w.stack)-1]
	p := place{node: here.node, fixed: len(w.stack) <= w.floor}
	if above := len(w.stack) - 1; above > 0 {
		p.dir, p.name, p.above = w.stack[above-1].node, here.name, w.stack[:above]
	}
	return p, nil
}

// jump goes where a link's target begins, and returns the names that are to be followed from there.
func (w *walker) jump(target string, rest []string) ([]string, error) {
	var names []string
	windows := w.f.machine.convention == pathuri.Windows
	if windows {
		target = strings.ReplaceAll(target, `\`, "/")
	}
	absolute := strings.HasPrefix(target, "/")
	if windows && len(target) > 2 && target[1] == ':' {
		uri, err := pathuri.FromNative(target, pathuri.Windows)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", env.ErrInvalid, err)
		}
		root, below, err := w.f.machine.split(uri)
		if err != nil {
			return nil, err
		}
		if root != w.top {
			return nil, fmt.Errorf("%w: links between drives", errors.ErrUnsupported)
		}
		absolute, names = true, below
	} else {
		names = strings.Split(target, "/")
	}
	if absolute {
		if !w.root.IsZero() {
			return nil, outside(w.root)
		}
		w.stack = w.stack[:1]
	}
	return append(names, rest...), nil
}

// existing is resolve where something has to be.
func (f files) existing(path pathuri.URI, follow bool) (place, error) {
	p, err := f.resolve(path, follow)
	if err == nil && p.node == nil {
		err = fs.ErrNotExist
	}
	return p, err
}

// free is resolve, of the last name itself, where nothing may be.
func (f files) free(path pathuri.URI) (place, error) {
	p, err := f.resolve(path, false)
	if err == nil && p.node != nil {
		err = fs.ErrExist
	}
	return p, err
}
