package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Spawn starts a program. ctx bounds the start alone.
type Spawn func(ctx context.Context, argv []string) (Child, error)

// Child is a connection to a program's standard input and output. The program belongs to it: Close ends and
// awaits it.
type Child interface {
	net.Conn
	// Ended tells how the program ended and what it last wrote to standard error, once it has, or after a moment
	// that it still runs. It is nil for one that ended well, or that Close had to end.
	Ended() error
}

const (
	protocolByte = 0x00                   // what a server's first byte is
	shownBytes   = 400                    // of what was printed instead of the protocol
	shownWithin  = 300 * time.Millisecond // its rest may come in
)

// programConn is a connection to a program. It judges the first byte: what is no protocol is shown.
type programConn struct {
	Child
	program []string
	settled func(error) // told once why the program's output ended, or what it was; nil for a good end

	began bool // used by the one reader alone
	once  sync.Once
}

func (c *programConn) Read(p []byte) (int, error) {
	n, err := c.Child.Read(p)
	if n > 0 && !c.began {
		c.began = true
		if p[0] != protocolByte {
			err = fmt.Errorf("%s printed %s instead of the protocol; what start-up files of a shell print must go to standard error",
				quoteProgram(c.program), quoteShown(c.rest(p[:n])))
			n = 0
		}
	}
	switch {
	case err == io.EOF:
		if err = c.Ended(); err == nil {
			err = fmt.Errorf("%s has ended", quoteProgram(c.program))
		}
	case err == nil, errors.Is(err, os.ErrClosed), errors.Is(err, net.ErrClosed):
		return n, err
	}
	c.once.Do(func() { c.settled(err) })
	return n, err
}

// Close ends the program. If it had failed before, writing to it has told first, and less.
func (c *programConn) Close() error {
	err := c.Child.Close()
	c.once.Do(func() { c.settled(c.Ended()) })
	return err
}

// rest adds what follows of a text within a moment.
func (c *programConn) rest(begin []byte) []byte {
	text := append([]byte(nil), begin...)
	if c.SetReadDeadline(time.Now().Add(shownWithin)) != nil {
		return text
	}
	buffer := make([]byte, shownBytes)
	for len(text) <= shownBytes {
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
