package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// Copy implements env.Files. Each file is there as a whole or not at all. Directories that are made get the
// permissions and the time of theirs, directories that were there keep what they have. When the contents reach the
// disk is left to the machine. What fails in a tree is told at the end, and the rest is copied nevertheless, unless
// the disk is full.
func (f *Files) Copy(ctx context.Context, from, to pathuri.URI, o env.CopyOptions) error {
	fromText, err := native(ctx, "copy", from)
	if err != nil {
		return err
	}
	toText, err := native(ctx, "copy", to)
	if err != nil {
		return err
	}
	c := copier{ctx: ctx, from: from, options: o}
	err = f.try(from, fromText, hold, func(source place) error {
		st, err := source.lstat()
		if err != nil {
			return err
		}
		how := hold | follow
		if o.Exclusive || st.isLink() {
			how = hold
		}
		return f.try(to, toText, how, func(target place) error { return c.top(source, target, st) })
	})
	if err != nil {
		return failureOf2("copy", fromText, toText, err)
	}
	return c.result()
}

var (
	errOntoItself = coded{errors.New("the two are the same file"), env.ErrInvalid}
	errIntoItself = coded{errors.New("a directory cannot be copied into itself"), env.ErrInvalid}
	errInTheWay   = coded{errors.New("what is there is not a directory"), env.ErrNotDirectory}
)

// maxTold bounds how many failures in a tree are told one by one.
const maxTold = 16

// copier copies a file, a link or a tree, from handle to handle.
type copier struct {
	ctx     context.Context
	from    pathuri.URI
	options env.CopyOptions
	trail   []string // names that lead from there to where it is
	target  identity // the directory that is copied to
	told    []error
	untold  int
}

// add notes what failed in the tree and returns it if it ends the copy.
func (c *copier) add(err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(c.ctx); cause != nil {
		return cause
	}
	err = failure("copy", below(c.from, c.trail), err)
	if errors.Is(err, env.ErrLimit) || errors.Is(err, errIntoItself) {
		return err
	}
	if len(c.told) == maxTold {
		c.untold++
		return nil
	}
	c.told = append(c.told, err)
	return nil
}

func (c *copier) result() error {
	if c.untold > 0 {
		c.told = append(c.told, fmt.Errorf("and %d more could not be copied", c.untold))
	}
	return errors.Join(c.told...)
}

// top copies what the call names. It refuses before it changes anything.
func (c *copier) top(source, target place, st status) error {
	there, err := target.stat()
	exists := err == nil
	switch {
	case !exists && !errors.Is(err, fs.ErrNotExist):
		return err
	case exists && there.id.same(st.id):
		return errOntoItself
	case exists && c.options.Exclusive:
		return fs.ErrExist
	}
	switch {
	case st.mode.IsRegular():
		if target.isDirectoryItself() || exists && there.mode.IsDir() {
			return errIsDirectory
		}
		return c.file(source, target, st)
	case st.isLink():
		if exists && there.mode.IsDir() {
			return errIsDirectory
		}
		if end, err := source.target(); exists && err == nil && end.id.same(there.id) {
			return errOntoItself // it would become a link to itself
		}
		return c.link(source, target, st)
	case !st.mode.IsDir():
		return errSpecial
	case !c.options.Recursive:
		return errIsDirectory
	case exists && !there.mode.IsDir():
		return errNotDirectory
	}
	if err := refuseBelow(st, target); err != nil {
		return err
	}
	return c.directory(source, target, &st)
}

var (
	errIsDirectory  = coded{errors.New("it is a directory"), env.ErrIsDirectory}
	errNotDirectory = coded{errors.New("not a directory"), env.ErrNotDirectory}
)

// refuseBelow refuses a target in the directory st or below it, by whatever path it was named.
func refuseBelow(st status, target place) error {
	at := target.dir
	for {
		here, err := at.status()
		if err == nil && here.id.same(st.id) {
			err = errIntoItself
		}
		var above *directory
		if err == nil {
			above, err = at.parent()
		}
		if at != target.dir {
			at.close()
		}
		if err != nil {
			return err
		}
		next, err := above.status()
		if err != nil || next.id.same(here.id) {
			above.close()
			return err
		}
		at = above
	}
}

// copyStep is how much is copied between two looks at the context.
const copyStep = 16 << 20

// file copies a regular file.
func (c *copier) file(source, target place, st status) error {
	file, st, err := source.openRegular(os.O_RDONLY)
	if err == errSwapped && len(c.trail) > 0 { //nolint:errorlint // it is never wrapped
		return fs.ErrNotExist // the file that was to be copied has gone
	}
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	permissions := st.mode.Perm()
	w := &writer{ctx: c.ctx, text: below(c.from, c.trail), unlink: !target.links, options: env.WriteOptions{
		Mode: env.Replace, Permissions: &permissions, Modified: st.modified, Unsynced: true,
	}}
	if c.options.Exclusive && len(c.trail) == 0 {
		w.options.Mode = env.Exclusive
	}
	if there, err := target.lstat(); err == nil && there.id.same(st.id) {
		return errOntoItself // by another of its names
	}
	if err := w.begin(target); err != nil {
		return err
	}
	defer w.Close() //nolint:errcheck // it gives up what is not committed
	if err := c.content(file, w, st); err != nil {
		return err
	}
	_, err = w.Commit()
	return err
}

