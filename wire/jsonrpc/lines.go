package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// lines is the transport of newline-delimited JSON.
type lines struct {
	rw     io.ReadWriteCloser
	in     *bufio.Reader
	box    inbox
	came   chan line
	closed chan struct{}
	over   chan struct{} // closed when nobody reads the stream any more
	out    []byte
	once   sync.Once
	err    error
}

type line struct {
	message []byte
	err     error
}

// NewLines makes a transport of a stream: a message is a line. Blank lines are skipped, and so is a carriage return at
// the end. A stream whose reading cannot be interrupted, such as standard input, is left to a goroutine when the
// transport is closed.
func NewLines(rw io.ReadWriteCloser, o Options) Transport {
	l := &lines{
		rw:     rw,
		in:     bufio.NewReaderSize(rw, 64<<10),
		box:    newInbox(o),
		came:   make(chan line),
		closed: make(chan struct{}),
		over:   make(chan struct{}),
	}
	go l.pump()
	return l
}

// pump reads lines until an error, or until the transport is closed.
func (l *lines) pump() {
	defer close(l.over)
	for {
		message, err := l.next()
		select {
		case l.came <- line{message, err}:
		case <-l.closed:
			return
		}
		var tooLong *TooLongError
		if err != nil && !errors.As(err, &tooLong) {
			return
		}
	}
}

// Read returns the next line. What follows the last newline is a line too.
func (l *lines) Read() ([]byte, error) {
	select {
	case next := <-l.came:
		return next.message, next.err
	case <-l.closed:
	case <-l.over:
	}
	return nil, net.ErrClosed
}

func (l *lines) next() ([]byte, error) {
	for {
		l.box.begin()
		for {
			part, err := l.in.ReadSlice('\n')
			l.box.add(bytes.TrimSuffix(part, []byte("\n")))
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if err != nil && (!errors.Is(err, io.EOF) || len(l.box.b) == 0) {
				return nil, err
			}
			break
		}
		message, err := l.box.message()
		if message = bytes.TrimSpace(message); len(message) > 0 || err != nil {
			return message, err
		}
	}
}

// Write sends lines. A line has no newline inside: JSON text needs none, and encoding/json makes none.
func (l *lines) Write(messages ...[]byte) error {
	for _, m := range messages {
		if len(l.out)+len(m) > maxBatch {
			if err := l.flush(); err != nil {
				return err
			}
		}
		if len(m) <= maxBatch {
			l.out = append(append(l.out, m...), '\n')
			continue
		}
		if _, err := l.rw.Write(m); err != nil {
			return err
		}
		l.out = append(l.out, '\n')
	}
	return l.flush()
}

// maxBatch is how much is copied together for one write.
const maxBatch = 64 << 10

func (l *lines) flush() error {
	if len(l.out) == 0 {
		return nil
	}
	_, err := l.rw.Write(l.out)
	l.out = l.out[:0]
	return err
}

// Close closes the stream. There are no words for a reason.
func (l *lines) Close(string) error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.rw.Close()
		patience := time.NewTimer(goodbyeWithin)
		defer patience.Stop()
		select {
		case <-l.over:
		case <-patience.C:
		}
	})
	return l.err
}
