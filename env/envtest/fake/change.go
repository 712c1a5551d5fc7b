package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"waldo/env"
	"waldo/pathuri"
)

// do is a call that changes something, with the lock held.
func (f files) do(ctx context.Context, op string, path pathuri.URI, change func() error, more ...pathuri.URI) error {
	if err := f.begin(ctx, op, append([]pathuri.URI{path}, more...)...); err != nil {
		return err
	}
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	return wrap(op, path, change())
}

// Mkdir implements env.Files.
func (f files) Mkdir(ctx context.Context, path pathuri.URI, options env.MkdirOptions) error {
	return f.do(ctx, "mkdir", path, func() error {
		if options.Parents {
			return f.mkdirAll(path, options.Permissions)
		}
		return f.mkdir(path, options.Permissions)
	})
}

func (f files) mkdir(path pathuri.URI, bits *fs.FileMode) error {
	p, err := f.free(path)
	if err != nil {
		return err
	}
	mode := dirMode | 0o755
	if bits != nil {
		mode = dirMode | *bits&fs.ModePerm
	}
	p.node = f.machine.newNode(mode)
	f.machine.add(p.dir, p.name, p.node)
	f.machine.emit(p, env.Created)
	return nil
}

// mkdirAll makes what is missing of path.
func (f files) mkdirAll(path pathuri.URI, bits *fs.FileMode) error {
	p, err := f.resolve(path, true)
	switch {
	case err == nil && p.node != nil && p.node.mode.IsDir():
		return nil
	case err == nil && p.node != nil:
		return fs.ErrExist
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if parent, ok := path.Parent(); ok && err != nil {
		switch err := f.mkdirAll(parent, nil); {
		case errors.Is(err, fs.ErrExist):
			return env.ErrNotDirectory
		case err != nil:
			return err
		}
	}
	return f.mkdir(path, bits)
}

// Remove implements env.Files.
func (f files) Remove(ctx context.Context, path pathuri.URI, options env.RemoveOptions) error {
	return f.do(ctx, "remove", path, func() error {
		p, err := f.existing(path, false)
		switch {
		case errors.Is(err, fs.ErrNotExist) && options.Force:
			return nil
		case err != nil:
			return err
		case p.fixed:
			return errFixed
		case len(p.node.entries) > 0 && !options.Recursive:
			return env.ErrNotEmpty
		}
		f.remove(p)
		return nil
	})
}

// remove removes what is at p with all that is in it, from below.
func (f files) remove(p place) {
	for _, e := range p.node.sorted() {
		f.remove(place{dir: p.node, name: e.name, node: e.node})
	}
	f.machine.emit(p, env.Removed)
	f.machine.drop(p.dir, p.name)
}

// Rename implements env.Files.
func (f files) Rename(ctx context.Context, from, to pathuri.URI, options env.RenameOptions) error {
	return f.do(ctx, "rename", from, func() error {
		old, err := f.existing(from, false)
		if err != nil {
			return err
		}
		p, err := f.resolve(to, false)
		if err != nil {
			return fmt.Errorf("to %q: %w", to.Display(), err)
		}
		if old.fixed || p.fixed {
			return errFixed
		}
		name, _ := to.Base() // which a machine that folds case takes as it is spelled
		switch {
		case p.node == old.node && (p.dir != old.dir || p.name != old.name || name == old.name):
			if options.Exclusive {
				return fs.ErrExist
			}
			return nil
		case p.node != nil && p.node != old.node:
			err = over(old.node, p.node, options.Exclusive)
		}
		if err == nil && old.node.mode.IsDir() && p.dir.below(old.node) {
			err = fmt.Errorf("%w: it cannot be moved into itself", env.ErrInvalid)
		}
		if err != nil {
			return fmt.Errorf("to %q: %w", to.Display(), err)
		}
		f.machine.emit(old, env.Removed)
		f.machine.drop(old.dir, old.name)
		if p.node != nil && p.node != old.node && p.node.mode.IsDir() {
			f.machine.emit(p, env.Removed)
		}
		p.name, p.node = name, old.node
		f.machine.add(p.dir, p.name, p.node)
		f.appear(p)
		return nil
	}, to)
}

// over tells why one thing cannot take the place of another.
func over(n, other *node, exclusive bool) error {
	switch {
	case exclusive:
		return fs.ErrExist
	case other.mode.IsDir() && !n.mode.IsDir():
		return env.ErrIsDirectory
	case n.mode.IsDir() && !other.mode.IsDir():
		return env.ErrNotDirectory
	case len(other.entries) > 0:
		return env.ErrNotEmpty
	}
	return nil
}

// appear tells of what has come to p, and of all that came with it.
func (f files) appear(p place) {
	f.machine.emit(p, env.Created)
	for _, e := range p.node.sorted() {
		f.appear(place{dir: p.node, name: e.name, node: e.node})
	}
}

// Copy implements env.Files.
func (f files) Copy(ctx context.Context, from, to pathuri.URI, options env.CopyOptions) error {
	return f.do(ctx, "copy", from, func() error {
		old, err := f.existing(from, false)
		if err != nil {
			return err
		}
		p, err := f.resolve(to, old.node.mode.Type() != linkMode)
		if err == nil && options.Exclusive {
			p, err = f.free(to)
		}
		switch {
		case err != nil:
		case old.node.mode.IsDir() && !options.Recursive:
			return env.ErrIsDirectory
		case p.node == old.node, old.node.mode.IsDir() && (p.dir.below(old.node) || p.node != nil && p.node.below(old.node)):
			err = fmt.Errorf("%w: it cannot be copied onto or into itself", env.ErrInvalid)
		default:
			err = f.copy(old.node, p)
		}
		if err != nil {
			return fmt.Errorf("to %q: %w", to.Display(), err)
		}
		return nil
	}, to)
}

func (f files) copy(n *node, p place) error {
	m := f.machine
	switch {
	case p.node == nil:
	case p.node.mode.IsDir() && !n.mode.IsDir():
		return fmt.Errorf("%w: %q", env.ErrIsDirectory, p.name)
	case n.mode.IsDir() && !p.node.mode.IsDir():
		return fmt.Errorf("%w: %q", env.ErrNotDirectory, p.name)
	case p.node == n:
		return fmt.Errorf("%w: %q is the same file", env.ErrInvalid, p.name)
	}
	copied, kind := p.node, env.Modified
	if !n.mode.IsDir() || copied == nil {
		if copied == nil {
			kind = env.Created
		}
		copied = m.newNode(n.mode)
		copied.content, copied.target = n.content.clone(), n.target
		m.add(p.dir, p.name, copied)
	}
	p.node = copied
	m.emit(p, kind)
	for _, e := range n.sorted() {
		there := place{dir: copied, name: e.name}
		if found := copied.entries[m.fold(e.name)]; found != nil {
			there.name, there.node = found.name, found.node
		}
		if err := f.copy(e.node, there); err != nil {
			return err
		}
	}
	copied.mode, copied.modified = n.mode, n.modified
	return nil
}

// Symlink implements env.Files.
func (f files) Symlink(ctx context.Context, target string, path pathuri.URI) error {
	return f.do(ctx, "symlink", path, func() error {
		p, err := f.free(path)
		if err == nil && target == "" {
			err = fmt.Errorf("%w: no target", env.ErrInvalid)
		}
		if err != nil {
			return err
		}
		p.node = f.machine.newNode(linkMode | fs.ModePerm)
		p.node.target = target
		f.machine.add(p.dir, p.name, p.node)
		f.machine.emit(p, env.Created)
		return nil
	})
}

// Link implements env.Files.
func (f files) Link(ctx context.Context, existing, path pathuri.URI) error {
	return f.do(ctx, "link", existing, func() error {
		old, err := f.existing(existing, false)
		if err != nil {
			return err
		}
		if old.node.mode.IsDir() {
			return fmt.Errorf("%w: %w", fs.ErrPermission, env.ErrIsDirectory)
		}
		p, err := f.free(path)
		if err != nil {
			return fmt.Errorf("to %q: %w", path.Display(), err)
		}
		p.node = old.node
		f.machine.add(p.dir, p.name, p.node)
		f.machine.emit(p, env.Created)
		return nil
	}, path)
}

// SetAttributes implements env.Files.
func (f files) SetAttributes(ctx context.Context, path pathuri.URI, attributes env.Attributes) error {
	return f.do(ctx, "set attributes", path, func() error {
		p, err := f.existing(path, true)
		if err != nil {
			return err
		}
		if size := attributes.Size; size != nil {
			if err := regular(p.node); err != nil {
				return err
			}
			if *size < 0 {
				return fmt.Errorf("%w: a size of %d", env.ErrInvalid, *size)
			}
			p.node.content.truncate(*size)
			p.node.changed()
		}
		if bits := attributes.Permissions; bits != nil {
			p.node.mode = p.node.mode.Type() | *bits&fs.ModePerm
		}
		if when := attributes.Modified; when != nil {
			p.node.modified = when.Round(0)
		}
		if attributes != (env.Attributes{}) {
			f.machine.emit(p, env.Modified)
		}
		return nil
	})
}

// Sync implements env.Files.
func (f files) Sync(ctx context.Context, path pathuri.URI) error {
	return f.do(ctx, "sync", path, func() error {
		_, err := f.existing(path, true)
		return err
	})
}

// Tree makes files of this content at paths native to the machine, what is missing above them, and directories where
// a path ends in a separator. It panics where that cannot be: it is for the beginning of a test.
func (m *Machine) Tree(files map[string]string) {
	for _, native := range slices.Sorted(maps.Keys(files)) {
		ctx, path := context.Background(), m.path(native)
		var err error
		if last := native[len(native)-1]; last == '/' || last == '\\' && m.convention == pathuri.Windows {
			err = m.Mkdir(ctx, path, env.MkdirOptions{Parents: true})
		} else {
			_, err = env.WriteFile(ctx, m, path, []byte(files[native]), env.WriteOptions{Parents: true})
		}
		if err != nil {
			panic(fmt.Sprintf("a tree: %v", err))
		}
	}
}
