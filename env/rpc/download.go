package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"iter"
	"math"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

type readParams struct {
	place
	Offset  int64  `json:"offset,omitempty"`
	Length  int64  `json:"length,omitempty"`
	Version string `json:"version,omitempty"`
	Holes   bool   `json:"holes,omitempty"`
}

// reading is the HEAD of the answer to read.
type reading struct {
	Info *env.FileInfo `json:"info,omitempty"`
}

// fileControl is a CONTROL message of a file's transfer.
type fileControl struct {
	Hole int64 `json:"hole,omitempty"` // so many zeros come before the next DATA
}

func serveRead(ctx context.Context, s *session, call *wire.Call) error {
	var params readParams
	if err := call.Params(&params); err != nil {
		return err
	}
	release, err := s.server.hold("files being read")
	if err != nil {
		return err
	}
	defer release()
	reader, err := s.filesOf(params.place).Read(ctx, params.Path, env.ReadOptions{
		Offset:  params.Offset,
		Length:  params.Length,
		Version: params.Version,
		Holes:   params.Holes,
	})
	if err != nil {
		return err
	}
	defer reader.Close() //nolint:errcheck // nothing was written
	info := crossing(reader.Info())
	if err := call.Reply(reading{Info: &info}); err != nil {
		return err
	}
	for chunk, err := range reader.Chunks() {
		switch {
		case err != nil:
		case chunk.Hole > 0:
			err = call.Control(fileControl{Hole: chunk.Hole})
		case len(chunk.Framed) == len(chunk.Data)+wire.HeaderSize:
			wire.PutDataHeader(chunk.Framed, 0, len(chunk.Data))
			err = call.SendFramed(ctx, chunk.Framed)
		default:
			err = call.Send(ctx, 0, chunk.Data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Read implements [env.Files].
func (f *files) Read(ctx context.Context, path pathuri.URI, options env.ReadOptions) (env.FileReader, error) {
	d := &download{files: f, path: path, options: options, offset: options.Offset}
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	info, err := d.open()
	if err != nil {
		d.cancel(nil)
		return nil, err
	}
	d.info, d.options.Version = info, info.Version
	return d, nil
}

// download is a file being read over the wire. After a cut it goes on behind what its code has taken, if the file is
// still the same.
type download struct {
	files   *files
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	path    pathuri.URI
	options env.ReadOptions // the version is that of the file which was opened
	info    env.FileInfo
	current current
	offset  int64 // of the next byte
	over    bool
	err     error
}

func (d *download) Info() env.FileInfo { return d.info }

// left is how many bytes may still come.
func (d *download) left() int64 {
	if d.options.Length == 0 {
		return math.MaxInt64 - d.offset
	}
	return d.options.Length - (d.offset - d.options.Offset)
}

// open begins the transfer, or goes on with it.
func (d *download) open() (env.FileInfo, error) {
	params := readParams{
		place:   d.files.at(d.path),
		Offset:  d.offset,
		Length:  d.options.Length,
		Version: d.options.Version,
		Holes:   d.options.Holes,
	}
	if params.Length > 0 {
		params.Length = d.left()
	}
	request := wire.Request{Method: methodRead, Params: params}
	begun, err := open(d.ctx, d.files.client.link, request, func(answer reading) bool { return answer.Info != nil })
	if err != nil {
		return env.FileInfo{}, err
	}
	d.current.set(begun.Call)
	return *begun.answer.Info, nil
}

// Chunks implements [env.FileReader].
func (d *download) Chunks() iter.Seq2[env.FileChunk, error] {
	link := d.files.client.link
	return func(yield func(env.FileChunk, error) bool) {
		link.begin()
		defer link.end()
		for !d.over && d.err == nil {
			call := d.current.call
			event, err := receive(d.ctx, call)
			if err != nil && d.ctx.Err() == nil && connectionLost(call.Conn(), err) {
				if err = d.resume(); err == nil {
					continue
				}
			}
			var chunk env.FileChunk
			if err == nil {
				chunk, err = d.chunk(event)
			}
			if err != nil {
				if cause := context.Cause(d.ctx); cause != nil {
					err = cause
				}
				d.err = doing("read", d.path, err)
				break
			}
			more := true
			if n := int64(len(chunk.Data)) + chunk.Hole; n > 0 {
				d.offset += n
				more = yield(chunk, nil)
			}
			call.Took(event)
			if !more {
				return
			}
		}
		if d.err != nil {
			yield(env.FileChunk{}, d.err)
		}
	}
}

// chunk is what an event says of the content: no more than was asked for, if the server is to be believed.
func (d *download) chunk(event wire.Event) (env.FileChunk, error) {
	chunk := env.FileChunk{Offset: d.offset}
	switch event.Kind {
	case wire.DataEvent:
		chunk.Data = event.Data
	case wire.ControlEvent:
		var c fileControl
		if err := json.Unmarshal(event.Data, &c); err != nil || c.Hole < 0 || c.Hole > 0 && !d.options.Holes {
			return chunk, fmt.Errorf("%w: CONTROL %q of a file being read", wire.Internal, event.Data)
		}
		chunk.Hole = c.Hole
	case wire.EndEvent:
		d.over = true
	}
	if n := int64(len(chunk.Data)) + chunk.Hole; n > d.left() {
		return chunk, fmt.Errorf("%w: %d bytes of a file come where %d were left", wire.Internal, n, d.left())
	}
	return chunk, nil
}

// resume goes on after a cut.
func (d *download) resume() error {
	if d.left() == 0 {
		d.over = true // only the END was missing
		return nil
	}
	info, err := d.open()
	if err == nil && info.Version != d.options.Version {
		err = env.ErrChanged // the server has not looked
	}
	return err
}

// Close implements [env.FileReader].
func (d *download) Close() error {
	d.cancel(fs.ErrClosed)
	d.current.close()
	return nil
}
