package main

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/term"

	"waldo/env"
)

// console is the terminal here, while it is handed to a program elsewhere. restore gives it back, whatever has
// happened; whoever may panic meanwhile defers guard.
type console struct {
	mu       sync.Mutex
	state    *term.State // as it was; nil once restored
	output   func()      // gives the output side back
	raw      bool
	undoText func() []byte // what undoes the program's modes
}

// isConsole tells whether what is typed comes from a terminal.
func isConsole() bool { return term.IsTerminal(int(os.Stdin.Fd())) }

// takeConsole puts the terminal here into raw mode.
func takeConsole() (*console, error) {
	state, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return nil, fmt.Errorf("put the terminal into raw mode: %w", err)
	}
	return &console{state: state, output: obeySequences(), raw: true}, nil
}

// again puts the terminal back into raw mode after we had been stopped.
func (c *console) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != nil {
		term.MakeRaw(int(os.Stdin.Fd())) //nolint:errcheck // it worked before
	}
}

// restore gives the terminal back as it was. It is idempotent.
func (c *console) restore() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		return
	}
	if c.undoText != nil {
		os.Stdout.Write(c.undoText()) //nolint:errcheck // there is nobody left to tell
	}
	term.Restore(int(os.Stdin.Fd()), c.state) //nolint:errcheck // as above
	c.output()
	c.state = nil
}

// guard restores the terminal before a panic goes on.
func (c *console) guard() {
	if r := recover(); r != nil {
		c.restore()
		panic(r)
	}
}

// say is say for a terminal in raw mode: a line of its own.
func (c *console) say(format string, args ...any) {
	c.mu.Lock()
	raw := c.state != nil
	c.mu.Unlock()
	if !raw {
		say(format, args...)
		return
	}
	fmt.Fprintf(os.Stderr, "\r\n%s: %s\r\n", programName, oneLine(fmt.Sprintf(format, args...)))
}

// The size of a terminal that does not tell.
const (
	usualRows    = 24
	usualColumns = 80
)

// terminalSize is the size of the terminal here.
func terminalSize() env.Size {
	for _, file := range []*os.File{os.Stdout, os.Stdin, os.Stderr} {
		columns, rows, err := term.GetSize(int(file.Fd()))
		if err == nil && columns > 0 && rows > 0 && columns < 1<<16 && rows < 1<<16 {
			return env.Size{Rows: uint16(rows), Columns: uint16(columns)}
		}
	}
	return env.Size{Rows: usualRows, Columns: usualColumns}
}
