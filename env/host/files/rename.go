package files

import (
	"context"
	"errors"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

// on2 is on for two paths. An error tells both.
func (f *Files) on2(ctx context.Context, op string, from, to pathuri.URI, do func(from, to place) error) error {
	fromText, err := native(ctx, op, from)
	if err != nil {
		return err
	}
	toText, err := native(ctx, op, to)
	if err != nil {
		return err
	}
	err = f.try(from, fromText, 0, func(p place) error {
		return f.try(to, toText, 0, func(q place) error { return do(p, q) })
	})
	if err != nil {
		return failureOf2(op, fromText, toText, err)
	}
	return nil
}

// Rename implements env.Files.
func (f *Files) Rename(ctx context.Context, from, to pathuri.URI, o env.RenameOptions) error {
	return f.on2(ctx, "rename", from, to, func(p, q place) error {
		if p.isDirectoryItself() || q.isDirectoryItself() {
			return errRootRenamed
		}
		var err error
		if o.Exclusive {
			err = renameExclusive(p, q)
		} else {
			err = rename(p, q)
		}
		if isOtherDevice(err) {
			return acrossDevices{err}
		}
		return err
	})
}

var errRootRenamed = coded{errors.New("it is the root that everything here lies below"), env.ErrInvalid}

// acrossDevices says what to do instead.
type acrossDevices struct{ error }

func (a acrossDevices) Error() string {
	return strings.TrimSuffix(a.error.Error(), ".") + ": the two lie on different file systems: copy and remove instead"
}

func (a acrossDevices) Unwrap() error { return a.error }

// Link implements env.Files.
func (f *Files) Link(ctx context.Context, existing, path pathuri.URI) error {
	return f.on2(ctx, "link", existing, path, link)
}

// Symlink implements env.Files.
func (f *Files) Symlink(ctx context.Context, target string, path pathuri.URI) error {
	return f.on(ctx, "symlink", path, 0, func(p place) error {
		if target == "" || strings.IndexByte(target, 0) >= 0 {
			return coded{errors.New("a link's target is a text without NUL, and not empty"), env.ErrInvalid}
		}
		return p.symlink(target)
	})
}
