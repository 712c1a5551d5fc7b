package jsonrpc

import (
	"fmt"
	"unicode/utf8"
)

// Transport carries messages. Read is called by one goroutine and Write by another; Close may be called by any, ends
// both and is idempotent.
type Transport interface {
	// Read returns the next message, which is then the caller's. A *TooLongError is about one message; any other error
	// is the end: io.EOF if the other end closed properly.
	Read() ([]byte, error)
	// Write sends messages, in order. It does not keep them.
	Write(messages ...[]byte) error
	// Close says good-bye with a reason, if the connection takes it at once, and closes. Read should still be called, so
	// that the other end can say good-bye too.
	Close(reason string) error
}

// TooLongError is about a message over the limit, of which the rest has been thrown away.
type TooLongError struct {
	Limit int
	Start []byte // of the message
}

// Error tells the limit.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("the message is over %d bytes long; send it in parts", e.Limit)
}

// Options are those of every transport.
type Options struct {
	MaxMessage int // bytes of one incoming message; 0 means 64 MiB
}

const defaultMaxMessage = 64 << 20

// maxStart is how much of a message that is too long is kept for its id.
const maxStart = 4 << 10

// maxHint bounds what is taken for a message before it is known to be as long as the one before.
const maxHint = 256 << 10

// inbox gathers one incoming message.
type inbox struct {
	limit int
	small [8 << 10]byte // shared by the messages that fit
	b     []byte
	hint  int  // how long the last message was that did not fit
	long  bool // over the limit
}

func newInbox(o Options) inbox {
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMaxMessage
	}
	return inbox{limit: o.MaxMessage}
}

func (i *inbox) begin() { i.b, i.long = i.small[:0], false }

// room is where the next bytes go; grown tells how many came.
func (i *inbox) room() []byte {
	if i.long {
		return i.small[:]
	}
	if len(i.b) == cap(i.b) {
		grown := make([]byte, len(i.b), max(2*cap(i.b), i.hint))
		copy(grown, i.b)
		i.b = grown
	}
	return i.b[len(i.b):cap(i.b)]
}

func (i *inbox) grown(n int) {
	if i.long {
		return
	}
	i.b = i.b[:len(i.b)+n]
	if len(i.b) > i.limit {
		i.long = true
		i.b = append([]byte(nil), i.b[:min(maxStart, i.limit)]...)
	}
}

// add takes bytes that are somewhere already.
func (i *inbox) add(p []byte) {
	for len(p) > 0 {
		n := copy(i.room(), p)
		i.grown(n)
		p = p[n:]
	}
}

// message is what has been gathered, for the caller to keep.
func (i *inbox) message() ([]byte, error) {
	if i.long {
		return nil, &TooLongError{Limit: i.limit, Start: i.b}
	}
	if cap(i.b) == len(i.small) {
		return append(make([]byte, 0, len(i.b)), i.b...), nil
	}
	i.hint = min(len(i.b)+64, maxHint) // those of one kind are of one size
	return i.b, nil
}

// cut shortens text to at most n bytes of whole characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
