package codex

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"strings"

	"waldo/env"
	"waldo/wire/jsonrpc"
)

const (
	maxReadFile  = 512 << 20
	maxDirectory = 50_000
)

// base64Text is base64 whose faults are told by the method, not while decoding.
type base64Text struct {
	data []byte
	err  error
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *base64Text) UnmarshalText(text []byte) error {
	b.data = make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	var n int
	if n, b.err = base64.StdEncoding.Strict().Decode(b.data, text); b.err == nil && strings.ContainsAny(string(text), "\r\n") {
		b.err = errors.New("line breaks")
	}
	b.data = b.data[:n]
	return nil
}

// yes tells whether an option is on that is on by default.
func yes(option *bool) bool { return option == nil || *option }

// links is where symbolic links lie on a path that is to have none.
type links struct{ middle, last bool }

// linksOn looks for links on a path, for calls that are not to follow any. It judges by what is there at this moment.
func (c *connection) linksOn(ctx context.Context, path pathURI) (links, error) {
	parent, ok := path.Parent()
	if !ok {
		return links{}, nil
	}
	canonical, err := c.session.env.Canonicalize(ctx, parent)
	if err != nil {
		return links{}, err
	}
	if canonical != parent {
		return links{middle: true}, nil
	}
	info, err := c.session.env.Stat(ctx, path.URI, false)
	if errors.Is(err, fs.ErrNotExist) {
		return links{}, nil
	}
	return links{last: err == nil && info.Mode&fs.ModeSymlink != 0}, err
}

// noLinks refuses a path with links on it, in the words that opening it would get.
func (c *connection) noLinks(ctx context.Context, path pathURI, follow *bool) error {
	if yes(follow) {
		return nil
	}
	found, err := c.linksOn(ctx, path)
	switch {
	case err != nil:
		return err
	case found.middle:
		return internal("Not a directory (os error 20)")
	case found.last:
		return internal("Symbolic link loop (os error 40)")
	}
	return nil
}

// reading and writing let a file call through whose sandbox can be kept.
func (c *connection) reading(sandbox *sandboxContext, paths ...pathURI) error {
	if err := c.door.local(paths...); err != nil {
		return err
	}
	return sandbox.forReading()
}

func (c *connection) writing(sandbox *sandboxContext, paths ...pathURI) error {
	if err := c.door.local(paths...); err != nil {
		return err
	}
	return sandbox.forWriting()
}

// notAFile says of what cannot be read that it is no file.
func notAFile(err error, path pathURI) error {
	if errors.Is(err, env.ErrNotRegular) || errors.Is(err, env.ErrIsDirectory) {
		return invalidRequest("path `%s` is not a file", path.Display())
	}
	return err
}

type readFileParams struct {
	Path           pathURI         `json:"path"`
	FollowSymlinks *bool           `json:"followSymlinks"`
	Sandbox        *sandboxContext `json:"sandbox"`
}

// fileContent is a result with a file's bytes.
type fileContent []byte

// AppendJSON implements [jsonrpc.Appender].
func (f fileContent) AppendJSON(b []byte) []byte {
	return append(jsonrpc.AppendBase64(append(b, `{"dataBase64":`...), f), '}')
}

func readFile(ctx context.Context, c *connection, params *readFileParams) (any, error) {
	err := c.reading(params.Sandbox, params.Path)
	if err == nil {
		err = c.noLinks(ctx, params.Path, params.FollowSymlinks)
	}
	if err != nil {
		return nil, err
	}
	data, _, err := env.ReadFile(ctx, c.session.env, params.Path.URI, maxReadFile)
	if errors.Is(err, env.ErrTooLarge) {
		return nil, invalidRequest("file is too large to read: limit is %d bytes", maxReadFile)
	}
	return fileContent(data), notAFile(err, params.Path)
}

type writeFileParams struct {
	Path           pathURI         `json:"path"`
	DataBase64     base64Text      `json:"dataBase64"`
	FollowSymlinks *bool           `json:"followSymlinks"`
	Sandbox        *sandboxContext `json:"sandbox"`
}

