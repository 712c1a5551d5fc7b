package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

// files is a client's [env.Files].
type files struct {
	client *Client
	within []pathuri.URI
}

var _ env.Files = (*files)(nil)

// Within implements [env.Files].
func (f *files) Within(root pathuri.URI) env.Files {
	return &files{f.client, append(slices.Clone(f.within), root)}
}

// place is where a file call works; it is a part of every file method's parameters.
type place struct {
	Within roots       `json:"within,omitempty"` // see [env.Files], one inside the other
	Path   pathuri.URI `json:"path"`
}

// maxRoots is how many directories may confine a call: each is looked at.
const maxRoots = 64

type roots []pathuri.URI

// UnmarshalJSON implements [json.Unmarshaler].
func (r *roots) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*[]pathuri.URI)(r)); err != nil {
		return err
	}
	if len(*r) > maxRoots {
		return fmt.Errorf("within %d directories: %d are the most", len(*r), maxRoots)
	}
	return nil
}

func (f *files) at(path pathuri.URI) place { return place{f.within, path} }

// filesOf is what the server's side of a method works on.
func (s *session) filesOf(at place) env.Files {
	files := env.Files(s.server.env)
	for _, root := range at.Within {
		files = files.Within(root)
	}
	return files
}

// doing says what was being done when err came, unless the server has said so.
func doing(op string, path pathuri.URI, err error) error {
	what := fmt.Sprintf("%s %q: ", op, path.Display())
	if strings.HasPrefix(err.Error(), what) {
		return err
	}
	return fmt.Errorf("%s%w", what, err)
}

type statParams struct {
	place
	Follow bool `json:"follow,omitempty"`
}

// Stat implements [env.Files].
func (f *files) Stat(ctx context.Context, path pathuri.URI, follow bool) (env.FileInfo, error) {
	return call[env.FileInfo](ctx, f.client, wire.Request{Method: methodStat, Params: statParams{f.at(path), follow}})
}

func serveStat(ctx context.Context, s *session, params statParams) (env.FileInfo, error) {
	info, err := s.filesOf(params.place).Stat(ctx, params.Path, params.Follow)
	return crossing(info), err
}

// crossing is info as it crosses the wire, where years have four digits: one in a file system may have more.
func crossing(info env.FileInfo) env.FileInfo {
	if year := info.Modified.Year(); year < 0 || year > 9999 {
		info.Modified = time.Date(min(max(year, 0), 9999), 12, 31, 0, 0, 0, 0, time.UTC)
	}
	return info
}

// target is the result of readlink.
type target struct {
	Target wire.Text `json:"target"`
}

// ReadLink implements [env.Files].
func (f *files) ReadLink(ctx context.Context, path pathuri.URI) (string, error) {
	result, err := call[target](ctx, f.client, wire.Request{Method: methodReadLink, Params: f.at(path)})
	return string(result.Target), err
}

func serveReadLink(ctx context.Context, s *session, params place) (target, error) {
	text, err := s.filesOf(params).ReadLink(ctx, params.Path)
	return target{wire.Text(text)}, err
}

// canonical is the result of canonicalize.
type canonical struct {
	Path pathuri.URI `json:"path"`
}

// Canonicalize implements [env.Files].
func (f *files) Canonicalize(ctx context.Context, path pathuri.URI) (pathuri.URI, error) {
	result, err := call[canonical](ctx, f.client, wire.Request{Method: methodCanonicalize, Params: f.at(path)})
	return result.Path, err
}

func serveCanonicalize(ctx context.Context, s *session, params place) (canonical, error) {
	path, err := s.filesOf(params).Canonicalize(ctx, params.Path)
	return canonical{path}, err
}

type mkdirParams struct {
	place
	Parents     bool         `json:"parents,omitempty"`
	Permissions *fs.FileMode `json:"permissions,omitempty"`
}

// Mkdir implements [env.Files].
func (f *files) Mkdir(ctx context.Context, path pathuri.URI, options env.MkdirOptions) error {
	params := mkdirParams{f.at(path), options.Parents, options.Permissions}
	_, err := callOnce[none](ctx, f.client, wire.Request{Method: methodMkdir, Params: params})
	return err
}

func serveMkdir(ctx context.Context, s *session, params mkdirParams) (none, error) {
	options := env.MkdirOptions{Parents: params.Parents, Permissions: params.Permissions}
	return none{}, s.filesOf(params.place).Mkdir(ctx, params.Path, options)
}

type removeParams struct {
	place
	Recursive bool `json:"recursive,omitempty"`
	Force     bool `json:"force,omitempty"`
}

