// Package files works on this machine's file systems: it is env.Files, but for walks and for
// what is done to many files in one call.
//
// Nothing is looked at first and opened later. A call gets a handle of what it works on, or of the directory that
// holds it, judges that handle and acts on it; so links and directories that are swapped meanwhile change which
// file is met, never what may be done with it.
package files

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

// Files is the files of this machine, or those below one directory. It needs no closing: handles are held for a
// call at a time.
type Files struct {
	// root, unless zero, is the directory that no call leaves, and outer where it is looked up itself.
	root  pathuri.URI
	outer *Files
}

// What the host adds makes it the contract.
var _ env.Files = struct {
	*Files
	added
}{}

type added interface {
	Within(root pathuri.URI) env.Files
	ReadFiles(ctx context.Context, paths []pathuri.URI, limit int64) iter.Seq2[env.FileContent, error]
	WriteFiles(ctx context.Context, contents []env.FileContent) ([]error, error)
	Walk(ctx context.Context, root pathuri.URI, options env.WalkOptions) iter.Seq2[env.Entry, error]
}

// New returns all files of this machine.
func New() *Files { return &Files{} }

// Confined is what [env.Files] says of Within. Links that stay below root work, absolute ones too if they name the
// root as it is spelled here.
func (f *Files) Confined(root pathuri.URI) *Files { return &Files{root: root, outer: f} }

func (f *Files) confined() bool { return f.outer != nil }

// native returns the path as the kernel takes it. It is what every call begins with.
func native(ctx context.Context, op string, path pathuri.URI) (string, error) {
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	if path.IsZero() {
		return "", fmt.Errorf("%w: %s of no path", env.ErrInvalid, op)
	}
	text, err := path.NativeFor(convention)
	if err != nil {
		return "", fmt.Errorf("%s: %w", op, err)
	}
	if strings.IndexByte(text, 0) >= 0 {
		return "", fmt.Errorf("%w: %s %q: the path contains a NUL", env.ErrInvalid, op, text)
	}
	return text, nil
}

// maxTries bounds how often a call begins again because a link or a file was swapped under it; then it is a loop.
const maxTries = 64

// on finds path, does what there is to do, and begins again when that has met a link that was not there before.
func (f *Files) on(ctx context.Context, op string, path pathuri.URI, how lookup, do func(p place) error) error {
	text, err := native(ctx, op, path)
	if err != nil {
		return err
	}
	err = f.try(path, text, how, do)
	if err != nil {
		return failure(op, text, err)
	}
	return nil
}

func (f *Files) try(path pathuri.URI, text string, how lookup, do func(p place) error) error {
	for range maxTries {
		p, err := f.find(path, text, how)
		if err != nil {
			return err
		}
		err = do(p)
		p.close()
		if err != errSwapped { //nolint:errorlint // it is never wrapped
			return err
		}
	}
	return errLoop
}

// lookup says how a path becomes a place.
type lookup uint8

const (
	follow lookup = 1 << iota // a link in the last name is followed
	hold                      // the directory is held open, so that several steps happen in the same one
)
