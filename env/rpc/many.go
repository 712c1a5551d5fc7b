package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strconv"
	"time"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

// A call for each small file costs more than the file. These carry many: they hold no more than what one call may, and
// after a cut what was not answered is asked for again.

const (
	maxMany      = 1024    // files in one call
	maxManyBytes = 2 << 20 // of their content
)

type readManyParams struct {
	Within roots         `json:"within,omitempty"`
	Paths  []pathuri.URI `json:"paths"`
	Limit  int64         `json:"limit"` // bytes of one file
}

// serveReadMany answers, for each file, with a line of the length of its content and an entry without a path, and then
// the content.
func serveReadMany(ctx context.Context, s *session, call *wire.Call) error {
	var params readManyParams
	if err := call.Params(&params); err != nil {
		return err
	}
	if len(params.Paths) > maxMany {
		return fmt.Errorf("%w: %d files in one call: %d are the most", wire.TooLarge, len(params.Paths), maxMany)
	}
	release, err := s.server.hold("files being read")
	if err != nil {
		return err
	}
	defer release()
	limit := min(params.Limit, maxManyBytes)
	sender := lineSender{call: call}
	for content, err := range s.filesOf(place{Within: params.Within}).ReadFiles(ctx, params.Paths, limit) {
		if err != nil {
			return err
		}
		item := entry{Info: &content.Info}
		if content.Err != nil {
			item.Error, content.Data = wire.FromError(content.Err), nil
		}
		err = sender.addWith(ctx, func(b []byte) ([]byte, error) {
			return item.append(append(strconv.AppendInt(b, int64(len(content.Data)), 10), ' '))
		})
		if err == nil {
			err = sender.raw(ctx, content.Data)
		}
		if err != nil {
			return err
		}
	}
	return sender.flush(ctx)
}

// ReadFiles implements [env.Files].
func (f *files) ReadFiles(ctx context.Context, paths []pathuri.URI, limit int64) iter.Seq2[env.FileContent, error] {
	return func(yield func(env.FileContent, error) bool) {
		for len(paths) > 0 {
			got, err := f.readMany(ctx, paths[:min(len(paths), maxMany)], limit, yield)
			if paths = paths[got:]; err != nil {
				if !errors.Is(err, errStopped) {
					yield(env.FileContent{}, err)
				}
				return
			}
		}
	}
}

// errStopped says that whoever iterates has enough.
var errStopped = errors.New("broken off")

// readMany yields those of paths that come before the end or a cut.
func (f *files) readMany(ctx context.Context, paths []pathuri.URI, limit int64, yield func(env.FileContent, error) bool) (got int, err error) {
	link := f.client.link
	link.begin()
	defer link.end()
	request := wire.Request{Method: methodReadMany, Params: readManyParams{f.within, paths, limit}}
	call, err := do(ctx, link, request, func(_ context.Context, conn *wire.Conn) (*wire.Call, error) { return conn.Open(request) })
	if err != nil {
		return 0, err
	}
	defer call.Close() //nolint:errcheck // returns nil
	r := bufio.NewReaderSize(&callReader{ctx: ctx, call: call}, wire.MaxData)
	for got < len(paths) {
		content, err := readContent(r, limit)
		if err != nil {
			if connectionLost(call.Conn(), err) {
				err = nil
			}
			return got, err
		}
		content.Path = paths[got]
		got++
		if !yield(content, nil) {
			return got, errStopped
		}
	}
	if _, err := r.ReadByte(); err != io.EOF && !connectionLost(call.Conn(), err) { //nolint:errorlint // as bufio has it
		return got, errors.Join(fmt.Errorf("%w: more files than were asked for", wire.Internal), err)
	}
	return got, nil
}

// readContent reads one file of an answer.
func readContent(r *bufio.Reader, limit int64) (content env.FileContent, err error) {
	line, err := r.ReadSlice('\n')
	if err == nil {
		fields := fieldReader{rest: line[:len(line)-1]}
		size := fields.number(' ', 0, limit)
		if fields.bad {
			return content, fmt.Errorf("%w: the head of a file is %.200q", wire.Internal, line)
		}
		item, err := decodeEntry(fields.rest)
		if err != nil {
			return content, err
		}
		if item.Error != nil {
			return env.FileContent{Err: item.Error}, nil
		}
		content.Info, content.Data = *item.Info, make([]byte, size)
		_, err = io.ReadFull(r, content.Data)
		if err == nil {
			return content, nil
		}
		return content, unexpected(err)
	}
	return content, unexpected(err)
}

// unexpected is err, which is an error also if it is the end.
func unexpected(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // as they are returned
		return fmt.Errorf("%w: an answer that ends within a file", wire.Internal)
	}
	return err
}

// callReader reads the DATA that comes in a call, until its END.
type callReader struct {
	ctx   context.Context
	call  *wire.Call
	event wire.Event // of which rest is left
	rest  []byte
	over  bool
}

func (r *callReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.over {
			return 0, io.EOF
		}
		event, err := r.call.Receive(r.ctx)
		switch {
		case err != nil:
			return 0, err
		case event.Kind == wire.DataEvent:
			r.event, r.rest = event, event.Data
		case event.Kind == wire.EndEvent:
			r.over = true
		}
	}
	n := copy(b, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) == 0 {
		r.call.Took(r.event)
	}
	return n, nil
}

