package files

import (
	"context"
	"os"

	"waldo/pathuri"
)

// OpenDirectory opens the directory at path (followed), for who reads what is below it. The caller closes it.
func (f *Files) OpenDirectory(ctx context.Context, path pathuri.URI) (file *os.File, err error) {
	err = f.on(ctx, "open directory", path, follow, func(p place) error {
		l, err := p.list()
		if err == nil {
			file = l.file
		}
		return err
	})
	return file, err
}
