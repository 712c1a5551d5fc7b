package rpc

import (
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"strings"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

// List implements [env.Files].
func (f *files) List(ctx context.Context, path pathuri.URI) iter.Seq2[env.Entry, error] {
	return f.entries(ctx, path, wire.Request{Method: methodList, Params: f.at(path)})
}

func serveList(ctx context.Context, s *session, call *wire.Call) error {
	var params place
	if err := call.Params(&params); err != nil {
		return err
	}
	return sendEntries(ctx, call, params.Path, s.filesOf(params).List(ctx, params.Path))
}

// Walk implements [env.Files].
func (f *files) Walk(ctx context.Context, root pathuri.URI, options env.WalkOptions) iter.Seq2[env.Entry, error] {
	return f.entries(ctx, root, wire.Request{Method: methodWalk, Params: newWalkParams(f.at(root), options)})
}

func serveWalk(ctx context.Context, s *session, call *wire.Call) error {
	var params walkParams
	if err := call.Params(&params); err != nil {
		return err
	}
	return sendEntries(ctx, call, params.Path, s.filesOf(params.place).Walk(ctx, params.Path, params.options()))
}

// sendEntries is the server's side of list and walk.
func sendEntries(ctx context.Context, call *wire.Call, base pathuri.URI, entries iter.Seq2[env.Entry, error]) error {
	lines := lineSender{call: call}
	for found, err := range entries {
		if err != nil {
			// What was found before is not lost over it.
			if err := lines.flush(ctx); err != nil {
				return err
			}
			return err
		}
		path, below := base.Rel(found.Path)
		if !below {
			return fmt.Errorf("%w: %q is not below %q", wire.Internal, found.Path, base)
		}
		item := entry{Path: wire.Text(path), Target: wire.Text(found.Target)}
		if found.Err != nil {
			item.Error = wire.FromError(found.Err)
		} else {
			item.Info = &found.Info
		}
		if err := lines.addWith(ctx, item.append); err != nil {
			return err
		}
	}
	return lines.flush(ctx)
}

// entries is the client's side of list and walk. A list that was cut begins anew; what was yielded is not yielded
// again.
func (f *files) entries(ctx context.Context, base pathuri.URI, request wire.Request) iter.Seq2[env.Entry, error] {
	link := f.client.link
	return func(yield func(env.Entry, error) bool) {
		link.begin()
		defer link.end()
		seen := seen{seed: maphash.MakeSeed(), hashes: make(map[uint64]struct{})}
		parents := parents{base: base, uri: base}
		stopped := false
		take := func(line []byte) (more bool, err error) {
			item, err := decodeEntry(line)
			if err != nil || seen.before(item) {
				return err == nil, err
			}
			found, err := parents.entry(item)
			if err != nil {
				return false, err
			}
			stopped = !yield(found, nil)
			return !stopped, nil
		}
		attempt := func() (again bool, _ error) {
			call, err := do(ctx, link, request, func(_ context.Context, conn *wire.Conn) (*wire.Call, error) {
				return conn.Open(request)
			})
			if err != nil {
				return false, err
			}
			defer call.Close() //nolint:errcheck // returns nil
			lines := lineReceiver{call: call}
			for more := true; more; {
				if more, err = lines.next(ctx, take); err != nil {
					return ctx.Err() == nil && connectionLost(call.Conn(), err), err
				}
			}
			return false, nil
		}
		for again := true; again; {
			var err error
			if again, err = attempt(); err != nil && !again && !stopped {
				yield(env.Entry{}, fmt.Errorf("%s: %w", request.Method, err))
			}
		}
	}
}

// seen remembers what a list has yielded, by a hash of each path, so that the list can begin anew.
type seen struct {
	seed   maphash.Seed
	hashes map[uint64]struct{}
}

// before tells whether the item has been yielded, and notes it. An unreadable directory comes twice.
func (s *seen) before(item entry) bool {
	hash := maphash.String(s.seed, string(item.Path))
	if item.Error != nil {
		hash++
	}
	_, known := s.hashes[hash]
	s.hashes[hash] = struct{}{}
	return known
}

// parents makes the URIs of a list's entries; those of one directory mostly follow one another.
type parents struct {
	base pathuri.URI
	path string // of a directory, from base on
	uri  pathuri.URI
}

func (p *parents) entry(item entry) (found env.Entry, err error) {
	found.Path = p.base
	if path := string(item.Path); path != "" {
		directory, name := "", path
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			directory, name = path[:i], path[i+1:]
		}
		if directory != p.path {
			p.uri = p.base
			for name := range strings.FieldsFuncSeq(directory, func(r rune) bool { return r == '/' }) {
				if p.uri, err = p.uri.JoinName(name); err != nil {
					return found, err
				}
			}
			p.path = directory
		}
		if found.Path, err = p.uri.JoinName(name); err != nil {
			return found, err
		}
	}
	found.Target = string(item.Target)
	if item.Info != nil {
		found.Info = *item.Info
	}
	if item.Error != nil {
		found.Err = item.Error
	}
	return found, nil
}
