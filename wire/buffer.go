package wire

import "sync"

const (
	// smallBuffer is the size up to which a payload gets memory of its own: a pooled buffer would hold 32 KiB
	// for a keystroke.
	smallBuffer = 1024
	largeBuffer = HeaderSize + MaxData
)

var buffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// getBuffer returns n bytes, n at most largeBuffer; putBuffer takes them back.
func getBuffer(n int) []byte {
	if n <= smallBuffer {
		return make([]byte, n)
	}
	return buffers.Get().(*[largeBuffer]byte)[:n]
}

func putBuffer(b []byte) {
	if cap(b) == largeBuffer {
		buffers.Put((*[largeBuffer]byte)(b[:largeBuffer]))
	}
}
