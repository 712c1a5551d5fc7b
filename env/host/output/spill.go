package output

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"sort"

	"waldo/env"
	"waldo/wire"
)

const (
	spillChunkSize = 16 << 20  // a spill is several files, so that its old end can be given back
	spillStep      = 256 << 10 // what is moved at once
	spillMark      = 64 << 10  // how far apart the marks are from which a file is read
)

// A spill holds on disk, as frames, the output that is older than what its log has in memory. The files have
// no name any more once they are open. All of it is guarded by the log's lock; files are written and read
// outside it, by one writer and by readers that hold a reference to the chunk.
type spill struct {
	dir    string
	disk   *Budget
	limit  int64 // for this process
	logger *slog.Logger

	chunks  []*spillChunk
	bytes   int64
	writing bool // one stream moves segments; the oldest ones stay where they are meanwhile
	failed  bool // the disk refused; not tried again for this process
}

type spillChunk struct {
	file       *os.File
	start, end int64 // offsets of output
	size       int64 // of the file
	marks      []spillMarkAt
	readers    int
	gone       bool
}

type spillMarkAt struct{ offset, position int64 }

func (s *spill) empty() bool { return len(s.chunks) == 0 }

func (s *spill) start() (int64, bool) {
	if len(s.chunks) == 0 {
		return 0, false
	}
	return s.chunks[0].start, true
}

func (s *spill) chunkSize() int64 { return max(1, min(spillChunkSize, s.limit/4)) }

// dropOldest drops the oldest file and tells whether there was one.
func (s *spill) dropOldest() bool {
	if len(s.chunks) == 0 {
		return false
	}
	c := s.chunks[0]
	s.chunks = s.chunks[1:]
	s.bytes -= c.size
	s.disk.give(c.size)
	c.gone = true
	c.closeIfUnused()
	return true
}

func (c *spillChunk) closeIfUnused() {
	if c.gone && c.readers == 0 {
		c.file.Close() //nolint:errcheck // an unnamed file that nobody wants any more
	}
}

// trim drops the files that lie below offset as a whole.
func (s *spill) trim(offset int64) {
	for !s.writing && len(s.chunks) > 0 && s.chunks[0].end <= offset {
		s.dropOldest()
	}
}

// discard drops everything, also under a reader.
func (s *spill) discard() {
	s.failed = true
	for _, c := range s.chunks {
		c.file.Close() //nolint:errcheck // as above
	}
	for s.dropOldest() {
	}
}

// spillOldest moves the oldest segments of the log to disk, and tells whether it did. The log is locked, and is
// unlocked while the disk works.
func (l *Log) spillOldest() bool {
	s := &l.spill
	if s.failed || s.limit <= 0 || l.head == len(l.segs) {
		return false
	}
	var step []segment
	var size int64
	for _, seg := range l.segs[l.head:] {
		if n := int64(len(seg.framed)); size > 0 && size+n > spillStep {
			break
		} else {
			size += n
		}
		l.segs[l.head+len(step)].taken = true
		seg.slab.retain()
		step = append(step, seg)
	}
	release := func() {
		for i := range step {
			step[i].slab.release()
		}
	}
	for s.bytes+size > s.limit || !s.disk.take(size, false) {
		// What is full may lose its oldest file, but only if the new piece fits then.
		if !l.latest || size > s.limit || len(s.chunks) == 0 || !l.dropOldest() {
			release()
			return false
		}
	}
	var chunk *spillChunk
	if n := len(s.chunks); n > 0 && s.chunks[n-1].size < s.chunkSize() {
		chunk = s.chunks[n-1]
	}
	s.writing = true
	l.mu.Unlock()

	fresh := chunk == nil
	var err error
	if fresh {
		chunk = &spillChunk{start: step[0].offset}
		chunk.file, err = unnamedFile(s.dir)
	}
	buf := getSlab(true)
	position, filled := chunk.size, 0
	var marks []spillMarkAt
	flush := func() {
		if err == nil && filled > 0 {
			_, err = chunk.file.WriteAt(buf.buf[:filled], position-int64(filled))
		}
		filled = 0
	}
	lastMark := int64(-spillMark)
	if n := len(chunk.marks); n > 0 {
		lastMark = chunk.marks[n-1].position
	}
	for i := range step {
		seg := &step[i]
		if filled+len(seg.framed) > len(buf.buf) {
			flush()
		}
		if position-lastMark >= spillMark || position == 0 {
			marks = append(marks, spillMarkAt{seg.offset, position})
			lastMark = position
		}
		filled += copy(buf.buf[filled:], seg.framed)
		position += int64(len(seg.framed))
	}
	flush()
	buf.release()
	release()

	l.mu.Lock()
	s.writing = false
	l.wakeStreams()
	if err != nil || s.failed {
		s.disk.give(size)
		if fresh && chunk.file != nil {
			chunk.file.Close() //nolint:errcheck // it holds nothing
		}
		if err != nil && !s.failed {
			s.failed = true
			s.logger.Warn("output cannot be kept on disk, so a process that nobody reads blocks sooner", "directory", s.dir, "error", err)
		}
		return false
	}
	if fresh {
		s.chunks = append(s.chunks, chunk)
	}
	chunk.size = position
	chunk.end = step[len(step)-1].end()
	chunk.marks = append(chunk.marks, marks...)
	s.bytes += size
	for range step {
		l.removeFirst()
	}
	return true
}

