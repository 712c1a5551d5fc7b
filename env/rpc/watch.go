package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

type watchParams struct {
	place
	Recursive bool `json:"recursive,omitempty"`
}

// watching is the HEAD of the answer to watch: from now on changes are told.
type watching struct {
	Watching bool `json:"watching"`
}

func serveWatch(ctx context.Context, s *session, call *wire.Call) error {
	var params watchParams
	if err := call.Params(&params); err != nil {
		return err
	}
	release, err := s.server.hold("watches")
	if err != nil {
		return err
	}
	defer release()
	watch, err := s.server.env.Watch(ctx, params.Path, env.WatchOptions{Recursive: params.Recursive})
	if err != nil {
		return err
	}
	defer watch.Close() //nolint:errcheck // there is nothing to be done about it
	if err := call.Reply(watching{Watching: true}); err != nil {
		return err
	}
	lines := lineSender{call: call}
	for batch, err := range watch.Changes(ctx) {
		if err != nil {
			return err
		}
		for _, change := range batch {
			if err := lines.add(ctx, watchLine(change)); err != nil {
				return err
			}
		}
		if err := lines.add(ctx, watchLine{}); err != nil {
			return err
		}
		if err := lines.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// watchLine is a change on the wire; an empty one ends a batch.
type watchLine struct {
	Path pathuri.URI    `json:"path,omitzero"`
	Kind env.ChangeKind `json:"kind,omitempty"`
}

// Watch implements [env.Watcher].
func (c *Client) Watch(ctx context.Context, path pathuri.URI, options env.WatchOptions) (env.Watch, error) {
	w := &remoteWatch{client: c, path: path, options: options}
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// remoteWatch is a watch over the wire. After a cut it begins anew, and says that changes may have been missed.
type remoteWatch struct {
	client  *Client
	path    pathuri.URI
	options env.WatchOptions
	lines   lineReceiver
	batch   []env.Change // that has not come whole
	ready   []env.Change
	over    bool
}

func (w *remoteWatch) open(ctx context.Context) error {
	request := wire.Request{
		Method: methodWatch,
		Params: watchParams{place{Path: w.path}, w.options.Recursive},
	}
	call, err := do(ctx, w.client.link, request, func(ctx context.Context, conn *wire.Conn) (*wire.Call, error) {
		call, err := conn.Open(request)
		if err != nil {
			return nil, err
		}
		for {
			event, err := call.Receive(ctx)
			var answer watching
			if err == nil && event.Kind == wire.ReplyEvent {
				err = json.Unmarshal(event.Data, &answer)
			}
			switch {
			case err != nil:
				call.Close() //nolint:errcheck // returns nil
				return nil, err
			case answer.Watching:
				return call, nil
			}
			// A refusal follows.
		}
	})
	w.lines = lineReceiver{call: call}
	return err
}

// Changes implements [env.Watch].
func (w *remoteWatch) Changes(ctx context.Context) iter.Seq2[[]env.Change, error] {
	return func(yield func([]env.Change, error) bool) {
		for {
			if batch := w.ready; len(batch) > 0 {
				w.ready = nil
				if !yield(batch, nil) {
					return
				}
				continue
			}
			if w.over {
				return
			}
			if err := w.receive(ctx); err != nil {
				w.over = ctx.Err() == nil
				yield(nil, doing("watch", w.path, err))
				return
			}
		}
	}
}

// receive takes what comes next.
func (w *remoteWatch) receive(ctx context.Context) error {
	more, err := w.lines.next(ctx, func(line []byte) (bool, error) {
		var change watchLine
		if err := json.Unmarshal(line, &change); err != nil {
			return false, fmt.Errorf("%w: a change: %w", wire.Internal, err)
		}
		if change != (watchLine{}) {
			w.batch = append(w.batch, env.Change(change))
			return true, nil
		}
		w.ready, w.batch = append(w.ready, w.batch...), nil
		return true, nil
	})
	call := w.lines.call
	switch {
	case err == nil:
		w.over = !more
		return nil
	case !connectionLost(call.Conn(), err):
		return err
	}
	call.Close() //nolint:errcheck // returns nil
	w.batch = nil
	if err := w.open(ctx); errors.Is(err, fs.ErrNotExist) {
		w.ready, w.over = []env.Change{{Path: w.path, Kind: env.Gone}}, true
		return nil
	} else if err != nil {
		return err
	}
	w.ready = []env.Change{{Path: w.path, Kind: env.Rescan}}
	return nil
}

// Close implements [env.Watch].
func (w *remoteWatch) Close() error {
	if w.lines.call == nil {
		return nil
	}
	return w.lines.call.Close()
}
