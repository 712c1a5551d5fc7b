// Package output keeps what a process wrote until whoever it is for has taken it.
//
// A [Stream] reads one source, a pipe or a terminal, straight into the memory of a [Log], where each read is one
// frame of the wire from then on. Any number of readers take from the log, each by a [Cursor] at an offset of its
// own; one of them may be the owner, for whose sake output is held back, spilled to disk or dropped. What all logs
// hold together is bounded by a [Budget] of memory and one of disk.
package output

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"waldo/env"
	"waldo/wire"
)

const (
	logBound      = 1 << 20   // output not yet handed to the owner that stays in memory
	flightBound   = 16 << 20  // output handed to the owner and not yet acknowledged
	retainBound   = 256 << 10 // acknowledged output that stays for whoever attaches later
	segmentCost   = 64        // what one segment costs beside its bytes
	coalesceBound = 4 << 10   // reads up to this length are joined to the segment before
	guaranteed    = 64 << 10  // memory that a log may have whatever the budget says
)

// A segment is one published frame of the log.
type segment struct {
	offset  int64
	framed  []byte // header and data; immutable once taken
	slab    *slab
	channel env.Channel
	taken   bool // a reader has it, so it may not grow
}

func (s *segment) data() []byte { return s.framed[wire.HeaderSize:] }
func (s *segment) end() int64   { return s.offset + int64(len(s.framed)-wire.HeaderSize) }

// A Log holds what one process wrote, in order, until the owner has acknowledged it. The streams of the
// process append to it (at most one goroutine a stream, see Stream), any number of readers take from it, each
// at its own offset. Everything older than the oldest segment in memory is in the spill, if it is kept at all.
//
// All fields below mu are changed under it, and makeRoom alone decides whether a stream may go on.
type Log struct {
	memory *Budget
	slabs  atomic.Int64 // bytes of slabs that this log or its readers hold
	latest bool

	mu       sync.Mutex
	segs     []segment // the ones in memory are segs[head:]
	head     int
	first    uint64 // sequence number of segs[head]
	end      int64  // offset behind the newest byte
	acked    int64  // below it the owner wants nothing any more
	handed   int64  // what the owner was handed, at least acked
	owned    bool   // an owner is attached
	dropped  int64  // bytes that were lost before an owner was handed them
	lostFrom int64  // the last stretch of those, from here …
	lostTo   int64  // … up to here
	spill    spill
	full     bool // a stream waits for room, or output is dropped for want of it
	finished bool // no more will come
	waiting  map[*Cursor]struct{}
	room     chan struct{} // closed when room may have come, while somebody waits
}

// Options says what a log may use, and what it does when that is used up.
type Options struct {
	Memory         *Budget      // what its memory counts towards
	Disk           *Budget      // what its disk space counts towards
	SpillDirectory string       // where output is spilled; the machine's directory for temporary files
	SpillLimit     int64        // bytes on disk of this log, none if not positive
	Latest         bool         // the oldest output is dropped rather than that the process waits
	Logger         *slog.Logger // slog.Default()
}

// New returns an empty log. Nobody owns it.
func New(o Options) *Log {
	return &Log{memory: o.Memory, latest: o.Latest, spill: spill{
		dir: o.SpillDirectory, disk: o.Disk, limit: o.SpillLimit, logger: cmp.Or(o.Logger, slog.Default()),
	}}
}

// memStart is the offset of the oldest byte in memory.
func (l *Log) memStart() int64 {
	if l.head < len(l.segs) {
		return l.segs[l.head].offset
	}
	return l.end
}

// start is the offset of the oldest byte that is kept.
func (l *Log) start() int64 {
	if start, ok := l.spill.start(); ok {
		return start
	}
	return l.memStart()
}

// pressing is what is in memory for the owner's sake, with its overhead: not yet handed over, and in flight.
func (l *Log) pressing() (unread, flight int64) {
	from := max(l.acked, l.memStart())
	handed := max(l.handed, from)
	segments := int64(len(l.segs)-l.head) * segmentCost
	if retained := from - l.memStart(); retained > 0 { // share the overhead by bytes
		segments -= segments * retained / max(1, l.end-l.memStart())
	}
	if l.owned {
		return l.end - handed + segments, handed - from
	}
	return l.end - from + segments, 0
}

func (l *Log) overBound() bool {
	unread, flight := l.pressing()
	return unread >= logBound || flight >= flightBound
}

// slabFor gives a stream a slab on this log's account: a large one if wanted and there, else a small one, or nil
// when the budget has none. With force it always gives one.
func (l *Log) slabFor(large, force bool) *slab {
	size := int64(largeSlab)
	if !large || !l.memory.take(size, false) {
		large, size = false, smallSlab
		if !l.memory.take(size, force || l.mayExceed()) {
			return nil
		}
	}
	l.slabs.Add(size)
	s := getSlab(large)
	s.owner = l
	return s
}

// mayExceed tells that the log has so little that the budget does not count.
func (l *Log) mayExceed() bool { return l.slabs.Load()+smallSlab <= guaranteed }

