//go:build unix

package output

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/env"
	"waldo/wire"
)

// A Stream is one source of output: a pipe's read end, or a terminal's master. One goroutine pumps it into the
// log; when the leader has ended, the goroutine that found that out drains it.
type Stream struct {
	log     *Log
	channel env.Channel
	file    *os.File
	raw     syscall.RawConn
	done    chan struct{} // closed when every holder of the other end is gone

	mu    sync.Mutex // held for one read and its publication, never while waiting
	slab  *slab
	at    int  // where the next frame goes
	large bool // the next slab is a large one
	full  int  // reads in a row that got all they could
}

// NewStream returns the stream that reads file, which does not block, into log. Whoever closes the file ends it.
func NewStream(log *Log, channel env.Channel, file *os.File) (*Stream, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &Stream{log: log, channel: channel, file: file, raw: raw, done: make(chan struct{})}, nil
}

// Done is closed when Pump has ended.
func (s *Stream) Done() <-chan struct{} { return s.done }

type readState int

const (
	readSome     readState = iota
	readAgain              // nothing there now
	readNoRoom             // the log is full
	readNoMemory           // the budget has no slab
	readEnd                // nothing will come any more
)

const (
	fullRead  = 32 << 10  // a read of half a pipe is as good as one that got all it could
	growAfter = 16        // full reads in a row that make the pipe grow
	grownPipe = 512 << 10 // to this
	ptyBuffer = 128 << 10 // more than a terminal's buffers in the kernel ever hold
)

// Pump reads until every holder of the other end is gone, or stop is closed and the log is full, or the file is closed.
func (s *Stream) Pump(stop <-chan struct{}) {
	defer close(s.done)
	needy := false
	for s.log.makeRoom(stop, needy) {
		var state readState
		err := s.raw.Read(func(fd uintptr) bool {
			for {
				s.mu.Lock()
				_, state = s.read(int(fd), false)
				s.mu.Unlock()
				if state != readSome {
					return state != readAgain
				}
			}
		})
		if err != nil || state == readEnd {
			break
		}
		needy = state == readNoMemory
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropSlab()
}

func (s *Stream) dropSlab() {
	if s.slab != nil {
		s.slab.release()
		s.slab = nil
	}
}

// read reads once, directly into the log. With force it reads though the log is full. s.mu is held.
func (s *Stream) read(fd int, force bool) (int, readState) {
	if s.slab != nil && len(s.slab.buf)-s.at < minRoom {
		s.dropSlab()
	}
	if s.slab == nil {
		if s.slab, s.at = s.log.slabFor(s.large, force), 0; s.slab == nil {
			return 0, readNoMemory
		}
	}
	room := s.slab.buf[s.at+wire.HeaderSize:]
	if len(room) > wire.MaxData {
		room = room[:wire.MaxData]
	}
	n, err := unix.Read(fd, room)
	for err == unix.EINTR {
		n, err = unix.Read(fd, room)
	}
	if n <= 0 {
		if s.at == 0 {
			s.dropSlab() // an idle stream holds no memory
		}
		s.full = 0
		if err == unix.EAGAIN {
			return 0, readAgain
		}
		return 0, readEnd // a terminal's end is EIO
	}
	if n == len(room) || n >= fullRead {
		s.large = true
		if s.full++; s.full == growAfter {
			growPipe(fd, grownPipe)
		}
	} else {
		s.full = 0
		s.large = s.large && n >= smallSlab/2
	}
	var hasRoom bool
	s.at, hasRoom = s.log.publish(s.channel, s.slab, s.at, n)
	if !hasRoom {
		return n, readNoRoom
	}
	return n, readSome
}

// CatchUp reads what is there now, as long as there is room.
func (s *Stream) CatchUp() {
	s.raw.Control(func(fd uintptr) { //nolint:errcheck // of a closed file nothing is left to read
		s.mu.Lock()
		defer s.mu.Unlock()
		for s.log.hasRoom() {
			if _, state := s.read(int(fd), false); state != readSome {
				return
			}
		}
	})
}

// Drain reads what is there now, though the log be full, so that all that was written before lies in the log.
func (s *Stream) Drain() {
	s.raw.Control(func(fd uintptr) { //nolint:errcheck // of a closed file nothing is left to read
		s.mu.Lock()
		defer s.mu.Unlock()
		left := int64(ptyBuffer)
		if s.channel != env.Terminal {
			n, err := unix.IoctlGetInt(int(fd), fionread)
			if err != nil {
				return
			}
			left = int64(n)
		}
		for left > 0 {
			n, state := s.read(int(fd), true)
			if state == readAgain || state == readEnd {
				return
			}
			left -= int64(n)
		}
	})
}

// hasRoom tells whether a stream may append now.
func (l *Log) hasRoom() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.overBound()
}
