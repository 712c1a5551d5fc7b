package host

import (
	"context"
	"iter"
	"os"

	"waldo/env"
	"waldo/env/host/files"
	"waldo/env/host/search"
	"waldo/pathuri"
)

// fileSystem is the machine's files, or those below a directory.
type fileSystem struct {
	*files.Files
}

var _ env.Files = fileSystem{}

// Within implements [env.Files].
func (f fileSystem) Within(root pathuri.URI) env.Files { return fileSystem{f.Confined(root)} }

// ReadFiles implements [env.Files].
func (f fileSystem) ReadFiles(ctx context.Context, paths []pathuri.URI, limit int64) iter.Seq2[env.FileContent, error] {
	return env.ReadEach(ctx, f, paths, limit)
}

// WriteFiles implements [env.Files].
func (f fileSystem) WriteFiles(ctx context.Context, contents []env.FileContent) ([]error, error) {
	return env.WriteEach(ctx, f, contents)
}

// Walk implements [env.Files].
func (f fileSystem) Walk(ctx context.Context, root pathuri.URI, options env.WalkOptions) iter.Seq2[env.Entry, error] {
	return func(yield func(env.Entry, error) bool) {
		info, err := f.Stat(ctx, root, true)
		if err != nil || !info.Mode.IsDir() {
			info.Version = "" // as in any list
			yield(env.Entry{Path: root, Info: info}, err)
			return
		}
		search.Walk(ctx, root, func() (*os.File, error) { return f.OpenDirectory(ctx, root) }, options)(yield)
	}
}