// Remove implements [env.Files].
func (f *files) Remove(ctx context.Context, path pathuri.URI, options env.RemoveOptions) error {
	params := removeParams{f.at(path), options.Recursive, options.Force}
	_, err := callOnce[none](ctx, f.client, wire.Request{Method: methodRemove, Params: params})
	return err
}

func serveRemove(ctx context.Context, s *session, params removeParams) (none, error) {
	options := env.RemoveOptions{Recursive: params.Recursive, Force: params.Force}
	return none{}, s.filesOf(params.place).Remove(ctx, params.Path, options)
}

type renameParams struct {
	place
	To        pathuri.URI `json:"to"`
	Exclusive bool        `json:"exclusive,omitempty"`
}

// Rename implements [env.Files].
func (f *files) Rename(ctx context.Context, from, to pathuri.URI, options env.RenameOptions) error {
	params := renameParams{f.at(from), to, options.Exclusive}
	_, err := callOnce[none](ctx, f.client, wire.Request{Method: methodRename, Params: params})
	return err
}

func serveRename(ctx context.Context, s *session, params renameParams) (none, error) {
	options := env.RenameOptions{Exclusive: params.Exclusive}
	return none{}, s.filesOf(params.place).Rename(ctx, params.Path, params.To, options)
}

type copyParams struct {
	place
	To        pathuri.URI `json:"to"`
	Recursive bool        `json:"recursive,omitempty"`
	Exclusive bool        `json:"exclusive,omitempty"`
}

// Copy implements [env.Files].
func (f *files) Copy(ctx context.Context, from, to pathuri.URI, options env.CopyOptions) error {
	params := copyParams{f.at(from), to, options.Recursive, options.Exclusive}
	_, err := callOnce[none](ctx, f.client, wire.Request{Method: methodCopy, Params: params})
	return err
}

func serveCopy(ctx context.Context, s *session, params copyParams) (none, error) {
	options := env.CopyOptions{Recursive: params.Recursive, Exclusive: params.Exclusive}
	return none{}, s.filesOf(params.place).Copy(ctx, params.Path, params.To, options)
}

type symlinkParams struct {
	place
	Target wire.Text `json:"target"`
}

// Symlink implements [env.Files].
func (f *files) Symlink(ctx context.Context, target string, path pathuri.URI) error {
	params := symlinkParams{f.at(path), wire.Text(target)}
	_, err := callOnce[none](ctx, f.client, wire.Request{Method: methodSymlink, Params: params})
	return err
}

func serveSymlink(ctx context.Context, s *session, params symlinkParams) (none, error) {
	return none{}, s.filesOf(params.place).Symlink(ctx, string(params.Target), params.Path)
}

type linkParams struct {
	place
	Existing pathuri.URI `json:"existing"`
}

// Link implements [env.Files].
func (f *files) Link(ctx context.Context, existing, path pathuri.URI) error {
	params := linkParams{f.at(path), existing}
	_, err := callOnce[none](ctx, f.client, wire.Request{Method: methodLink, Params: params})
	return err
}

func serveLink(ctx context.Context, s *session, params linkParams) (none, error) {
	return none{}, s.filesOf(params.place).Link(ctx, params.Existing, params.Path)
}

type attributesParams struct {
	place
	env.Attributes
}

// SetAttributes implements [env.Files].
func (f *files) SetAttributes(ctx context.Context, path pathuri.URI, attributes env.Attributes) error {
	params := attributesParams{f.at(path), attributes}
	_, err := call[none](ctx, f.client, wire.Request{Method: methodSetAttributes, Params: params})
	return err
}

func serveSetAttributes(ctx context.Context, s *session, params attributesParams) (none, error) {
	return none{}, s.filesOf(params.place).SetAttributes(ctx, params.Path, params.Attributes)
}

// Sync implements [env.Files].
func (f *files) Sync(ctx context.Context, path pathuri.URI) error {
	_, err := call[none](ctx, f.client, wire.Request{Method: methodSync, Params: f.at(path)})
	return err
}

func serveSync(ctx context.Context, s *session, params place) (none, error) {
	return none{}, s.filesOf(params).Sync(ctx, params.Path)
}

type walkParams struct {
	place
	MaxDepth   int           `json:"maxDepth,omitempty"`
	MaxEntries int           `json:"maxEntries,omitempty"`
	MaxTime    time.Duration `json:"maxTime,omitempty"`
}

func newWalkParams(at place, options env.WalkOptions) walkParams {
	return walkParams{at, options.MaxDepth, options.MaxEntries, options.MaxTime}
}

func (p walkParams) options() env.WalkOptions {
	return env.WalkOptions{MaxDepth: p.MaxDepth, MaxEntries: p.MaxEntries, MaxTime: p.MaxTime}
}