// publish appends the n bytes that were read into s.buf[at+wire.HeaderSize:] and returns the position behind
// them. Small pieces join the segment before when nobody has taken that yet.
func (l *Log) publish(channel env.Channel, s *slab, at, n int) (next int, room bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	data := s.buf[at+wire.HeaderSize : at+wire.HeaderSize+n]
	if last := len(l.segs) - 1; last >= l.head && n <= coalesceBound {
		seg := &l.segs[last]
		size := len(seg.data())
		if seg.slab == s && !seg.taken && size+n <= wire.MaxData { // so it ends at buf[at]
			seg.framed = seg.framed[:len(seg.framed)+n]
			copy(seg.framed[wire.HeaderSize+size:], data)
			wire.PutDataHeader(seg.framed, wire.Channel(channel), size+n)
			l.end += int64(n)
			l.wakeReaders()
			return at + n, !l.overBound()
		}
	}
	framed := s.buf[at : at+wire.HeaderSize+n]
	wire.PutDataHeader(framed, wire.Channel(channel), n)
	s.retain()
	l.segs = append(l.segs, segment{offset: l.end, framed: framed, slab: s, channel: channel})
	l.end += int64(n)
	l.wakeReaders()
	return at + wire.HeaderSize + n, !l.overBound()
}

func (l *Log) wakeReaders() {
	for c := range l.waiting {
		delete(l.waiting, c)
		c.wake <- struct{}{} // one slot, and c waits: never blocks
	}
}

func (l *Log) wakeStreams() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// makeRoom returns when a stream may append again, by waiting for the owner, spilling, or dropping, or tells
// false when stop is closed first. needy says that a slab could not be had.
func (l *Log) makeRoom(stop <-chan struct{}, needy bool) bool {
	l.mu.Lock()
	for {
		over := l.overBound()
		var given <-chan struct{}
		if !over && needy {
			l.trim(0)
			given = l.memory.wait()
			over = !l.memory.has(smallSlab) && !l.mayExceed()
		}
		if !over {
			l.full = false
			l.mu.Unlock()
			return true
		}
		if !l.spill.writing {
			if l.maySpill() {
				l.trim(0)
				if l.spillOldest() {
					continue
				}
			}
			if l.latest && l.dropOldest() {
				l.full = true
				continue
			}
			l.full = true
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.mu.Unlock()
		select {
		case <-stop:
			return false
		case <-room:
		case <-given:
		}
		l.mu.Lock()
	}
}

// maySpill: while nobody owns the output, and for one that must not wait also while older output is there already.
func (l *Log) maySpill() bool {
	return !l.owned || l.latest && !l.spill.empty()
}

// dropOldest drops the oldest piece of output and tells whether there was one.
func (l *Log) dropOldest() bool {
	from := l.start()
	switch {
	case l.spill.dropOldest():
	case l.head < len(l.segs):
		l.removeFirst()
	default:
		return false
	}
	from, to := max(from, l.handed), l.start() // what the owner has in hand is not lost to him
	if to > from {
		l.dropped += to - from
		if from != l.lostTo {
			l.lostFrom = from
		}
		l.lostTo = to
	}
	l.acked = max(l.acked, l.start())
	l.handed = max(l.handed, l.acked)
	return true
}

func (l *Log) removeFirst() {
	seg := &l.segs[l.head]
	seg.slab.release()
	*seg = segment{}
	l.head++
	l.first++
	if l.head == len(l.segs) {
		l.segs, l.head = l.segs[:0], 0
		if cap(l.segs) > 256 {
			l.segs = nil
		}
	} else if l.head > 64 && l.head > len(l.segs)/2 {
		n := copy(l.segs, l.segs[l.head:])
		clear(l.segs[n:])
		l.segs, l.head = l.segs[:n], 0
	}
}

// trim lets go of what is acknowledged, except for the newest keep bytes.
func (l *Log) trim(keep int64) {
	if l.spill.trim(l.acked); !l.spill.empty() {
		return
	}
	for !l.spill.writing && l.head < len(l.segs) && l.segs[l.head].end() <= l.acked-keep {
		l.removeFirst()
	}
}

// Ack says that the owner wants nothing below offset any more.
func (l *Log) Ack(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ackLocked(offset)
}

func (l *Log) ackLocked(offset int64) {
	if offset = min(offset, l.end); offset > l.acked {
		l.acked = offset
		l.handed = max(l.handed, offset)
	}
	keep := int64(retainBound)
	if l.memory.scarce() {
		keep = 0
	}
	l.trim(keep)
	if l.room != nil {
		if unread, flight := l.pressing(); unread < logBound/2 && flight < flightBound {
			l.wakeStreams()
		}
	}
}

// handOver says that the owner has been handed everything below offset.
func (l *Log) handOver(offset int64) {
	l.handed = max(l.handed, offset)
	if l.room != nil {
		if unread, flight := l.pressing(); unread < logBound/2 && flight < flightBound {
			l.wakeStreams()
		}
	}
}

// Own says whether an owner is attached, and from where on it wants output.
func (l *Log) Own(owned bool, from int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owned = owned
	l.handed = l.acked
	if owned && from > l.acked {
		l.ackLocked(from)
	}
	l.wakeStreams()
}

// Finish says that no more will come.
func (l *Log) Finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished, l.full = true, false
	l.wakeReaders()
}

