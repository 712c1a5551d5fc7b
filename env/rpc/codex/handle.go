package codex

import (
	"context"
	"errors"
	"math"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire/jsonrpc"
)

const (
	maxHandles  = 128
	maxHandleID = 32
	maxBlock    = 1 << 20
)

// handle is a file that a connection has open. Its calls are served one after another, in the order they came.
type handle struct {
	connection *connection
	id         string
	path       pathuri.URI
	last       chan struct{} // closed when the newest call is over; guarded by connection.mu

	release func()
	failure error // why it could not be opened, or is no more
	write   bool
	at      int64 // where reader or writer stands
	reader  env.FileReader
	version string
	rest    []byte // read and not yet given
	writer  env.FileWriter
	cancel  context.CancelFunc // of reader or writer
}

// turn puts a call behind those before it: it is served between before and after.
func (h *handle) turn() (before func(context.Context) error, after func()) {
	earlier, mine := h.last, make(chan struct{})
	h.last = mine
	return func(ctx context.Context) error {
		select {
		case <-earlier:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, func() { close(mine) }
}

// ordered makes the call that serves h in its turn. connection.mu is held.
func (h *handle) ordered(serve func(context.Context) (any, error)) call {
	before, after := h.turn()
	return call{
		do: func(ctx context.Context) (any, error) {
			defer after()
			if err := before(ctx); err != nil {
				return nil, err
			}
			return serve(ctx)
		},
		undone: after,
	}
}

func unknownHandle(id string) error {
	return jsonrpc.Errorf(codeNotFound, "unknown file handle `%s`", id)
}

// onHandle makes a call on an open file, or tells that there is none.
func (c *connection) onHandle(id string, serve func(context.Context, *handle) (any, error)) (call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.handles[id]
	if h == nil {
		return call{}, unknownHandle(id)
	}
	return h.ordered(func(ctx context.Context) (any, error) {
		if h.failure != nil {
			return nil, unknownHandle(id)
		}
		return serve(ctx, h)
	}), nil
}

type openParams struct {
	HandleID string          `json:"handleId"`
	Path     pathURI         `json:"path"`
	Mode     string          `json:"mode,omitempty"`
	Sandbox  *sandboxContext `json:"sandbox"`
}

type handleParams struct {
	HandleID string `json:"handleId"`
}

func prepareOpen(c *connection, params *openParams) (call, error) {
	var err error
	if params.Mode != "" {
		err = oneOf("mode", params.Mode, "read", "replace")
	}
	if err == nil && len(params.HandleID) > maxHandleID {
		err = invalidRequest("file handle ID must not exceed %d bytes", maxHandleID)
	}
	write := params.Mode == "replace"
	if err == nil && write {
		err = c.writing(params.Sandbox, params.Path)
	} else if err == nil {
		err = c.reading(params.Sandbox, params.Path)
	}
	if err != nil {
		return call{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over != nil:
		return call{}, c.over
	case c.handles[params.HandleID] != nil:
		return call{}, invalidRequest("file handle `%s` already exists", params.HandleID)
	case len(c.handles) >= maxHandles:
		return call{}, invalidRequest("at most %d file handles may be open per connection", maxHandles)
	}
	release, err := c.session.rpc.Hold("open files")
	if err != nil {
		return call{}, err
	}
	ready := make(chan struct{})
	close(ready)
	h := &handle{connection: c, id: params.HandleID, path: params.Path.URI, last: ready, release: release, write: write}
	c.handles[h.id] = h
	run := h.ordered(func(ctx context.Context) (any, error) {
		if err := h.open(ctx); err != nil {
			h.end(err)
			if write && errors.Is(err, env.ErrNotRegular) {
				return nil, internal("No such device or address (os error 6)")
			}
			if !write {
				err = notAFile(err, params.Path)
			}
			return nil, err
		}
		return handleParams{h.id}, nil
	})
	undone := run.undone
	run.undone = func() {
		h.end(errGone)
		undone()
	}
	return run, nil
}

// open opens the file, or makes it and makes it empty.
func (h *handle) open(ctx context.Context) error {
	if h.write {
		_, err := env.WriteFile(ctx, h.connection.session.env, h.path, nil, env.WriteOptions{Unsynced: true})
		return err
	}
	return h.read(0, "")
}

// read begins to read at an offset. It is bound to the connection, not to a call.
func (h *handle) read(offset int64, version string) error {
	h.closeFile() //nolint:errcheck // it was read
	ctx, cancel := context.WithCancel(h.connection.ctx)
	reader, err := h.connection.session.env.Read(ctx, h.path, env.ReadOptions{Offset: offset, Version: version})
	if err != nil {
		cancel()
		return err
	}
	h.reader, h.cancel, h.at, h.version = reader, cancel, offset, reader.Info().Version
	return nil
}

// closeFile closes what is open of the file.
func (h *handle) closeFile() (err error) {
	switch {
	case h.reader != nil:
		err = h.reader.Close()
	case h.writer != nil:
		_, err = h.writer.Commit()
		h.writer.Close() //nolint:errcheck // committed
	}
	if h.cancel != nil {
		h.cancel()
	}
	h.reader, h.writer, h.cancel, h.rest = nil, nil, nil, nil
	return err
}

// end forgets the handle: an error closes it, as in Codex.
func (h *handle) end(why error) {
	c := h.connection
	c.mu.Lock()
	if c.handles[h.id] == h {
		delete(c.handles, h.id)
	}
	c.mu.Unlock()
	h.failure = why
	h.close() //nolint:errcheck // there is an error already
}

// close closes the file. No call of it is served any more, or this is the last.
func (h *handle) close() error {
	err := h.closeFile()
	if h.release != nil {
		h.release()
		h.release = nil
	}
	return err
}

type readBlockParams struct {
	HandleID string `json:"handleId"`
	Offset   uint64 `json:"offset"`
	Len      uint64 `json:"len"`
}

type block struct {
	data []byte
	eof  bool
}

// AppendJSON implements [jsonrpc.Appender].
func (r block) AppendJSON(b []byte) []byte {
	b = jsonrpc.AppendBase64(append(b, `{"chunk":`...), r.data)
	if r.eof {
		return append(b, `,"eof":true}`...)
	}
	return append(b, `,"eof":false}`...)
}

func prepareReadBlock(c *connection, params *readBlockParams) (call, error) {
	if params.Len < 1 || params.Len > maxBlock {
		return call{}, invalidRequest("file read block length must be between 1 and %d", maxBlock)
	}
	return c.onHandle(params.HandleID, func(_ context.Context, h *handle) (any, error) {
		data, err := h.readBlock(params.Offset, int(params.Len))
		if err != nil {
			h.end(err)
			return nil, err
		}
		return block{data, len(data) < int(params.Len)}, nil
	})
}

// readBlock reads at an offset; one block after another is one stream.
func (h *handle) readBlock(offset uint64, length int) ([]byte, error) {
	switch {
	case h.write:
		return nil, internal("Bad file descriptor (os error 9)")
	case offset > math.MaxInt64:
		return nil, invalidRequest("Invalid argument (os error 22)")
	}
	if int64(offset) != h.at {
		// What is read from one handle is one file, as far as can be told.
		if err := h.read(int64(offset), h.version); err != nil {
			return nil, err
		}
	}
	data, err := h.fill(make([]byte, 0, length))
	if err == nil && len(data) == 0 { // the file may have grown since its end was seen
		if err = h.read(h.at, ""); err == nil {
			data, err = h.fill(data)
		} else if h.reader == nil {
			return data, nil // it is gone, and had ended
		}
	}
	return data, err
}

// fill appends what comes next, until data is full or the file ends.
func (h *handle) fill(data []byte) ([]byte, error) {
	take := func(from []byte) (rest []byte) {
		n := min(len(from), cap(data)-len(data))
		data = append(data, from[:n]...)
		h.at += int64(n)
		return from[n:]
	}
	if h.rest = take(h.rest); len(data) == cap(data) || h.reader == nil {
		return data, nil
	}
	for chunk, err := range h.reader.Chunks() {
		if err != nil {
			return nil, err
		}
		if rest := take(chunk.Data); len(data) == cap(data) {
			h.rest = append([]byte(nil), rest...)
			break
		}
	}
	return data, nil
}

type writeBlockParams struct {
	HandleID string `json:"handleId"`
	Offset   uint64 `json:"offset"`
	Chunk    []byte `json:"chunk"`
}

func prepareWriteBlock(c *connection, params *writeBlockParams) (call, error) {
	size := uint64(len(params.Chunk))
	if size < 1 || size > maxBlock {
		return call{}, invalidRequest("file write block length must be between 1 and %d", maxBlock)
	}
	if params.Offset > math.MaxInt64 || params.Offset+size > math.MaxInt64 {
		return call{}, invalidRequest("file write range exceeds the signed 64-bit file offset limit")
	}
	return c.onHandle(params.HandleID, func(_ context.Context, h *handle) (any, error) {
		if !h.write {
			return nil, internal("Bad file descriptor (os error 9)")
		}
		if err := h.writeBlock(int64(params.Offset), params.Chunk); err != nil {
			h.end(err)
			return nil, err
		}
		return done{}, nil
	})
}

// writeBlock writes at an offset; one block after another is one stream.
func (h *handle) writeBlock(offset int64, data []byte) error {
	if h.writer == nil || offset != h.at {
		if err := h.closeFile(); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(h.connection.ctx)
		writer, err := h.connection.session.env.Write(ctx, h.path, env.WriteOptions{Mode: env.Patch, Offset: offset, Unsynced: true})
		if err != nil {
			cancel()
			return err
		}
		h.writer, h.cancel, h.at = writer, cancel, offset
	}
	if _, err := h.writer.Write(data); err != nil {
		return err
	}
	h.at += int64(len(data))
	return nil
}

func prepareClose(c *connection, params *handleParams) (call, error) {
	run, err := c.onHandle(params.HandleID, func(_ context.Context, h *handle) (any, error) {
		c.mu.Lock()
		if c.handles[h.id] == h {
			delete(c.handles, h.id)
		}
		c.mu.Unlock()
		h.failure = errors.New("it is closed")
		return done{}, h.close()
	})
	if err != nil { // there is none
		return call{do: func(context.Context) (any, error) { return done{}, nil }}, nil
	}
	serve := run.do
	run.do = func(ctx context.Context) (any, error) {
		result, err := serve(ctx)
		var answer *jsonrpc.Error
		if errors.As(err, &answer) && answer.Code == codeNotFound {
			return done{}, nil
		}
		return result, err
	}
	return run, nil
}
