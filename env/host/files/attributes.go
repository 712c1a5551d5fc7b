package files

import (
	"context"
	"fmt"
	"os"

	"waldo/env"
	"waldo/pathuri"
)

// SetAttributes implements env.Files. The size is changed first and the times last, so that all hold at the end.
func (f *Files) SetAttributes(ctx context.Context, path pathuri.URI, a env.Attributes) error {
	if a.Size != nil && *a.Size < 0 {
		return fmt.Errorf("%w: set attributes %q: a size of %d", env.ErrInvalid, path.Display(), *a.Size)
	}
	return f.on(ctx, "set attributes", path, follow, func(p place) error {
		if a.Size != nil {
			if err := p.truncate(*a.Size); err != nil {
				return err
			}
		}
		if a.Permissions != nil {
			if err := p.chmod(*a.Permissions & permissionBits); err != nil {
				return err
			}
		}
		if a.Accessed != nil || a.Modified != nil {
			times, err := timespecs(a.Accessed, a.Modified)
			if err != nil {
				return err
			}
			return p.setTimes(times)
		}
		if a.Size == nil && a.Permissions == nil {
			_, err := p.stat()
			return err
		}
		return nil
	})
}

func (p place) truncate(size int64) error {
	file, _, err := p.openRegular(os.O_WRONLY)
	if err != nil {
		return err
	}
	err = file.Truncate(size)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
