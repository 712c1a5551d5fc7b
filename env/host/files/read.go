package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
	"time"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

// Chunks are read behind room for their frame's header, so that a server sends them without a copy.
const (
	smallChunk = 16 << 10
	largeChunk = wire.MaxData
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([wire.HeaderSize + smallChunk]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([wire.HeaderSize + largeChunk]byte) }}
)

// Read implements env.Files. A file that is written to while it is read is no error: what comes is what was there at
// each moment; its Version afterwards tells.
func (f *Files) Read(ctx context.Context, path pathuri.URI, o env.ReadOptions) (env.FileReader, error) {
	if o.Offset < 0 || o.Length < 0 {
		return nil, fmt.Errorf("%w: read %q: offset %d, length %d", env.ErrInvalid, path.Display(), o.Offset, o.Length)
	}
	r := &reader{ctx: ctx, options: o, position: o.Offset, end: -1}
	if o.Length > 0 && o.Offset+o.Length > 0 {
		r.end = o.Offset + o.Length
	}
	err := f.on(ctx, "read", path, follow, func(p place) (err error) {
		r.file, r.status, err = p.openRegular(os.O_RDONLY)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.text, _ = path.Native()
	if o.Version != "" && o.Version != r.status.version() {
		r.file.Close() //nolint:errcheck // only read
		return nil, failure("read", r.text, coded{errors.New("the file has changed since it was opened; read it again"), env.ErrChanged})
	}
	if o.Offset > 0 {
		if _, err := r.file.Seek(o.Offset, io.SeekStart); err != nil {
			r.file.Close() //nolint:errcheck // only read
			return nil, failure("read", r.text, err)
		}
	}
	r.waits = r.file.SetReadDeadline(time.Time{}) == nil
	r.holes = o.Holes && r.status.allocated >= 0 && r.status.allocated < r.status.size
	return r, nil
}

// reader is a file being read.
type reader struct {
	ctx     context.Context
	text    string
	file    *os.File
	status  status
	options env.ReadOptions

	position int64 // of the next byte, in the file
	end      int64 // where to stop; -1: where the file ends
	data     int64 // with holes: the file has data from position up to here
	holes    bool  // it may have some more
	waits    bool  // it is one of the few regular files that can keep a reader waiting
}

// Info implements env.FileReader.
func (r *reader) Info() env.FileInfo { return r.status.info() }

// Close implements env.FileReader.
func (r *reader) Close() error {
	r.file.Close() //nolint:errcheck // only read
	return nil
}

// left bounds what is read next.
func (r *reader) left(room int) int {
	n := int64(room)
	if r.end >= 0 {
		n = min(n, r.end-r.position)
	}
	if r.holes {
		n = min(n, r.data-r.position)
	}
	return int(max(0, n))
}

// Chunks implements env.FileReader.
func (r *reader) Chunks() iter.Seq2[env.FileChunk, error] {
	return func(yield func(env.FileChunk, error) bool) {
		if r.waits {
			stop := context.AfterFunc(r.ctx, func() { r.file.SetReadDeadline(time.Unix(1, 0)) }) //nolint:errcheck // it can, see Read
			defer stop()
		}
		small := smallBuffers.Get().(*[wire.HeaderSize + smallChunk]byte)
		buffer := small[:]
		enlarge := func() {
			if len(buffer) == len(small) {
				large := largeBuffers.Get().(*[wire.HeaderSize + largeChunk]byte)
				buffer = large[:]
			}
		}
		taken := true // whether the consumer has come back for more, and so lets go of what it has
		defer func() {
			if !taken {
				return
			}
			smallBuffers.Put(small)
			if len(buffer) != len(small) {
				largeBuffers.Put((*[wire.HeaderSize + largeChunk]byte)(buffer))
			}
		}()
		if r.status.size-r.position > smallChunk && (r.end < 0 || r.end-r.position > smallChunk) {
			enlarge()
		}
		for {
			if err := context.Cause(r.ctx); err != nil {
				yield(env.FileChunk{}, err)
				return
			}
			if r.holes && r.position >= r.data {
				hole, err := r.findData()
				if err != nil {
					yield(env.FileChunk{}, failure("read", r.text, err))
					return
				}
				if hole > 0 {
					at := r.position
					r.position += hole
					if !yield(env.FileChunk{Offset: at, Hole: hole}, nil) {
						return
					}
					continue
				}
			}
			room := r.left(len(buffer) - wire.HeaderSize)
			if room == 0 {
				return
			}
			n, err := r.fill(buffer[wire.HeaderSize : wire.HeaderSize+room])
			if n > 0 {
				wire.PutDataHeader(buffer, 0, n)
				at := r.position
				r.position += int64(n)
				framed := buffer[:wire.HeaderSize+n]
				if taken = yield(env.FileChunk{Offset: at, Data: framed[wire.HeaderSize:], Framed: framed}, nil); !taken {
					return
				}
			}
			switch {
			case err == io.EOF: //nolint:errorlint // as io.Reader says it
				return
			case err != nil:
				if cause := context.Cause(r.ctx); cause != nil {
					err = cause
				}
				yield(env.FileChunk{}, failure("read", r.text, err))
				return
			}
			if n == len(buffer)-wire.HeaderSize {
				enlarge()
			}
		}
	}
}

// fill reads until p is full or the file ends; what its size was said to be counts for nothing.
func (r *reader) fill(p []byte) (n int, err error) {
	for n < len(p) {
		m, err := r.file.Read(p[n:])
		n += m
		if err != nil {
			return n, err
		}
		if r.waits {
			break
		}
	}
	return n, nil
}

// findData returns how long the hole at the position is, 0 if there is data; then r.data says up to where.
func (r *reader) findData() (hole int64, err error) {
	data, end, err := nextData(r.file, r.position)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		r.holes = false
		return 0, nil
	case err == io.EOF: //nolint:errorlint // nextData says it so
		size, err := r.file.Seek(0, io.SeekEnd)
		if err != nil {
			return 0, err
		}
		// The last hole. What the file grows by behind it is read as it comes.
		data, r.holes = max(size, r.position), false
	case err != nil:
		return 0, err
	default:
		r.data = end
	}
	if r.end >= 0 {
		data = min(data, r.end)
	}
	if _, err := r.file.Seek(data, io.SeekStart); err != nil {
		return 0, err
	}
	return data - r.position, nil
}
