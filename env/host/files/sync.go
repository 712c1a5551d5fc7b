package files

import (
	"context"
	"errors"
	"io/fs"

	"waldo/env"
	"waldo/pathuri"
)

// Sync implements env.Files.
func (f *Files) Sync(ctx context.Context, path pathuri.URI) error {
	err := f.on(ctx, "sync", path, follow, func(p place) error { return p.syncSystem() })
	if errors.Is(err, env.ErrNotRegular) || errors.Is(err, fs.ErrPermission) && !errors.Is(err, errEscapes) {
		// It cannot be opened for that; its directory lies on the same file system.
		if above, ok := path.Parent(); ok {
			err = f.on(ctx, "sync", above, follow, func(p place) error { return p.syncSystem() })
		}
	}
	return err
}
