package transfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// directory is a directory of a tree that is copied.
type directory struct {
	path     pathuri.URI // at the other end
	mode     fs.FileMode
	modified time.Time

	// Whether it is there, or cannot be, is known when ready is closed.
	ready  chan struct{}
	failed bool
	made   bool         // by this copy; else it was there
	bits   *fs.FileMode // that it was made with, if they were chosen

	names map[string]string // of its entries where names that differ in case are the same, by what they have in common
}

// link is a symbolic link of a tree that is copied.
type link struct {
	path   pathuri.URI // at the other end
	target string
	in     *directory
}

// tree copies a tree. A file waits for its directory and for nothing else; links come when all files are in their
// place, and nothing that is there leads out of the tree, so that what the far end tells of can never be written
// elsewhere. Until all is done nobody else looks into a directory that is made.
func (c *copying) tree(ctx context.Context, version string) error {
	root := &directory{path: c.to.Path, ready: make(chan struct{})}
	close(root.ready)
	var err error
	if root.made, err = c.root(ctx, version); err != nil {
		return err
	}
	if root.made {
		root.bits = c.closed()
	}
	c.to.Files = c.to.Files.Within(c.to.Path)
	directories, links, err := c.walk(ctx, root)
	c.send(ctx)
	c.tasks.Wait()
	c.fail(err) // what was found is copied nevertheless
	for _, l := range links {
		if !l.in.failed {
			c.task(ctx, 0, func() error { return c.link(ctx, l.path, l.target) })
		}
	}
	c.tasks.Wait()
	var hiding []*directory // hide what is below from the calls that follow
	for _, d := range directories {
		if d.failed || !c.unfinished(d) {
			continue
		}
		if d.mode&0o100 == 0 {
			hiding = append(hiding, d)
			continue
		}
		c.task(ctx, 0, func() error { return c.finish(ctx, d) })
	}
	c.tasks.Wait()
	for _, d := range slices.Backward(hiding) {
		c.fail(c.finish(ctx, d))
	}
	return c.result(ctx)
}

// walk begins to copy the directories and files of the tree, and returns what is to be done when they are there.
func (c *copying) walk(ctx context.Context, root *directory) (directories []*directory, links []link, err error) {
	defer c.progress.found.Store(true)
	there := make(map[pathuri.URI]*directory) // by path at this end; nil for one that is left out with all in it
	for entry, err := range c.from.Files.Walk(ctx, c.from.Path, env.WalkOptions{}) {
		if err != nil {
			return directories, links, err
		}
		if entry.Err != nil {
			c.fail(fmt.Errorf("%q: %w", entry.Path.Display(), entry.Err))
			continue
		}
		if entry.Path == c.from.Path {
			root.mode, root.modified = entry.Info.Mode, entry.Info.Modified
			there[entry.Path] = root
			directories = append(directories, root)
			continue
		}
		in, to, err := c.place(there, entry.Path)
		if in == nil {
			if entry.Info.Mode.IsDir() {
				there[entry.Path] = nil
			}
			c.fail(err)
			continue
		}
		switch entry.Info.Mode.Type() {
		case fs.ModeDir:
			d := &directory{path: to, mode: entry.Info.Mode, modified: entry.Info.Modified, ready: make(chan struct{})}
			there[entry.Path] = d
			directories = append(directories, d)
			c.task(ctx, 0, func() error { return c.make(ctx, d, in) })
		case fs.ModeSymlink:
			c.progress.foundFiles.Add(1)
			links = append(links, link{to, entry.Target, in})
		case 0:
			c.progress.foundFiles.Add(1)
			c.progress.foundBytes.Add(entry.Info.Size)
			if isSmall(entry.Info) {
				c.add(ctx, small{entry.Path, to, entry.Info.Size, in})
				continue
			}
			c.task(ctx, entry.Info.Size, func() error {
				if !in.wait(ctx) {
					return nil // its error has been told
				}
				return c.file(ctx, entry.Path, to, entry.Info, in)
			})
		default:
			c.fail(fmt.Errorf("%w: %q (%v) is left out", env.ErrNotRegular, entry.Path.Display(), entry.Info.Mode.Type()))
		}
	}
	return directories, links, nil
}

