package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

// Stat implements env.Files.
func (h *Host) Stat(ctx context.Context, path pathuri.URI, follow bool) (env.FileInfo, error) {
	if err := context.Cause(ctx); err != nil {
		return env.FileInfo{}, err
	}
	if path.IsZero() {
		return env.FileInfo{}, fmt.Errorf("%w: stat of no path", env.ErrInvalid)
	}
	native, err := path.NativeFor(convention)
	if err != nil {
		return env.FileInfo{}, fmt.Errorf("stat: %w", err)
	}
	if strings.ContainsRune(native, 0) {
		return env.FileInfo{}, fmt.Errorf("%w: stat %q: the path contains a NUL", env.ErrInvalid, native)
	}
	stat := os.Lstat
	if follow {
		stat = os.Stat
	}
	info, err := stat(native)
	if err != nil {
		var pathError *fs.PathError
		if errors.As(err, &pathError) {
			err = pathError.Err // the path is said below, with its bytes escaped
		}
		return env.FileInfo{}, fmt.Errorf("stat %q: %w", native, err)
	}
	return env.FileInfo{Size: info.Size(), Mode: info.Mode(), Modified: info.ModTime()}, nil
}
