package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Spawn starts a program whose standard input and output are the connection. The child is the connection's:
// Close ends it and waits for it. A Read at the end of its output tells, instead of [io.EOF], how the child
// ended and what it last wrote to standard error. ctx bounds the start alone.
type Spawn func(ctx context.Context, argv []string) (net.Conn, error)

const (
	protocolByte = 0x00                   // what a server's first byte is
	shownBytes   = 400                    // of what was printed instead of the protocol
	shownWithin  = 300 * time.Millisecond // its rest may come in
)

// programConn is a connection to a program. It judges the first byte: what is no protocol is shown.
type programConn struct {
	net.Conn
	program []string
	failed  func(error) // told why the program's output ended, or what it was

	began bool // used by the one reader alone
	once  sync.Once
}

func (c *programConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.began {
		c.began = true
		if p[0] != protocolByte {
			err = fmt.Errorf("%s printed %s instead of the protocol; what start-up files of a shell print must go to standard error",
				quoteProgram(c.program), quoteShown(c.rest(p[:n])))
			n = 0
		}
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		if err == io.EOF {
			err = fmt.Errorf("%s closed its standard output", quoteProgram(c.program))
		}
		c.once.Do(func() { c.failed(err) })
	}
	return n, err
}

// rest adds what follows of a text within a moment.
func (c *programConn) rest(begin []byte) []byte {
	text := append([]byte(nil), begin...)
	if c.SetReadDeadline(time.Now().Add(shownWithin)) != nil {
		return text
	}
	buffer := make([]byte, shownBytes)
	for len(text) <= shownBytes {
		n, err := c.Conn.Read(buffer)
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