func writeFile(ctx context.Context, c *connection, params *writeFileParams) (any, error) {
	if err := params.DataBase64.err; err != nil {
		return nil, invalidRequest("fs/writeFile requires valid base64 dataBase64: %v", err)
	}
	err := c.writing(params.Sandbox, params.Path)
	if err == nil {
		err = c.noLinks(ctx, params.Path, params.FollowSymlinks)
	}
	if err == nil {
		_, err = env.WriteFile(ctx, c.session.env, params.Path.URI, params.DataBase64.data, env.WriteOptions{Unsynced: true})
	}
	return done{}, err
}

type createDirectoryParams struct {
	Path           pathURI         `json:"path"`
	Recursive      *bool           `json:"recursive"`
	FollowSymlinks *bool           `json:"followSymlinks"`
	Sandbox        *sandboxContext `json:"sandbox"`
}

func createDirectory(ctx context.Context, c *connection, params *createDirectoryParams) (any, error) {
	err := c.writing(params.Sandbox, params.Path)
	if err == nil && !yes(params.Recursive) {
		err = c.noLinks(ctx, params.Path, params.FollowSymlinks)
	}
	if err == nil {
		err = c.session.env.Mkdir(ctx, params.Path.URI, env.MkdirOptions{Parents: yes(params.Recursive)})
	}
	return done{}, err
}

type metadataParams struct {
	Path           pathURI         `json:"path"`
	FollowSymlinks *bool           `json:"followSymlinks"`
	Sandbox        *sandboxContext `json:"sandbox"`
}

type metadata struct {
	IsDirectory  bool  `json:"isDirectory"`
	IsFile       bool  `json:"isFile"`
	IsSymlink    bool  `json:"isSymlink"`
	Size         int64 `json:"size"`
	CreatedAtMS  int64 `json:"createdAtMs"` // not known: 0, as Codex's own server says
	ModifiedAtMS int64 `json:"modifiedAtMs"`
}

func getMetadata(ctx context.Context, c *connection, params *metadataParams) (any, error) {
	if err := c.reading(params.Sandbox, params.Path); err != nil {
		return nil, err
	}
	if !yes(params.FollowSymlinks) {
		found, err := c.linksOn(ctx, params.Path)
		switch {
		case err != nil:
			return nil, err
		case found.last:
			return nil, invalidRequest("path contains a symbolic link")
		case found.middle:
			return nil, internal("Not a directory (os error 20)")
		}
	}
	info, err := c.session.env.Stat(ctx, params.Path.URI, false)
	if err != nil {
		return nil, err
	}
	link := info.Mode&fs.ModeSymlink != 0
	if link {
		if info, err = c.session.env.Stat(ctx, params.Path.URI, true); err != nil {
			return nil, err
		}
	}
	return metadata{
		IsDirectory: info.Mode.IsDir(), IsFile: info.Mode.IsRegular(), IsSymlink: link,
		Size: info.Size, ModifiedAtMS: info.Modified.UnixMilli(),
	}, nil
}

type pathParams struct {
	Path    pathURI         `json:"path"`
	Sandbox *sandboxContext `json:"sandbox"`
}

type pathResult struct {
	Path string `json:"path"`
}

func canonicalize(ctx context.Context, c *connection, params *pathParams) (any, error) {
	if err := c.reading(params.Sandbox, params.Path); err != nil {
		return nil, err
	}
	path, err := c.session.env.Canonicalize(ctx, params.Path.URI)
	return pathResult{path.String()}, err
}

type directoryEntry struct {
	FileName    string `json:"fileName"`
	IsDirectory bool   `json:"isDirectory"`
	IsFile      bool   `json:"isFile"`
}

type directoryResult struct {
	Entries []directoryEntry `json:"entries"`
}

