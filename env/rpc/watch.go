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
	if len(params.Within) > 0 { // to be ignored it is too important
		return fmt.Errorf("%w: a watch that is confined", wire.Unsupported)
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
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
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
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	current current
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
	begun, err := open(ctx, w.client.link, request, func(answer watching) bool { return answer.Watching })
	if err != nil {
		return err
	}
	w.current.set(begun.Call)
	w.lines, w.batch = lineReceiver{call: begun.Call}, nil
	return nil
}

// Changes implements [env.Watch].
func (w *remoteWatch) Changes(ctx context.Context) iter.Seq2[[]env.Change, error] {
	return func(yield func([]env.Change, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(w.ctx, func() { cancel(context.Cause(w.ctx)) })()
		for w.ctx.Err() == nil {
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
			if err := w.receive(ctx); err != nil && w.ctx.Err() == nil {
				w.over = ctx.Err() == nil
				yield(nil, doing("watch", w.path, err))
				return
			}
		}
	}
}

// maxBatch is how many changes wait for the end of their batch. What is more is handed out before.
const maxBatch = 1 << 16

// receive takes what comes next.
func (w *remoteWatch) receive(ctx context.Context) error {
	more, err := w.lines.next(ctx, func(line []byte) (bool, error) {
		var change watchLine
		if err := json.Unmarshal(line, &change); err != nil {
			return false, fmt.Errorf("%w: a change: %w", wire.Internal, err)
		}
		if change != (watchLine{}) {
			w.batch = append(w.batch, env.Change(change))
		}
		if change == (watchLine{}) || len(w.batch) >= maxBatch {
			w.ready, w.batch = append(w.ready, w.batch...), nil
		}
		w.over = w.over || change.Kind == env.Gone
		return true, nil
	})
	switch {
	case err == nil:
		if w.over = w.over || !more; w.over {
			w.ready, w.batch = append(w.ready, w.batch...), nil
		}
		return nil
	case ctx.Err() != nil || !connectionLost(w.lines.call.Conn(), err):
		return err
	}
	// The call stays the current one until there is another: who gives up meanwhile may come back.
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
	w.cancel(fs.ErrClosed)
	w.current.close()
	return nil
}