// place is where an entry goes at the other end: into a directory that was told before it. It is in none if it cannot
// be there; without an error that is because its directory cannot.
func (c *copying) place(there map[pathuri.URI]*directory, path pathuri.URI) (in *directory, to pathuri.URI, err error) {
	parent, _ := path.Parent()
	in, known := there[parent]
	if !known {
		return nil, to, fmt.Errorf("%w: %q is in no directory that was told of", env.ErrInvalid, path.Display())
	}
	if in == nil {
		return nil, to, nil
	}
	name, _ := path.Base()
	if to, err = in.path.JoinName(name); err != nil {
		return nil, to, fmt.Errorf("%w: %q has no name at the other end: %w", env.ErrInvalid, path.Display(), err)
	}
	if to.Convention() == pathuri.Windows && c.from.Path.Convention() != pathuri.Windows {
		if in.names == nil {
			in.names = make(map[string]string)
		}
		folded := strings.ToLower(name)
		if other, taken := in.names[folded]; taken && other != name {
			return nil, to, fmt.Errorf("%w: %q has the same name as %q at the other end", fs.ErrExist, path.Display(), other)
		}
		in.names[folded] = name
	}
	return in, to, nil
}

// wait waits until the directory is there, and tells whether it is.
func (d *directory) wait(ctx context.Context) bool {
	select {
	case <-d.ready:
		return !d.failed
	case <-ctx.Done():
		return false // what made it may have been given up
	}
}

// make makes a directory, when the one it is in is there.
func (c *copying) make(ctx context.Context, d, in *directory) error {
	d.failed = true
	defer close(d.ready)
	if !in.wait(ctx) {
		return nil // its error has been told
	}
	d.bits = c.closed()
	if bits := c.permissions(d.mode); d.bits != nil && in.made && bits&0o300 == 0o300 {
		d.bits = &bits // nobody else comes here, and we can write there
	}
	var err error
	if d.made, err = c.directory(ctx, d.path, d.bits, false); err == nil {
		d.failed = false
	}
	return err
}

// directory makes a directory, with what is missing above it if parents says so. One that is there already is as good.
func (c *copying) directory(ctx context.Context, path pathuri.URI, bits *fs.FileMode, parents bool) (made bool, err error) {
	err = c.to.Files.Mkdir(ctx, path, env.MkdirOptions{Permissions: bits})
	if parents && errors.Is(err, fs.ErrNotExist) {
		parent, _ := path.Parent()
		if err := c.to.Files.Mkdir(ctx, parent, env.MkdirOptions{Parents: true}); err != nil {
			return false, err
		}
		err = c.to.Files.Mkdir(ctx, path, env.MkdirOptions{Permissions: bits})
	}
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	info, statErr := c.to.Files.Stat(ctx, path, true)
	if statErr == nil && !info.Mode.IsDir() {
		statErr = fmt.Errorf("%w: %q, where a directory is to be", env.ErrNotDirectory, path.Display())
	}
	return false, statErr
}

// closed are the permissions of a directory that nobody else is to look into yet. They are nil where the other end has
// permissions of another kind.
func (c *copying) closed() *fs.FileMode {
	if !c.sameKind() {
		return nil
	}
	bits := fs.FileMode(0o700)
	return &bits
}

// unfinished tells whether a directory still has to get something.
func (c *copying) unfinished(d *directory) bool {
	return c.preserve || d.bits != nil && d.made && *d.bits != c.permissions(d.mode)
}

// finish gives a directory what it is to have once nothing more comes into it.
func (c *copying) finish(ctx context.Context, d *directory) error {
	var attributes env.Attributes
	if c.sameKind() {
		bits := c.permissions(d.mode)
		attributes.Permissions = &bits
	}
	if c.preserve {
		attributes.Modified = &d.modified
	}
	return c.to.Files.SetAttributes(ctx, d.path, attributes)
}
