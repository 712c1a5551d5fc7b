package files

import (
	"context"
	"errors"
	"io/fs"

	"waldo/env"
	"waldo/pathuri"
)

// Mkdir implements env.Files.
func (f *Files) Mkdir(ctx context.Context, path pathuri.URI, o env.MkdirOptions) error {
	err := f.mkdir(ctx, path, o.Permissions)
	if o.Parents && errors.Is(err, fs.ErrNotExist) {
		if err := f.mkdirAbove(ctx, path); err != nil {
			return err
		}
		err = f.mkdir(ctx, path, o.Permissions)
	}
	if o.Parents && err != nil && f.isDirectory(ctx, path) {
		return nil
	}
	return err
}

// mkdirAbove makes the directories that are missing above path.
func (f *Files) mkdirAbove(ctx context.Context, path pathuri.URI) error {
	above, ok := path.Parent()
	if !ok || f.confined() && path == f.root {
		return nil
	}
	return f.Mkdir(ctx, above, env.MkdirOptions{Parents: true})
}

func (f *Files) isDirectory(ctx context.Context, path pathuri.URI) bool {
	info, err := f.Stat(ctx, path, true)
	return err == nil && info.Mode.IsDir()
}

func (f *Files) mkdir(ctx context.Context, path pathuri.URI, permissions *fs.FileMode) error {
	return f.on(ctx, "mkdir", path, 0, func(p place) error {
		if permissions == nil {
			return p.mkdir(0o777)
		}
		mode := *permissions & permissionBits
		if err := p.mkdir(mode.Perm()); err != nil {
			return err
		}
		// The umask may have taken some.
		if st, err := p.lstat(); err == nil && st.mode&permissionBits == mode {
			return nil
		}
		return p.chmod(mode)
	})
}
