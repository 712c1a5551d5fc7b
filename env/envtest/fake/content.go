package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"sync/atomic"

	"waldo/env"
	"waldo/pathuri"
)

// Read implements env.Files.
func (f files) Read(ctx context.Context, path pathuri.URI, options env.ReadOptions) (env.FileReader, error) {
	if err := f.begin(ctx, "read", path); err != nil {
		return nil, err
	}
	if options.Offset < 0 || options.Length < 0 {
		return nil, fmt.Errorf("%w: read %q: %d bytes from %d on", env.ErrInvalid, path.Display(), options.Length, options.Offset)
	}
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	p, err := f.existing(path, true)
	if err == nil {
		err = regular(p.node)
	}
	if err != nil {
		return nil, wrap("read", path, err)
	}
	info := p.node.info(true)
	if options.Version != "" && options.Version != info.Version {
		return nil, wrap("read", path, env.ErrChanged)
	}
	r := &reader{machine: f.machine, ctx: ctx, path: path, node: p.node, info: info, holes: options.Holes, at: options.Offset, left: math.MaxInt64}
	if options.Length > 0 {
		r.left = options.Length
	}
	return r, nil
}

type reader struct {
	machine *Machine
	ctx     context.Context
	path    pathuri.URI
	node    *node
	info    env.FileInfo
	holes   bool
	at      int64
	left    int64
	closed  atomic.Bool
}

func (r *reader) Info() env.FileInfo { return r.info }

func (r *reader) Chunks() iter.Seq2[env.FileChunk, error] {
	return func(yield func(env.FileChunk, error) bool) {
		for {
			err := context.Cause(r.ctx)
			if err == nil && r.closed.Load() {
				err = fs.ErrClosed
			}
			if err != nil {
				yield(env.FileChunk{}, wrap("read", r.path, err))
				return
			}
			r.machine.mu.Lock()
			data, hole := r.node.content.chunk(r.at, r.left, r.holes)
			r.machine.mu.Unlock()
			n := int64(len(data)) + hole
			if n == 0 {
				return
			}
			chunk := env.FileChunk{Offset: r.at, Data: data, Hole: hole}
			r.at, r.left = r.at+n, r.left-n
			if !yield(chunk, nil) {
				return
			}
		}
	}
}

func (r *reader) Close() error {
	r.closed.Store(true)
	return nil
}

// Write implements env.Files.
func (f files) ReadFiles(ctx context.Context, paths []pathuri.URI, limit int64) iter.Seq2[env.FileContent, error] {
	return env.ReadEach(ctx, f, paths, limit)
}

func (f files) WriteFiles(ctx context.Context, contents []env.FileContent) ([]error, error) {
	return env.WriteEach(ctx, f, contents)
}

func (f files) Write(ctx context.Context, path pathuri.URI, options env.WriteOptions) (env.FileWriter, error) {
	if err := f.begin(ctx, "write", path); err != nil {
		return nil, err
	}
	if options.Mode == "" {
		options.Mode = env.Replace
	}
	w := &writer{files: f, ctx: ctx, path: path, options: options, at: options.Offset}
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	return w, wrap("write", path, w.open())
}

type writer struct {
	files   files
	ctx     context.Context
	path    pathuri.URI
	options env.WriteOptions

	content content // what is not in the file yet, of Replace and Exclusive
	node    *node   // what is written to at once, of Append and Patch
	place   place
	at      int64
	taken   atomic.Int64
	done    bool
}

