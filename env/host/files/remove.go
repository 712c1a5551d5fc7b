package files

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"waldo/env"
	"waldo/pathuri"
)

var (
	errRoot  = coded{errors.New("it is the root that everything here lies below, and is not removed"), fs.ErrPermission}
	errMount = coded{errors.New("a file system is mounted there: unmount it first"), fs.ErrPermission}
)

// Remove implements env.Files. Where a file system is mounted somewhere in the tree, it stops there.
func (f *Files) Remove(ctx context.Context, path pathuri.URI, o env.RemoveOptions) error {
	err := f.on(ctx, "remove", path, hold, func(p place) error {
		if p.isDirectoryItself() {
			return errRoot
		}
		if err := refuseMount(p); err != nil {
			return err
		}
		r := remover{ctx: ctx, top: path}
		return r.remove(p, o.Recursive)
	})
	if o.Force && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func refuseMount(p place) error {
	mount, err := p.isMount()
	if err == nil && mount {
		err = errMount
	}
	return err
}

// remover removes a tree, from handle to handle.
type remover struct {
	ctx   context.Context
	top   pathuri.URI
	trail []string // names that lead from there to where it is
}

func (r *remover) failure(err error) error {
	return failure("remove", below(r.top, r.trail), err)
}

// remove removes what is at the place, which is no mount point.
func (r *remover) remove(p place, recursive bool) error {
	st, err := p.lstat()
	if err != nil {
		return r.failure(err)
	}
	if !st.mode.IsDir() {
		if err := p.unlink(); err != nil {
			return r.failure(err)
		}
		return nil
	}
	err = p.rmdir()
	if err == nil || !recursive || !isNotEmpty(err) {
		if err != nil {
			err = r.failure(err)
		}
		return err
	}
	l, err := p.list()
	if err != nil {
		return r.failure(err)
	}
	defer l.close()
	for {
		removed, err := r.entries(l)
		if err != nil {
			return err
		}
		err = p.rmdir()
		if err == nil {
			return nil
		}
		// Others add to it, or reading missed some because of what was removed.
		if !isNotEmpty(err) || removed == 0 {
			return r.failure(err)
		}
		if err := l.rewind(); err != nil {
			return r.failure(err)
		}
	}
}

// entries removes what the directory holds, and returns how much that was.
func (r *remover) entries(l *listing) (removed int, err error) {
	for {
		names, err := l.names()
		for _, name := range names {
			if cause := context.Cause(r.ctx); cause != nil {
				return removed, cause
			}
			r.trail = append(r.trail, name)
			p := l.child(name)
			err := refuseMount(p)
			if err == nil {
				err = r.remove(p, true)
			} else {
				err = r.failure(err)
			}
			r.trail = r.trail[:len(r.trail)-1]
			switch {
			case err == nil:
				removed++
			case !errors.Is(err, fs.ErrNotExist):
				return removed, err
			}
		}
		if err == io.EOF { //nolint:errorlint // as it is documented
			return removed, nil
		}
		if err != nil {
			return removed, r.failure(err)
		}
	}
}

func isNotEmpty(err error) bool {
	return errors.Is(contractual(bare(err)), env.ErrNotEmpty) || errors.Is(err, fs.ErrExist)
}

// below is the path that names lead to, as people read it.
func below(path pathuri.URI, names []string) string {
	for _, name := range names {
		next, err := path.JoinName(name)
		if err != nil {
			return path.Display()
		}
		path = next
	}
	return path.Display()
}