// unnamedFile makes a file that only its descriptor can reach.
func unnamedFile(dir string) (*os.File, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	f, err := os.CreateTemp(dir, "waldo-output-*") // mode 0600
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close() //nolint:errcheck // the error is told
		return nil, err
	}
	return f, nil
}

// A spillCursor reads frames back for one reader.
type spillCursor struct {
	chunk    *spillChunk
	size     int64 // of the chunk's file, as far as it is written
	position int64 // in the file, of the frame that begins at offset
	offset   int64
	buf      *slab
	rest     []byte // frames read and not yet handed out; the first begins at restAt
	restAt   int64
}

// buffered returns the piece at offset if it has been read already.
func (c *spillCursor) buffered(offset int64) (env.Chunk, bool) {
	for len(c.rest) > 0 {
		n := int(binary.BigEndian.Uint32(c.rest[1:wire.HeaderSize]))
		framed := c.rest[: wire.HeaderSize+n : wire.HeaderSize+n]
		at := c.restAt
		if offset < at {
			break
		}
		c.rest = c.rest[len(framed):]
		c.restAt += int64(n)
		if skip := offset - at; skip < int64(n) {
			chunk := env.Chunk{Offset: offset, Channel: env.Channel(framed[0] & 0x0f), Data: framed[wire.HeaderSize+skip:]}
			if skip == 0 {
				chunk.Framed = framed
			}
			return chunk, true
		}
	}
	c.rest = nil
	return env.Chunk{}, false
}

// locate finds where in the spill offset is. The log is locked, and offset is in its spill.
func (c *spillCursor) locate(s *spill, offset int64) {
	i := sort.Search(len(s.chunks), func(i int) bool { return offset < s.chunks[i].end })
	chunk := s.chunks[i]
	if chunk != c.chunk {
		c.leave()
		c.chunk = chunk
		chunk.readers++
		c.offset = -1
	}
	c.size = chunk.size
	if c.offset != offset {
		m := sort.Search(len(chunk.marks), func(i int) bool { return offset < chunk.marks[i].offset }) - 1
		c.offset, c.position = chunk.marks[m].offset, chunk.marks[m].position
	}
}

// leave gives the chunk back. The log is locked.
func (c *spillCursor) leave() {
	if c.chunk != nil {
		c.chunk.readers--
		c.chunk.closeIfUnused()
		c.chunk = nil
	}
}

// fill reads frames until the one that holds offset is among them.
func (c *spillCursor) fill(offset int64) error {
	if c.buf == nil {
		c.buf = getSlab(true)
	}
	want := min(int64(len(c.buf.buf)), c.size-c.position)
	n, err := c.chunk.file.ReadAt(c.buf.buf[:want], c.position)
	if int64(n) < want {
		return fmt.Errorf("read back output at offset %d: %w", offset, err)
	}
	c.rest, c.restAt = c.buf.buf[:0], c.offset
	for b := c.buf.buf[:want]; len(b) >= wire.HeaderSize; {
		n := int(binary.BigEndian.Uint32(b[1:wire.HeaderSize]))
		if n > wire.MaxData {
			return fmt.Errorf("read back output at offset %d: the file was changed", offset)
		}
		if len(b) < wire.HeaderSize+n {
			break
		}
		b = b[wire.HeaderSize+n:]
		c.rest = c.rest[:len(c.rest)+wire.HeaderSize+n]
		c.offset += int64(n)
		c.position += int64(wire.HeaderSize + n)
	}
	return nil
}

// Close gives back what the cursor holds.
func (c *Cursor) Close() {
	c.Release()
	c.log.mu.Lock()
	c.spilled.leave()
	c.log.mu.Unlock()
	if c.spilled.buf != nil {
		c.spilled.buf.release()
		c.spilled.buf, c.spilled.rest = nil, nil
	}
}
