package wire

import "sync"

const (
	// smallBuffer is the size up to which a payload gets memory of its own: a pooled buffer would hold more than
	// it needs for a keystroke.
	smallBuffer = 1024
	// mediumBuffer is what a terminal and many pipes give at once. A queue of such payloads holds an eighth of what
	// it would with large buffers alone.
	mediumBuffer = HeaderSize + 4<<10
	farBuffer    = HeaderSize + farData
	largeBuffer  = HeaderSize + MaxData
)

var (
	mediumBuffers = sync.Pool{New: func() any { return new([mediumBuffer]byte) }}
	farBuffers    = sync.Pool{New: func() any { return new([farBuffer]byte) }}
	largeBuffers  = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
)

// getBuffer returns n bytes, n at most largeBuffer; putBuffer takes them back.
func getBuffer(n int) []byte {
	switch {
	case n <= smallBuffer:
		return make([]byte, n)
	case n <= mediumBuffer:
		return mediumBuffers.Get().(*[mediumBuffer]byte)[:n]
	case n <= farBuffer:
		return farBuffers.Get().(*[farBuffer]byte)[:n]
	}
	return largeBuffers.Get().(*[largeBuffer]byte)[:n]
}

func putBuffer(b []byte) {
	switch cap(b) {
	case mediumBuffer:
		mediumBuffers.Put((*[mediumBuffer]byte)(b[:mediumBuffer]))
	case farBuffer:
		farBuffers.Put((*[farBuffer]byte)(b[:farBuffer]))
	case largeBuffer:
		largeBuffers.Put((*[largeBuffer]byte)(b[:largeBuffer]))
	}
}