type writeManyParams struct {
	Within roots       `json:"within,omitempty"`
	Files  []writeItem `json:"files"`
}

// writeItem is a file of writeMany, whose content is the next Size bytes of DATA.
type writeItem struct {
	Path        pathuri.URI  `json:"path"`
	Size        int64        `json:"size"`
	Permissions *fs.FileMode `json:"permissions,omitempty"`
	Keep        bool         `json:"keepPermissions,omitempty"`
	Modified    time.Time    `json:"modified,omitzero"`
	Parents     bool         `json:"parents,omitempty"`
	Unsynced    bool         `json:"unsynced,omitempty"`
}

// writeFailure is a line of the answer: what is wrong with one of the files.
type writeFailure struct {
	File  int         `json:"file"`
	Error *wire.Error `json:"error"`
}

func serveWriteMany(ctx context.Context, s *session, call *wire.Call) error {
	var params writeManyParams
	if err := call.Params(&params); err != nil {
		return err
	}
	var all int64
	for _, item := range params.Files {
		if item.Size < 0 {
			return fmt.Errorf("%w: a file of %d bytes", wire.Invalid, item.Size)
		}
		if all += min(item.Size, maxManyBytes+1); all > maxManyBytes || len(params.Files) > maxMany {
			return fmt.Errorf("%w: in one call %d files of %d bytes are the most", wire.TooLarge, maxMany, maxManyBytes)
		}
	}
	release, err := s.server.hold("files being written")
	if err != nil {
		return err
	}
	defer release()
	data := make([]byte, all)
	if _, err := io.ReadFull(&callReader{ctx: ctx, call: call}, data); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: less content than the files have", wire.Invalid)
		}
		return err
	}
	contents := make([]env.FileContent, len(params.Files))
	for i, item := range params.Files {
		contents[i] = env.FileContent{Path: item.Path, Data: data[:item.Size:item.Size], Options: env.WriteOptions{
			Permissions:     item.Permissions,
			KeepPermissions: item.Keep,
			Modified:        item.Modified,
			Parents:         item.Parents,
			Unsynced:        item.Unsynced,
		}}
		data = data[item.Size:]
	}
	errs, err := s.filesOf(place{Within: params.Within}).WriteFiles(ctx, contents)
	if err != nil {
		return err
	}
	lines := lineSender{call: call}
	for i, err := range errs {
		if err != nil {
			if err := lines.add(ctx, writeFailure{i, wire.FromError(err)}); err != nil {
				return err
			}
		}
	}
	return lines.flush(ctx)
}

// WriteFiles implements [env.Files].
func (f *files) WriteFiles(ctx context.Context, contents []env.FileContent) (errs []error, err error) {
	errs = make([]error, len(contents))
	for begin := 0; begin < len(contents); {
		end, bytes := begin, int64(0)
		for end < len(contents) && end-begin < maxMany && (end == begin || bytes+int64(len(contents[end].Data)) <= maxManyBytes) {
			bytes += int64(len(contents[end].Data))
			end++
		}
		if err := f.writeMany(ctx, contents[begin:end], errs[begin:end]); err != nil {
			return errs, err
		}
		begin = end
	}
	return errs, nil
}

func (f *files) writeMany(ctx context.Context, contents []env.FileContent, errs []error) error {
	params := writeManyParams{Within: f.within, Files: make([]writeItem, len(contents))}
	for i, file := range contents {
		if mode := file.Options.Mode; mode != "" && mode != env.Replace {
			return fmt.Errorf("%w: write %q among others: mode %q, which cannot be done again", env.ErrInvalid, file.Path.Display(), mode)
		}
		params.Files[i] = writeItem{
			Path:        file.Path,
			Size:        int64(len(file.Data)),
			Permissions: file.Options.Permissions,
			Keep:        file.Options.KeepPermissions,
			Modified:    file.Options.Modified,
			Parents:     file.Options.Parents,
			Unsynced:    file.Options.Unsynced,
		}
	}
	request := wire.Request{Method: methodWriteMany, Params: params}
	failures, err := do(ctx, f.client.link, request, func(ctx context.Context, conn *wire.Conn) ([]writeFailure, error) {
		call, err := conn.Open(request)
		if err != nil {
			return nil, err
		}
		defer call.Close() //nolint:errcheck // returns nil
		sender := lineSender{call: call}
		for _, file := range contents {
			if err = sender.raw(ctx, file.Data); err != nil {
				break
			}
		}
		if err == nil {
			err = sender.flush(ctx)
		}
		if err != nil && !errors.Is(err, wire.ErrEnded) { // it has said why
			return nil, err
		}
		return receiveList[writeFailure](ctx, call)
	})
	if err != nil {
		return err
	}
	for _, failure := range failures {
		if failure.File < 0 || failure.File >= len(errs) || failure.Error == nil {
			return fmt.Errorf("%w: an answer about file %d of %d", wire.Internal, failure.File, len(errs))
		}
		errs[failure.File] = failure.Error
	}
	return nil
}
