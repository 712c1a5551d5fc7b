package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

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
	info := reader.Info()
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
	if err := d.open(); err != nil {
		d.cancel(nil)
		return nil, err
	}
	return d, nil
}

// download is a file being read over the wire. After a cut it goes on behind what its code has taken, if the file is
// still the same.
type download struct {
	files   *files
	ctx     context.Context
	cancel  context.CancelCauseFunc
	path    pathuri.URI
	options env.ReadOptions
	info    env.FileInfo
	call    *wire.Call
	offset  int64 // of the next byte
	over    bool
	err     error
}

func (d *download) Info() env.FileInfo { return d.info }

// open begins the transfer, or goes on with it.
func (d *download) open() error {
	params := readParams{
		place:   d.files.at(d.path),
		Offset:  d.offset,
		Length:  d.options.Length,
		Version: d.options.Version,
		Holes:   d.options.Holes,
	}
	if params.Length > 0 {
		params.Length -= d.offset - d.options.Offset
	}
	request := wire.Request{Method: methodRead, Params: params}
	call, err := do(d.ctx, d.files.client.link, request, func(ctx context.Context, conn *wire.Conn) (*wire.Call, error) {
		call, err := conn.Open(request)
		if err != nil {
			return nil, err
		}
		for {
			event, err := call.Receive(ctx)
			var answer reading
			if err == nil && event.Kind == wire.ReplyEvent {
				err = json.Unmarshal(event.Data, &answer)
			}
			switch {
			case err != nil:
				call.Close() //nolint:errcheck // returns nil
				return nil, err
			case answer.Info != nil:
				d.info = *answer.Info
				return call, nil
			}
			// A refusal follows.
		}
	})
	if err != nil {
		return err
	}
	d.call = call
	d.options.Version = d.info.Version
	return nil
}

// Chunks implements [env.FileReader].
func (d *download) Chunks() iter.Seq2[env.FileChunk, error] {
	link := d.files.client.link
	return func(yield func(env.FileChunk, error) bool) {
		link.begin()
		defer link.end()
		for !d.over && d.err == nil {
			event, err := d.call.Receive(d.ctx)
			switch {
			case err == nil:
			case connectionLost(d.call.Conn(), err):
				d.call.Close() //nolint:errcheck // returns nil
				if err = d.resume(); err == nil {
					continue
				}
			}
			if err != nil {
				d.err = doing("read", d.path, err)
				break
			}
			chunk := env.FileChunk{Offset: d.offset}
			switch event.Kind {
			case wire.DataEvent:
				chunk.Data = event.Data
			case wire.ControlEvent:
				var c fileControl
				if err := json.Unmarshal(event.Data, &c); err != nil || c.Hole < 0 {
					d.err = fmt.Errorf("%w: CONTROL %q of a file being read", wire.Internal, event.Data)
				}
				chunk.Hole = c.Hole
			case wire.EndEvent:
				d.over = true
			}
			more := true
			if n := int64(len(chunk.Data)) + chunk.Hole; n > 0 {
				d.offset += n
				more = yield(chunk, nil)
			}
			d.call.Took(event)
			if !more {
				return
			}
		}
		if d.err != nil {
			yield(env.FileChunk{}, d.err)
		}
	}
}

// resume goes on after a cut.
func (d *download) resume() error {
	if n := d.options.Length; n > 0 && d.offset == d.options.Offset+n {
		d.over = true // only the END was missing
		return nil
	}
	return d.open()
}

// Close implements [env.FileReader].
func (d *download) Close() error {
	d.cancel(nil)
	return d.call.Close()
}
