package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

// place is where a path leads.
type place struct {
	dir  *node  // that it is in; nil for a root
	name string // there
	node *node  // nil if nothing is there
	path pathuri.URI
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

// split takes a path apart into the root and the names that lead from it.
func split(path pathuri.URI) (root pathuri.URI, names []string) {
	for root = range path.Ancestors() {
		if _, more := root.Parent(); more {
			name, _ := root.Base()
			names = append(names, name)
		}
	}
	slices.Reverse(names)
	return root, names
}

// A walker goes from directory to directory.
type walker struct {
	f     files
	stack []*entry // from the root on
	path  []pathuri.URI
	floor int // so many entries of the stack must stay
	root  pathuri.URI
	links int
}

// resolve finds the place that path leads to. The last name is followed if it is a link and follow says so; those
// before are. It is called with the machine's lock held.
func (f files) resolve(path pathuri.URI, follow bool) (place, error) {
	w := walker{f: f}
	root, names := split(path)
	top := f.machine.roots[root]
	if top == nil {
		return place{}, fs.ErrNotExist
	}
	w.stack, w.path, w.floor = []*entry{{node: top}}, []pathuri.URI{root}, 1
	depth := 0
	for _, within := range f.roots {
		_, inside := split(within)
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
		w.stack, w.path = append(w.stack, &entry{p.name, p.node}), append(w.path, p.path)
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
			w.stack, w.path = w.stack[:len(w.stack)-1], w.path[:len(w.path)-1]
			continue
		case len(name) > 255:
			return place{}, errName
		}
		at := w.path[len(w.path)-1]
		found := here.node.entries[m.fold(name)]
		if found == nil {
			if !last {
				return place{}, fs.ErrNotExist
			}
			path, err := at.JoinName(name)
			return place{dir: here.node, name: name, path: path}, err
		}
		path, err := at.JoinName(found.name)
		if err != nil {
			return place{}, err
		}
		if found.node.mode.Type() == linkMode && (!last || follow) {
			if w.links++; w.links > maxLinks {
				return place{}, errLinks
			}
			if names, err = w.jump(found.node.target, names); err != nil {
				return place{}, err
			}
			continue
		}
		if last {
			return place{dir: here.node, name: found.name, node: found.node, path: path}, nil
		}
		w.stack, w.path = append(w.stack, found), append(w.path, path)
	}
	here := w.stack[len(w.stack)-1]
	p := place{node: here.node, path: w.path[len(w.path)-1], fixed: len(w.stack) <= w.floor}
	if len(w.stack) > 1 {
		p.dir, p.name = w.stack[len(w.stack)-2].node, here.name
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
		root, below := split(uri)
		if w.f.machine.roots[root] == nil {
			return nil, fs.ErrNotExist
		}
		absolute, names = true, below
	} else {
		names = strings.Split(target, "/")
	}
	if absolute {
		if !w.root.IsZero() {
			return nil, outside(w.root)
		}
		w.stack, w.path = w.stack[:1], w.path[:1]
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
