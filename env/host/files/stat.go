package files

import (
	"context"

	"waldo/env"
	"waldo/pathuri"
)

// Stat implements env.Files.
func (f *Files) Stat(ctx context.Context, path pathuri.URI, followed bool) (env.FileInfo, error) {
	var how lookup
	if followed {
		how = follow
	}
	var info env.FileInfo
	err := f.on(ctx, "stat", path, how, func(p place) error {
		st, err := p.stat()
		if err == nil {
			info = st.info()
		}
		return err
	})
	return info, err
}

// ReadLink implements env.Files.
func (f *Files) ReadLink(ctx context.Context, path pathuri.URI) (string, error) {
	var target string
	err := f.on(ctx, "read link", path, 0, func(p place) (err error) {
		target, err = p.readlink()
		return err
	})
	return target, err
}

// Canonicalize implements env.Files. Confined, the root keeps the spelling it was given, so that the result can be
// used with the same files.
func (f *Files) Canonicalize(ctx context.Context, path pathuri.URI) (pathuri.URI, error) {
	text, err := native(ctx, "canonicalize", path)
	if err != nil {
		return pathuri.URI{}, err
	}
	result, err := f.canonicalize(path, text)
	if err != nil {
		return pathuri.URI{}, failure("canonicalize", text, err)
	}
	return result, nil
}
