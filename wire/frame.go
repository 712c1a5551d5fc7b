package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// The sizes of a frame, in bytes.
const (
	HeaderSize = 5          // kind(1) length(4, big endian)
	MaxData    = 128 * 1024 // payload of a DATA frame, and of one whose kind is not known

	maxPart    = 32 * 1024 // payload of a frame of the JSON kinds; a longer message is split with the MORE bit
	maxHead    = 4 << 20   // a HEAD, all its parts together
	maxMessage = 64 << 10
)

// Channel tells the byte streams of one direction apart; it is the low four bits of a DATA frame's kind byte.
type Channel uint8

// kind is the kind of a frame: bits 6 to 4 of its first byte.
type kind uint8

const (
	kindHead    kind = 1
	kindData    kind = 2
	kindControl kind = 3
	kindEnd     kind = 4

	bitMore = 0x80
)

// limit is the length that all parts of a JSON message of this kind may have together.
func (k kind) limit() int {
	if k == kindHead {
		return maxHead
	}
	return maxMessage
}

// frameLimit is the length that one frame of this kind may have.
func (k kind) frameLimit() int {
	switch k {
	case kindHead, kindControl, kindEnd:
		return maxPart
	}
	return MaxData
}

func putHeader(b []byte, first byte, n int) {
	b[0] = first
	binary.BigEndian.PutUint32(b[1:HeaderSize], uint32(n))
}

// PutDataHeader writes the header of a DATA frame of n payload bytes into b[:HeaderSize].
func PutDataHeader(b []byte, channel Channel, n int) {
	putHeader(b, byte(kindData)<<4|byte(channel), n)
}

// isData tells whether framed is one whole DATA frame.
func isData(framed []byte) bool {
	return len(framed) >= HeaderSize && len(framed) <= HeaderSize+MaxData && kind(framed[0]>>4) == kindData &&
		binary.BigEndian.Uint32(framed[1:]) == uint32(len(framed)-HeaderSize)
}

// emptyHead is the HEAD of an answer that says nothing in it.
var emptyHead, _ = appendMessage(nil, kindHead, []byte("{}"))

// appendMessage appends a JSON message of kind k, split into frames that each fit.
func appendMessage(b []byte, k kind, payload []byte) ([]byte, error) {
	if len(payload) > k.limit() {
		return b, fmt.Errorf("%w: a %d byte message is over the limit of %d", TooLarge, len(payload), k.limit())
	}
	for {
		part, first := payload, byte(k)<<4
		if len(part) > maxPart {
			part, first = part[:maxPart], first|bitMore
		}
		var header [HeaderSize]byte
		putHeader(header[:], first, len(part))
		b = append(append(b, header[:]...), part...)
		payload = payload[len(part):]
		if len(payload) == 0 {
			return b, nil
		}
	}
}

// frame is one frame, or one whole JSON message: the parts that MORE joins.
type frame struct {
	kind    kind
	channel Channel
	payload []byte // of DATA: in a buffer from getBuffer, which passes to the receiver
}

// decoder reads frames from one direction of a stream.
type decoder struct {
	r *bufio.Reader
}

func newDecoder(r io.Reader) *decoder { return &decoder{r: bufio.NewReaderSize(r, 4096)} }

// header reads one frame header. A clean end between frames is io.EOF, anywhere else io.ErrUnexpectedEOF.
func (d *decoder) header() (first byte, n int, err error) {
	b, err := d.r.Peek(HeaderSize)
	if err != nil {
		if err == io.EOF && len(b) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return 0, 0, err
	}
	first = b[0]
	length := binary.BigEndian.Uint32(b[1:])
	d.r.Discard(HeaderSize) //nolint:errcheck // Peek has them
	if limit := kind(first >> 4 & 7).frameLimit(); length > uint32(limit) {
		return 0, 0, fmt.Errorf("%w: frame of %d bytes, at most %d are allowed", errProtocol, length, limit)
	}
	return first, int(length), nil
}

func (d *decoder) fill(b []byte) error {
	_, err := io.ReadFull(d.r, b)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// next reads the next frame that this version knows. Unknown kinds are skipped.
func (d *decoder) next() (frame, error) {
	for {
		first, n, err := d.header()
		if err != nil {
			return frame{}, err
		}
		f := frame{kind: kind(first >> 4 & 7)}
		switch f.kind {
		case kindData:
			f.channel = Channel(first & 0x0f)
			if first&bitMore != 0 {
				return frame{}, fmt.Errorf("%w: MORE on a DATA frame", errProtocol)
			}
			f.payload = getBuffer(n)
			if err := d.fill(f.payload); err != nil {
				putBuffer(f.payload)
				return frame{}, err
			}
			return f, nil
		case kindHead, kindControl, kindEnd:
			f.payload, err = d.message(f.kind, first, n)
			return f, err
		default:
			if _, err := d.r.Discard(n); err != nil {
				return frame{}, unexpected(err)
			}
		}
	}
}

// message reads the rest of a JSON message whose first header has been read.
func (d *decoder) message(k kind, first byte, n int) ([]byte, error) {
	var whole []byte
	for {
		if len(whole)+n > k.limit() {
			return nil, fmt.Errorf("%w: message of over %d bytes", errProtocol, k.limit())
		}
		at := len(whole)
		if whole == nil {
			whole = make([]byte, n)
		} else {
			whole = append(whole, make([]byte, n)...)
		}
		if err := d.fill(whole[at:]); err != nil {
			return nil, err
		}
		if first&bitMore == 0 {
			return whole, nil
		}
		var err error
		if first, n, err = d.header(); err != nil {
			return nil, unexpected(err)
		}
		if kind(first>>4&7) != k {
			return nil, fmt.Errorf("%w: the parts of a message are interrupted", errProtocol)
		}
		if n == 0 && first&bitMore != 0 {
			return nil, fmt.Errorf("%w: empty part of a message", errProtocol)
		}
	}
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