// content copies what is in a file, by the machine's own means where it has some.
func (c *copier) content(from *os.File, w *writer, st status) error {
	holes := st.allocated >= 0 && st.allocated < st.size
	for position := int64(0); ; {
		step := int64(copyStep)
		if holes {
			start, end, err := nextData(from, position)
			switch {
			case errors.Is(err, errors.ErrUnsupported):
				holes = false
			case err == io.EOF: //nolint:errorlint // nextData says it so
				size, err := from.Seek(0, io.SeekEnd)
				if err != nil {
					return err
				}
				// The last hole. What the file grows by behind it is read as it comes.
				if err := w.Skip(max(0, size-position)); err != nil {
					return err
				}
				position, holes = max(size, position), false
			case err != nil:
				return err
			default:
				if err := w.Skip(start - position); err != nil {
					return err
				}
				position, step = start, min(step, end-start)
			}
			if _, err := from.Seek(position, io.SeekStart); err != nil {
				return err
			}
		}
		n, err := w.readFrom(from, step)
		position += n
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

// readFrom is Write of the next bytes of a file.
func (w *writer) readFrom(from *os.File, n int64) (int64, error) {
	if err := w.check(); err != nil {
		return 0, err
	}
	if err := w.seek(); err != nil {
		return 0, err
	}
	n, err := io.Copy(w.file, &io.LimitedReader{R: from, N: n})
	w.wrote(n)
	return n, err
}

// link copies a link as it is written.
func (c *copier) link(source, target place, st status) error {
	text, err := source.readlink()
	if err != nil {
		return err
	}
	err = target.symlink(text)
	if errors.Is(err, fs.ErrExist) && !c.options.Exclusive {
		at := target.sibling(temporaryName())
		if err = at.symlink(text); err != nil {
			return err
		}
		if err = rename(at, target); err != nil {
			at.unlink() //nolint:errcheck // it was made above
		}
	}
	if err == nil {
		err = target.setLinkTime(st)
	}
	return err
}

// directory copies a directory; top describes it as it was judged, if it was.
func (c *copier) directory(source, target place, top *status) error {
	source.links = false
	l, err := source.list()
	if err != nil {
		return err
	}
	defer l.close()
	st, err := l.status()
	if err != nil {
		return err
	}
	if top != nil && !top.id.same(st.id) {
		return errSwapped
	}
	if top == nil && c.target.same(st.id) {
		return errIntoItself
	}
	made := target.mkdir(0o700)
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return made
	}
	to, err := target.openDirectory()
	if made != nil && errors.Is(contractual(bare(err)), env.ErrNotDirectory) {
		return errInTheWay
	}
	if err != nil {
		return err
	}
	defer to.close()
	there, err := to.status()
	switch {
	case err != nil:
		return err
	case there.id.same(st.id):
		return errOntoItself
	case top != nil:
		c.target = there.id
	}
	err = c.entries(l, to)
	if made == nil {
		if attributesErr := setDirectory(to, st); err == nil {
			err = attributesErr
		}
	}
	return err
}

// setDirectory gives a directory that was made the permissions and the time of another.
func setDirectory(d *directory, st status) error {
	if err := d.child(".").chmod(st.mode.Perm()); err != nil {
		return err
	}
	return d.child(".").setModified(st.modified)
}

// entries copies what is in a directory.
func (c *copier) entries(l *listing, to *directory) error {
	for {
		names, err := l.names()
		for _, name := range names {
			if cause := context.Cause(c.ctx); cause != nil {
				return cause
			}
			c.trail = append(c.trail, name)
			err := c.add(c.entry(l.child(name), to.child(name)))
			c.trail = c.trail[:len(c.trail)-1]
			if err != nil {
				return err
			}
		}
		if err == io.EOF { //nolint:errorlint // as it is documented
			return nil
		}
		if err != nil {
			return c.add(err)
		}
	}
}

func (c *copier) entry(source, target place) error {
	st, err := source.lstat()
	if err == nil {
		switch {
		case st.mode.IsDir():
			err = c.directory(source, target, nil)
		case st.mode.IsRegular():
			err = c.file(source, target, st)
		case st.isLink():
			err = c.link(source, target, st)
		default:
			return errSpecial
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, still := source.lstat(); errors.Is(still, fs.ErrNotExist) {
			return nil // it has gone meanwhile
		}
	}
	return err
}

// setModified sets the time of what is at the place.
func (p place) setModified(t time.Time) error {
	times, err := timespecs(nil, &t)
	if err != nil {
		return err
	}
	return p.setTimes(times)
}

// setLinkTime gives a link that was made the time of another, where links have one that can be set.
func (p place) setLinkTime(st status) error {
	p.links = false
	p.setModified(st.modified) //nolint:errcheck // as above
	return nil
}