// Discard lets go of everything, when the process is forgotten. Readers find it lost.
func (l *Log) Discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.head < len(l.segs) {
		l.removeFirst()
	}
	l.spill.discard()
	l.wakeReaders()
}

// A State is what the log says of itself for a list.
type State struct {
	End      int64 // offset behind the newest byte
	Dropped  int64 // bytes lost before an owner was handed them
	Retained int64 // bytes that are kept
	Acked    int64 // below it the owner wants nothing any more
	Full     bool  // the process waits for room, or output is dropped for want of it
}

// State returns what the log says of itself at present.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{l.end, l.dropped, l.end - l.start(), l.acked, l.full}
}

// A Cursor reads a log from an offset on. It belongs to one goroutine at a time.
type Cursor struct {
	log     *Log
	offset  int64 // of the next byte wanted
	seq     uint64
	held    *slab         // what the chunk before lies in
	wake    chan struct{} // one slot
	spilled spillCursor
}

// NewCursor returns a cursor at offset, -1 for the oldest byte kept, or for what was lost right before that.
func (l *Log) NewCursor(offset int64) (*Cursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case offset == -1:
		if offset = l.start(); offset == l.lostTo {
			offset = l.lostFrom
		}
	case offset < -1 || offset > l.end:
		return nil, fmt.Errorf("%w: output offset %d: the process has written %d bytes so far", env.ErrInvalid, offset, l.end)
	}
	return &Cursor{log: l, offset: offset, wake: make(chan struct{}, 1)}, nil
}

// Offset is where the next byte that is wanted lies.
func (c *Cursor) Offset() int64 { return c.offset }

// Release lets go of the chunk before, whose bytes may not be touched any more.
func (c *Cursor) Release() {
	if c.held != nil {
		c.held.release()
		c.held = nil
	}
}

// Next returns the next chunk and moves behind it, waiting for it if need be; the chunk before is released. owner says
// that what is returned counts as handed to the owner. ok is false at the end, and when stop is closed.
func (c *Cursor) Next(ctx context.Context, stop <-chan struct{}, owner bool) (chunk env.Chunk, ok bool, err error) {
	c.Release()
	l := c.log
	for {
		if chunk, ok := c.spilled.buffered(c.offset); ok {
			c.offset += int64(len(chunk.Data))
			if owner {
				l.mu.Lock()
				l.handOver(c.offset)
				l.mu.Unlock()
			}
			return chunk, true, nil
		}
		l.mu.Lock()
		if start := l.start(); c.offset < start {
			chunk := env.Chunk{Offset: c.offset, Lost: start - c.offset}
			c.offset = start
			if owner {
				l.handOver(c.offset)
			}
			l.mu.Unlock()
			return chunk, true, nil
		}
		if c.offset < l.memStart() {
			c.spilled.locate(&l.spill, c.offset)
			l.mu.Unlock()
			if err := c.spilled.fill(c.offset); err != nil {
				return env.Chunk{}, false, err
			}
			continue
		}
		if c.offset < l.end {
			chunk := c.take()
			if owner {
				l.handOver(c.offset)
			}
			l.mu.Unlock()
			return chunk, true, nil
		}
		if l.finished {
			l.mu.Unlock()
			return env.Chunk{}, false, nil
		}
		if l.waiting == nil {
			l.waiting = make(map[*Cursor]struct{}, 1)
		}
		l.waiting[c] = struct{}{}
		l.mu.Unlock()
		select {
		case <-c.wake:
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-stop:
		}
		l.mu.Lock()
		delete(l.waiting, c)
		l.mu.Unlock()
		select {
		case <-c.wake:
		default:
		}
		return env.Chunk{}, false, err
	}
}

// take takes the segment at the cursor from memory. The log is locked.
func (c *Cursor) take() env.Chunk {
	l := c.log
	i := l.find(c.seq, c.offset)
	seg := &l.segs[i]
	seg.taken = true
	seg.slab.retain()
	c.held = seg.slab
	chunk := env.Chunk{Offset: c.offset, Channel: seg.channel}
	if skip := c.offset - seg.offset; skip > 0 {
		chunk.Data = seg.data()[skip:]
	} else {
		chunk.Data, chunk.Framed = seg.data(), seg.framed
	}
	c.offset = seg.end()
	c.seq = l.first + uint64(i-l.head) + 1
	return chunk
}

// find returns the index of the segment that holds offset; it is probably the one numbered guess.
func (l *Log) find(guess uint64, offset int64) int {
	if guess >= l.first && guess < l.first+uint64(len(l.segs)-l.head) {
		i := l.head + int(guess-l.first)
		if seg := &l.segs[i]; seg.offset <= offset && offset < seg.end() {
			return i
		}
	}
	low, high := l.head, len(l.segs)
	for low+1 < high {
		if mid := int(uint(low+high) >> 1); l.segs[mid].offset <= offset {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// Written is the offset behind the newest byte.
func (l *Log) Written() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}