// open judges the path, and makes what is to be there before the first byte.
func (w *writer) open() (err error) {
	m := w.files.machine
	switch w.options.Mode {
	case env.Replace, env.Exclusive, env.Append, env.Patch:
	default:
		return fmt.Errorf("%w: mode %q", env.ErrInvalid, w.options.Mode)
	}
	if w.options.Mode == env.Patch && w.options.Offset < 0 {
		return fmt.Errorf("%w: offset %d", env.ErrInvalid, w.options.Offset)
	}
	if w.options.Parents && w.options.Mode != env.Patch {
		if parent, ok := w.path.Parent(); ok {
			err = w.files.mkdirAll(parent, nil)
			if errors.Is(err, fs.ErrExist) {
				err = env.ErrNotDirectory
			}
		}
	}
	if err == nil {
		err = w.find()
	}
	if err != nil {
		return err
	}
	switch w.options.Mode {
	case env.Append:
		if w.place.node == nil {
			w.place.node = m.newNode(0o644)
			m.add(w.place.dir, w.place.name, w.place.node)
			m.emit(w.place, env.Created)
		}
		w.node = w.place.node
	case env.Patch:
		if w.place.node == nil {
			return fs.ErrNotExist
		}
		w.node = w.place.node
	}
	return nil
}

// find looks what is there now.
func (w *writer) find() (err error) {
	if w.options.Mode == env.Exclusive {
		w.place, err = w.files.free(w.path)
		return err
	}
	w.place, err = w.files.resolve(w.path, true)
	if err == nil && w.place.node != nil {
		err = regular(w.place.node)
	}
	return err
}

// step is what every call on a writer begins with.
func (w *writer) step() error {
	err := context.Cause(w.ctx)
	if err == nil && w.done {
		err = fs.ErrClosed
	}
	return wrap("write", w.path, err)
}

func (w *writer) Write(p []byte) (int, error) {
	w.files.machine.mu.Lock()
	defer w.files.machine.mu.Unlock()
	if err := w.step(); err != nil {
		return 0, err
	}
	w.put(int64(len(p)), func(c *content, at int64) { c.write(p, at) })
	return len(p), nil
}

func (w *writer) Skip(n int64) error {
	w.files.machine.mu.Lock()
	defer w.files.machine.mu.Unlock()
	if err := w.step(); err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("%w: write %q: a hole of %d bytes", env.ErrInvalid, w.path.Display(), n)
	}
	w.put(n, func(c *content, at int64) { c.skip(n, at) })
	return nil
}

// put has n bytes put where they belong.
func (w *writer) put(n int64, put func(c *content, at int64)) {
	c := &w.content
	if w.node != nil {
		c = &w.node.content
		if w.options.Mode == env.Append {
			w.at = c.size
		}
	}
	if n == 0 {
		return
	}
	put(c, w.at)
	w.at += n
	w.taken.Add(n)
	if w.node != nil {
		w.node.changed()
		w.files.machine.emit(w.place, env.Modified)
	}
}

func (w *writer) Taken() int64 { return w.taken.Load() }

func (w *writer) Commit() (written env.Written, err error) {
	m := w.files.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := w.step(); err != nil {
		return written, err
	}
	w.done = true
	kind := env.Modified
	if w.node == nil {
		if err := w.find(); err != nil {
			return written, wrap("write", w.path, err)
		}
		old := w.place.node
		if written.InPlace = old != nil && old.names > 1; written.InPlace {
			old.content = w.content
			w.node = old
		} else {
			w.node = m.newNode(0o644)
			w.node.content = w.content
			if kind = env.Created; old != nil {
				w.node.mode, kind = old.mode, env.Modified
			}
			m.add(w.place.dir, w.place.name, w.node)
		}
		w.node.changed()
	}
	if bits := w.options.Permissions; bits != nil && !(w.options.KeepPermissions && kind == env.Modified) {
		w.node.mode = *bits & fs.ModePerm
	}
	if !w.options.Modified.IsZero() {
		w.node.modified = w.options.Modified.Round(0)
	}
	w.place.node = w.node
	m.emit(w.place, kind)
	written.Info = w.node.info(true)
	return written, nil
}

func (w *writer) Close() error {
	w.files.machine.mu.Lock()
	defer w.files.machine.mu.Unlock()
	w.done, w.content = true, content{}
	return nil
}
