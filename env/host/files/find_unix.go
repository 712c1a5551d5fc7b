//go:build unix

package files

import (
	"strings"

	"golang.org/x/sys/unix"

	"waldo/pathuri"
)

// find returns the place that path names.
func (f *Files) find(path pathuri.URI, text string, how lookup) (place, error) {
	if f.confined() {
		w, err := f.walk(path, how&follow != 0)
		if err != nil {
			return place{}, err
		}
		return w.place(how&follow != 0), nil
	}
	if how&hold == 0 {
		return place{name: text, links: how&follow != 0}, nil
	}
	at := place{name: text, links: how&follow != 0}
	for range maxTries {
		parent, name := split(at.name)
		var fd int
		var err error
		if name == "." || name == ".." {
			parent, name = at.name, "."
		}
		fd, err = openat(at.fd(), parent, openReach|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		at.close()
		if err != nil {
			return place{}, err
		}
		at.dir, at.name = &directory{fd}, name
		if how&follow == 0 || name == "." {
			return at, nil
		}
		target, err := readlinkat(fd, name)
		if err != nil { // no link, or nothing: whoever opens it sees
			return at, nil
		}
		if at.magic = isMagic(fd); at.magic {
			return at, nil
		}
		at.name = target
	}
	at.close()
	return place{}, errLoop
}

// split parts a path into the directory to open and the name in it.
func split(path string) (parent, name string) {
	trimmed := strings.TrimRight(path, "/")
	if trimmed == "" {
		return "/", "."
	}
	if len(trimmed) < len(path) {
		return trimmed, "." // it says that it is a directory
	}
	i := strings.LastIndexByte(trimmed, '/')
	switch i {
	case -1:
		return ".", trimmed
	case 0:
		return "/", trimmed[1:]
	}
	return trimmed[:i], trimmed[i+1:]
}

// walker goes down from the directory that files are confined to, name by name and handle by handle. The kernel
// follows no link for it, so where it is, it has come to by directories below the root.
type walker struct {
	root  string       // as the links may spell it
	stack []*directory // from the root down to where it is
	names []string     // that led there; one less
	last  string       // in the topmost directory; "." is that itself
}

func (w *walker) top() *directory { return w.stack[len(w.stack)-1] }

func (w *walker) up(to int) {
	for len(w.stack) > to {
		w.top().close()
		w.stack = w.stack[:len(w.stack)-1]
	}
	w.names = w.names[:max(0, to-1)]
}

// place hands out what was found, and lets go of the rest.
func (w *walker) place(links bool) place {
	top := w.top()
	w.stack = w.stack[:len(w.stack)-1]
	w.up(0)
	return place{dir: top, name: w.last, links: links}
}

// openRoot opens the directory that files are confined to.
func (f *Files) openRoot() (*directory, error) {
	text, err := f.root.NativeFor(convention)
	if err != nil {
		return nil, err
	}
	var fd int
	err = f.outer.try(f.root, text, follow, func(p place) (err error) {
		fd, err = openat(p.fd(), p.name, openReach|unix.O_DIRECTORY|p.openFlags(), 0)
		return p.swapped(err)
	})
	if err != nil {
		return nil, err
	}
	return &directory{fd}, nil
}

// walk goes from the root to path, which must lie below it.
func (f *Files) walk(path pathuri.URI, links bool) (_ *walker, err error) {
	rel, ok := f.root.Rel(path)
	if !ok {
		return nil, errEscapes
	}
	root, err := f.openRoot()
	if err != nil {
		return nil, err
	}
	w := &walker{stack: []*directory{root}}
	defer func() {
		if err != nil {
			w.up(0)
		}
	}()
	if w.root, err = f.root.NativeFor(convention); err != nil {
		return nil, err
	}
	rest := strings.Split(rel, "/")
	if parent := rest[:len(rest)-1]; len(parent) > 0 {
		// Most paths have no link in them, and then the kernel goes the whole way in one step.
		if fd, err := openBeneath(root.fd, strings.Join(parent, "/")); err == nil {
			w.stack, w.names, w.last = append(w.stack, &directory{fd}), parent, rest[len(parent)]
			if !links {
				return w, nil
			}
			if _, err := readlinkat(fd, w.last); err != nil { // no link, or nothing: whoever opens it sees
				return w, nil
			}
			w.up(1)
		}
	}
	for tries := 0; ; {
		if len(rest) == 0 {
			w.last = "."
			return w, nil
		}
		name := rest[0]
		switch name {
		case "", ".":
			rest = rest[1:]
			continue
		case "..":
			if len(w.stack) == 1 {
				return nil, errEscapes
			}
			w.up(len(w.stack) - 1)
			rest = rest[1:]
			continue
		}
		last := len(rest) == 1
		if last && !links {
			w.last = name
			return w, nil
		}
		var fd int
		if !last {
			fd, err = openat(w.top().fd, name, openReach|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err == nil {
				w.stack, w.names, rest = append(w.stack, &directory{fd}), append(w.names, name), rest[1:]
				continue
			}
			if err != unix.ENOTDIR && err != unix.ELOOP && err != unix.EMLINK {
				return nil, err
			}
		}
		target, linkErr := readlinkat(w.top().fd, name)
		if linkErr != nil {
			if last { // no link, or nothing: whoever opens it sees
				w.last = name
				return w, nil
			}
			if st, statErr := w.top().child(name).lstat(); statErr != nil || !st.mode.IsDir() || tries > maxTries {
				return nil, err
			}
			tries++ // a directory has taken the link's place
			continue
		}
		if tries++; tries > maxTries {
			return nil, errLoop
		}
		if strings.HasPrefix(target, "/") {
			below, ok := belowRoot(w.root, target)
			if !ok {
				return nil, errEscapes
			}
			w.up(1)
			target = below
		}
		rest = append(strings.Split(target, "/"), rest[1:]...)
	}
}

// belowRoot returns what leads from the root to an absolute target, by spelling.
func belowRoot(root, target string) (string, bool) {
	if root == "/" {
		return target[1:], true
	}
	below, ok := strings.CutPrefix(target, root)
	if !ok || below != "" && below[0] != '/' {
		return "", false
	}
	return below, true
}
