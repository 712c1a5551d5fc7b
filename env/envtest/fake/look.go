package fake

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// Stat implements env.Files.
func (f files) Stat(ctx context.Context, path pathuri.URI, follow bool) (env.FileInfo, error) {
	if err := f.begin(ctx, "stat", path); err != nil {
		return env.FileInfo{}, err
	}
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	p, err := f.existing(path, follow)
	if err != nil {
		return env.FileInfo{}, wrap("stat", path, err)
	}
	return p.node.info(true), nil
}

// ReadLink implements env.Files.
func (f files) ReadLink(ctx context.Context, path pathuri.URI) (string, error) {
	if err := f.begin(ctx, "read link", path); err != nil {
		return "", err
	}
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	p, err := f.existing(path, false)
	if err == nil && p.node.mode.Type() != linkMode {
		err = fmt.Errorf("%w: it is no symbolic link", env.ErrInvalid)
	}
	if err != nil {
		return "", wrap("read link", path, err)
	}
	return p.node.target, nil
}

// Canonicalize implements env.Files.
func (f files) Canonicalize(ctx context.Context, path pathuri.URI) (pathuri.URI, error) {
	if err := f.begin(ctx, "canonicalize", path); err != nil {
		return pathuri.URI{}, err
	}
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	p, err := f.existing(path, true)
	if err != nil {
		return pathuri.URI{}, wrap("canonicalize", path, err)
	}
	found, _, err := f.machine.split(path)
	if len(p.above) > 0 {
		for _, e := range append(p.above[1:len(p.above):len(p.above)], &entry{name: p.name}) {
			if err == nil {
				found, err = found.JoinName(e.name)
			}
		}
	}
	return found, wrap("canonicalize", path, err)
}

// List implements env.Files.
func (f files) List(ctx context.Context, path pathuri.URI) iter.Seq2[env.Entry, error] {
	return func(yield func(env.Entry, error) bool) {
		err := f.begin(ctx, "list", path)
		var all []env.Entry
		if err == nil {
			all, err = f.list(path)
			err = wrap("list", path, err)
		}
		f.yield(ctx, all, err, yield)
	}
}

func (f files) list(path pathuri.URI) (all []env.Entry, err error) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	p, err := f.existing(path, true)
	switch {
	case err != nil:
		return nil, err
	case !p.node.mode.IsDir():
		return nil, env.ErrNotDirectory
	}
	for _, e := range p.node.entries {
		at, err := path.JoinName(e.name)
		if err != nil {
			return all, err
		}
		all = append(all, env.Entry{Path: at, Info: e.node.info(false), Target: e.node.target})
	}
	return all, nil
}

// yield yields all, and then err if there is one.
func (f files) yield(ctx context.Context, all []env.Entry, err error, yield func(env.Entry, error) bool) {
	for _, entry := range all {
		if err := context.Cause(ctx); err != nil {
			yield(env.Entry{}, fmt.Errorf("list: %w", err))
			return
		}
		if !yield(entry, nil) {
			return
		}
	}
	if err != nil {
		yield(env.Entry{}, err)
	}
}

// Walk implements env.Files.
func (f files) Walk(ctx context.Context, root pathuri.URI, options env.WalkOptions) iter.Seq2[env.Entry, error] {
	return func(yield func(env.Entry, error) bool) {
		began := time.Now()
		err := f.begin(ctx, "walk", root)
		var all []env.Entry
		if err == nil {
			all, err = f.walk(root, options.MaxDepth)
			err = wrap("walk", root, err)
		}
		if most := options.MaxEntries; most > 0 && len(all) > most {
			all, err = all[:most], fmt.Errorf("%w: walk %q: there are more than %d entries", env.ErrLimit, root.Display(), most)
		}
		if err == nil && options.MaxTime > 0 && time.Since(began) >= options.MaxTime {
			all, err = nil, fmt.Errorf("%w: walk %q: it takes longer than %v", env.ErrLimit, root.Display(), options.MaxTime)
		}
		f.yield(ctx, all, err, yield)
	}
}

func (f files) walk(root pathuri.URI, deepest int) (all []env.Entry, err error) {
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	p, err := f.existing(root, true)
	if err != nil {
		return nil, err
	}
	var visit func(path pathuri.URI, n *node, depth int) error
	visit = func(path pathuri.URI, n *node, depth int) error {
		all = append(all, env.Entry{Path: path, Info: n.info(false), Target: n.target})
		if !n.mode.IsDir() || deepest > 0 && depth == deepest {
			return nil
		}
		if err := f.machine.faults[path]; err != nil {
			all = append(all, env.Entry{Path: path, Err: wrap("list", path, err)})
			return nil
		}
		for _, e := range n.sorted() {
			at, err := path.JoinName(e.name)
			if err != nil {
				return err
			}
			if err := visit(at, e.node, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	err = visit(root, p.node, 0)
	return all, err
}

// regular refuses what is no regular file.
func regular(n *node) error {
	switch {
	case n.mode.IsDir():
		return env.ErrIsDirectory
	case !n.mode.IsRegular():
		return fmt.Errorf("%w: it is %v", env.ErrNotRegular, n.mode&fs.ModeType)
	}
	return nil
}
