package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"

	"waldo/env"
	"waldo/pathuri"
)

// List implements env.Files.
func (f *Files) List(ctx context.Context, path pathuri.URI) iter.Seq2[env.Entry, error] {
	return func(yield func(env.Entry, error) bool) {
		text, err := native(ctx, "list", path)
		if err != nil {
			yield(env.Entry{}, err)
			return
		}
		var l *listing
		err = f.try(path, text, follow, func(p place) (err error) {
			l, err = p.list()
			return err
		})
		if err != nil {
			yield(env.Entry{}, failure("list", text, err))
			return
		}
		defer l.close()
		for {
			names, err := l.names()
			for _, name := range names {
				if cause := context.Cause(ctx); cause != nil {
					yield(env.Entry{}, cause)
					return
				}
				entry, ok := describe(l.child(name), path)
				if ok && !yield(entry, nil) {
					return
				}
			}
			if err == io.EOF { //nolint:errorlint // as it is documented
				return
			}
			if err != nil {
				yield(env.Entry{}, failure("list", text, err))
				return
			}
		}
	}
}

// describe returns what there is to say about an entry of the directory above; nothing if it is gone.
func describe(p place, above pathuri.URI) (env.Entry, bool) {
	var entry env.Entry
	entry.Path, entry.Err = above.JoinName(p.name)
	if entry.Err != nil {
		entry.Path = above
		return entry, true
	}
	st, err := p.lstat()
	if err == nil && st.isLink() {
		entry.Target, err = p.readlink()
	}
	switch {
	case err == nil:
		entry.Info = st.entry()
	case errors.Is(err, fs.ErrNotExist) || err == errNotLink: //nolint:errorlint // it is never wrapped
		return entry, false // gone, or something else by now
	default:
		entry.Err = failure("stat", entry.Path.Display(), err)
	}
	return entry, true
}
