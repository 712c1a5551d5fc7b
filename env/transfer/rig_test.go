package transfer

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"testing"

	"waldo/env"
	"waldo/env/envtest/fake"
	"waldo/pathuri"
)

func uri(tb testing.TB, native string) pathuri.URI {
	tb.Helper()
	convention := pathuri.Posix
	if !strings.HasPrefix(native, "/") {
		convention = pathuri.Windows
	}
	u, err := pathuri.FromNative(native, convention)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

func end(tb testing.TB, files env.Files, native string) End {
	tb.Helper()
	return End{files, uri(tb, native)}
}

// posix is a machine with these files.
func posix(files map[string]string) *fake.Machine {
	m := fake.New(pathuri.Posix)
	m.Tree(files)
	return m
}

func chmod(tb testing.TB, m *fake.Machine, native string, bits fs.FileMode) {
	tb.Helper()
	if err := m.SetAttributes(tb.Context(), uri(tb, native), env.Attributes{Permissions: &bits}); err != nil {
		tb.Fatal(err)
	}
}

func symlink(tb testing.TB, m *fake.Machine, target, native string) {
	tb.Helper()
	if err := m.Symlink(tb.Context(), target, uri(tb, native)); err != nil {
		tb.Fatal(err)
	}
}

// tree tells what is below a directory: directories with a slash, links with their target, files with their content.
func tree(tb testing.TB, files env.Files, native string) []string {
	tb.Helper()
	return list(tb, files, native, func(name string, entry env.Entry) string {
		switch {
		case entry.Info.Mode.IsDir():
			return name + "/"
		case entry.Info.Mode.Type() == fs.ModeSymlink:
			return name + "→" + entry.Target
		}
		content, _, err := env.ReadFile(context.Background(), files, entry.Path, 1<<20)
		if err != nil {
			tb.Fatal(err)
		}
		if len(content) > 20 {
			return fmt.Sprintf("%s=%d bytes", name, len(content))
		}
		return name + "=" + string(content)
	})
}

// modes tells the permission bits of a directory and of what is below it.
func modes(tb testing.TB, files env.Files, native string) []string {
	tb.Helper()
	return list(tb, files, native, func(name string, entry env.Entry) string {
		return fmt.Sprintf("%s %o", name, entry.Info.Mode.Perm())
	})
}

func list(tb testing.TB, files env.Files, native string, tell func(name string, entry env.Entry) string) (all []string) {
	tb.Helper()
	root := uri(tb, native)
	for entry, err := range files.Walk(context.Background(), root, env.WalkOptions{}) {
		if err != nil {
			tb.Fatal(err)
		}
		name, _ := root.Rel(entry.Path)
		if name == "" {
			name = "."
		}
		all = append(all, tell(name, entry))
	}
	return all
}

func want(tb testing.TB, what string, got []string, want ...string) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// other is a machine's files by another way, as a second connection to it is, with some calls changed.
type other struct {
	env.Files
	walk func(root pathuri.URI) iter.Seq2[env.Entry, error]
	read func(path pathuri.URI, reader env.FileReader) env.FileReader
}

func (o *other) Walk(ctx context.Context, root pathuri.URI, options env.WalkOptions) iter.Seq2[env.Entry, error] {
	if o.walk == nil {
		return o.Files.Walk(ctx, root, options)
	}
	return o.walk(root)
}

func (o *other) Read(ctx context.Context, path pathuri.URI, options env.ReadOptions) (env.FileReader, error) {
	reader, err := o.Files.Read(ctx, path, options)
	if err == nil && o.read != nil {
		reader = o.read(path, reader)
	}
	return reader, err
}

func (o *other) ReadFiles(ctx context.Context, paths []pathuri.URI, limit int64) iter.Seq2[env.FileContent, error] {
	return env.ReadEach(ctx, o, paths, limit)
}

// failing is a reader that fails behind its first chunk.
type failing struct {
	env.FileReader
	err error
}

func (r failing) Chunks() iter.Seq2[env.FileChunk, error] {
	return func(yield func(env.FileChunk, error) bool) {
		for chunk, err := range r.FileReader.Chunks() {
			if err != nil || !yield(chunk, nil) {
				return
			}
			break
		}
		yield(env.FileChunk{}, r.err)
	}
}
