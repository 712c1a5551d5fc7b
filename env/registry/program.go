package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Spawn starts a program. ctx bounds the start alone.
type Spawn func(ctx context.Context, program Program) (Child, error)

// Program is a program to start.
type Program struct {
	Argv []string
	// Environ, of NAME=VALUE, is added to our own environment.
	Environ []string
	// Directory is where it starts; empty: in ours.
	Directory string
	// Ask says that it may ask the person at the terminal, until it first prints something.
	Ask bool
}

// Child is a connection to a program's standard input and output. The program belongs to it: Close ends and
// awaits it.
type Child interface {
	net.Conn
	// CloseWrite ends the program's standard input.
	CloseWrite() error
	// Ended tells how the program ended and what it last wrote to standard error, once it has, or after a moment
	// that it still runs. It is nil for one that ended well, or that Close had to end.
	Ended() error
}

const (
	protocolByte = 0x00                   // what a server's first byte is
	shownBytes   = 400                    // of what was printed instead of the protocol
	shownWithin  = 300 * time.Millisecond // its rest may come in
	maxNoise     = 64 << 10               // that is read in search of a marker
)

// programConn is a connection to a program. It judges the first byte: what is no protocol is shown.
type programConn struct {
	Child
	program []string
	ssh     SSH         // the box, if it is an ssh: it may say that it has no server
	settled func(error) // told once why the program's output ended, or what it was; nil for a good end

	reading sync.Mutex // one at a time
	began   atomic.Bool
	once    sync.Once
}

func (c *programConn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err := c.Child.Read(p)
	if n > 0 && !c.began.Load() {
		c.began.Store(true)
		if p[0] != protocolByte {
			err = c.noProtocol(p[:n])
			n = 0
		}
	}
	switch {
	case err == io.EOF:
		if err = c.Ended(); err == nil {
			err = fmt.Errorf("%s has ended", quoteProgram(c.program))
		}
	case err == nil, errors.Is(err, os.ErrClosed), errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		return n, err
	}
	c.once.Do(func() { c.settled(err) })
	return n, err
}

// Close ends the program. If it had failed before, writing to it has told first, and less; so what it has printed
// is looked at now.
func (c *programConn) Close() error {
	if !c.began.Load() && c.SetReadDeadline(time.Now().Add(shownWithin)) == nil {
		c.Read(make([]byte, shownBytes)) //nolint:errcheck // it settles what there is to be told
	}
	err := c.Child.Close()
	c.reading.Lock() // what is being judged is told first
	defer c.reading.Unlock()
	c.once.Do(func() { c.settled(c.Ended()) })
	return err
}

// noProtocol says what came instead of the protocol.
func (c *programConn) noProtocol(begin []byte) error {
	limit, patience := shownBytes, shownWithin
	if c.ssh != (SSH{}) {
		limit, patience = maxNoise, sshNoiseWithin
	}
	text := c.rest(begin, limit, patience)
	if system, missing := findMarker(string(text), missingMarker); missing && c.ssh != (SSH{}) {
		return &NoServerError{Box: c.ssh.String(), System: system}
	}
	return fmt.Errorf("%s printed %s instead of the protocol; what start-up files of a shell print must go to standard error",
		quoteProgram(c.program), quoteShown(text))
}

// rest adds what follows of a text within a moment, until the protocol begins.
func (c *programConn) rest(begin []byte, limit int, patience time.Duration) []byte {
	text := append([]byte(nil), begin...)
	if c.SetReadDeadline(time.Now().Add(patience)) != nil {
		return text
	}
	buffer := make([]byte, shownBytes)
	for len(text) <= limit {
		if at := bytes.IndexByte(text, protocolByte); at >= 0 {
			return text[:at]
		}
		if at := bytes.Index(text, []byte(missingMarker)); at >= 0 && bytes.IndexByte(text[at:], '\n') >= 0 {
			break
		}
		n, err := c.Child.Read(buffer)
		text = append(text, buffer[:n]...)
		if err != nil {
			break
		}
	}
	return text
}

// quoteShown makes a bounded text of one line without control bytes.
func quoteShown(text []byte) string {
	if len(text) > shownBytes {
		return strconv.Quote(string(text[:shownBytes])) + "…"
	}
	return strconv.Quote(string(text))
}

// quoteProgram is an argv for people, quoted where needed, on one line.
func quoteProgram(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		if quoted := strconv.Quote(word); word == "" || len(quoted) != len(word)+2 || strings.Contains(word, " ") {
			word = quoted
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}
