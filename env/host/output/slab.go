package output

import (
	"sync"
	"sync/atomic"

	"waldo/wire"
)

const (
	smallSlab = 4 << 10                        // for a process that says little
	frameSize = wire.HeaderSize + wire.MaxData // the longest frame
	largeSlab = 2 * frameSize                  // for one that fills what it is given
	minRead   = 512                            // less room than this is not read into
	minRoom   = wire.HeaderSize + minRead      // and so a slab is left when less remains
)

// A slab is memory that output is read into, frame after frame with room for the headers. A published part is
// never written again until the last holder has let go of the slab.
type slab struct {
	buf   []byte
	refs  atomic.Int32
	owner *Log // whose account it is on
}

var (
	smallSlabs = sync.Pool{New: func() any { return &slab{buf: make([]byte, smallSlab)} }}
	largeSlabs = sync.Pool{New: func() any { return &slab{buf: make([]byte, largeSlab)} }}
)

var poison atomic.Bool

// Poison makes memory that was released unusable, or not any more. Tests turn it on to catch a reader that holds bytes
// too long.
func Poison(on bool) { poison.Store(on) }

// getSlab returns a slab with one reference. Its bytes are on no account.
func getSlab(large bool) *slab {
	pool := &smallSlabs
	if large {
		pool = &largeSlabs
	}
	s := pool.Get().(*slab)
	s.refs.Store(1)
	return s
}

func (s *slab) retain() { s.refs.Add(1) }

func (s *slab) release() {
	left := s.refs.Add(-1)
	if left > 0 {
		return
	}
	if left < 0 {
		panic("output: slab released twice")
	}
	if poison.Load() {
		for i := range s.buf {
			s.buf[i] = 0xDB
		}
	}
	owner, size := s.owner, int64(len(s.buf))
	s.owner = nil
	if len(s.buf) == smallSlab {
		smallSlabs.Put(s)
	} else {
		largeSlabs.Put(s)
	}
	if owner != nil {
		owner.slabs.Add(-size)
		owner.memory.give(size)
	}
}