// readDirectory lists a directory as one sees it who follows links: those that lead nowhere are not there.
func readDirectory(ctx context.Context, c *connection, params *pathParams) (any, error) {
	if err := c.reading(params.Sandbox, params.Path); err != nil {
		return nil, err
	}
	result := directoryResult{[]directoryEntry{}}
	count := 0
	for entry, err := range c.session.env.List(ctx, params.Path.URI) {
		if err != nil {
			return nil, err
		}
		name, ok := entry.Path.Base()
		info := entry.Info
		if entry.Err == nil && info.Mode&fs.ModeSymlink != 0 {
			info, entry.Err = c.session.env.Stat(ctx, entry.Path, true)
		}
		if count++; count > maxDirectory {
			return nil, internal("fs/readDirectory returned %d entries; limit is %d", count, maxDirectory)
		}
		if !ok || entry.Err != nil {
			continue
		}
		result.Entries = append(result.Entries, directoryEntry{strings.ToValidUTF8(name, "\uFFFD"), info.Mode.IsDir(), info.Mode.IsRegular()})
	}
	return result, nil
}

type removeParams struct {
	Path           pathURI         `json:"path"`
	Recursive      *bool           `json:"recursive"`
	Force          *bool           `json:"force"`
	FollowSymlinks *bool           `json:"followSymlinks"`
	Sandbox        *sandboxContext `json:"sandbox"`
}

func remove(ctx context.Context, c *connection, params *removeParams) (any, error) {
	if err := c.writing(params.Sandbox, params.Path); err != nil {
		return nil, err
	}
	if !yes(params.FollowSymlinks) {
		if yes(params.Recursive) {
			return nil, internal("recursive no-follow removal is unsupported")
		}
		found, err := c.linksOn(ctx, params.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && yes(params.Force):
			return done{}, nil
		case err != nil:
			return nil, err
		case found.last:
			return nil, invalidRequest("path contains a symbolic link")
		case found.middle:
			return nil, internal("Not a directory (os error 20)")
		}
	}
	return done{}, c.session.env.Remove(ctx, params.Path.URI, env.RemoveOptions{Recursive: yes(params.Recursive), Force: yes(params.Force)})
}

type copyParams struct {
	SourcePath      pathURI         `json:"sourcePath"`
	DestinationPath pathURI         `json:"destinationPath"`
	Recursive       bool            `json:"recursive"`
	Sandbox         *sandboxContext `json:"sandbox"`
}

func copyFile(ctx context.Context, c *connection, params *copyParams) (any, error) {
	if err := c.writing(params.Sandbox, params.SourcePath, params.DestinationPath); err != nil {
		return nil, err
	}
	files := c.session.env
	source, err := files.Stat(ctx, params.SourcePath.URI, false)
	if err != nil {
		return nil, err
	}
	directory := source.Mode.IsDir()
	switch {
	case directory && !params.Recursive:
		return nil, invalidRequest("fs/copy requires recursive: true when sourcePath is a directory")
	case !directory && !source.Mode.IsRegular() && source.Mode&fs.ModeSymlink == 0:
		return nil, invalidRequest("fs/copy only supports regular files, directories, and symlinks")
	}
	// A file takes the place of one that is there, a directory is merged into one that is there, a link replaces nothing.
	options := env.CopyOptions{Recursive: directory, Exclusive: source.Mode&fs.ModeSymlink != 0}
	err = files.Copy(ctx, params.SourcePath.URI, params.DestinationPath.URI, options)
	switch {
	case errors.Is(err, env.ErrNotRegular) && directory: // all else was copied
		return done{}, nil
	case errors.Is(err, env.ErrInvalid) && directory && c.leadsInto(ctx, params.SourcePath, params.DestinationPath):
		return nil, invalidRequest("fs/copy cannot copy a directory to itself or one of its descendants")
	case errors.Is(err, env.ErrInvalid) && source.Mode.IsRegular():
		// Onto itself, by whatever name: nothing is to be done.
		destination, statErr := files.Stat(ctx, params.DestinationPath.URI, true)
		if statErr == nil && destination.Version != "" && destination.Version == source.Version {
			return done{}, nil
		}
	}
	return done{}, err
}

// leadsInto tells whether a path lies in a directory, also by links.
func (c *connection) leadsInto(ctx context.Context, directory, path pathURI) bool {
	source, err := c.session.env.Canonicalize(ctx, directory.URI)
	if err != nil {
		return false
	}
	for above := range path.Ancestors() {
		if canonical, err := c.session.env.Canonicalize(ctx, above); err == nil {
			return source.Contains(canonical)
		}
	}
	return false
}
