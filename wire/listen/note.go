package listen

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// A note precedes a connection that a process of the same user passes on to a unix socket: 0x01, its length (four
// bytes, big endian), its text. What follows is the connection as if it had come by itself.

const (
	byteNote = 0x01
	maxNote  = 128 << 10 // an environment; what it leaves of the bytes before authentication is for the connection
)

// SendNote sends a note; the listener's door finds it in Peer.Note. It has to be the first thing sent.
func SendNote(c net.Conn, note []byte) error {
	if len(note) > maxNote {
		return fmt.Errorf("a note of %d bytes, at most %d are allowed", len(note), maxNote)
	}
	b := binary.BigEndian.AppendUint32([]byte{byteNote}, uint32(len(note)))
	_, err := c.Write(append(b, note...))
	return err
}

// readNote reads a note whose first byte has been read.
func readNote(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, fmt.Errorf("note: %w", err)
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxNote {
		return nil, fmt.Errorf("a note of %d bytes, at most %d are allowed", n, maxNote)
	}
	note := make([]byte, n)
	if _, err := io.ReadFull(r, note); err != nil {
		return nil, fmt.Errorf("note: %w", err)
	}
	return note, nil
}
