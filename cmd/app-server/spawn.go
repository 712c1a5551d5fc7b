package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"waldo/env/registry"
	"waldo/wire/listen"
)

const (
	childWithin = 2 * time.Second // a child may take this long to end once its streams are closed
	tailBytes   = 1 << 10         // of a child's standard error that are kept
)

// child is a program that is spoken to through its standard input and output.
type child struct {
	net.Conn          // of the two pipes
	input    *os.File // its standard input
	terminal *lentTerminal
	command  *exec.Cmd
	stderr   tail
	ended    chan struct{} // closed when it has been waited for
	once     sync.Once
	killed   atomic.Bool // it did not end by itself
}

// spawn is a registry.Spawn. The child gets a process group of its own, so that a Ctrl-C is not for it.
func spawn(ctx context.Context, program registry.Program) (registry.Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	theirInput, ourOutput, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourInput, theirOutput, err := os.Pipe()
	if err != nil {
		theirInput.Close()
		ourOutput.Close()
		return nil, err
	}
	c := &child{Conn: listen.Stdio(ourInput, ourOutput), input: ourOutput,
		command: exec.Command(program.Argv[0], program.Argv[1:]...), ended: make(chan struct{})}
	c.command.Dir = program.Directory
	if len(program.Environ) > 0 {
		c.command.Env = append(c.command.Environ(), program.Environ...)
	}
	c.command.Stdin, c.command.Stdout, c.command.Stderr = theirInput, theirOutput, &c.stderr
	c.command.WaitDelay = time.Second // what else holds its standard error is no reason to wait
	ownGroup(c.command)
	err = c.command.Start()
	theirInput.Close()
	theirOutput.Close()
	if err != nil {
		c.Conn.Close()
		return nil, err
	}
	if program.Ask {
		c.terminal = lendTerminal(c.command.Process.Pid)
	}
	go func() {
		c.command.Wait() //nolint:errcheck // ProcessState tells
		c.terminal.takeBack()
		close(c.ended)
	}()
	return c, nil
}

// Read takes the terminal back once the child has something to say, for then it has nothing to ask any more.
func (c *child) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.terminal.takeBack()
	return n, err
}

// CloseWrite ends the child's standard input.
func (c *child) CloseWrite() error { return c.input.Close() }

// Ended tells how the child ended; see registry.Child.
func (c *child) Ended() error {
	timer := time.NewTimer(childWithin)
	defer timer.Stop()
	how := "closed its standard output"
	select {
	case <-c.ended:
		if c.killed.Load() || c.command.ProcessState.Success() {
			return nil
		}
		how = "ended with " + c.command.ProcessState.String()
	case <-timer.C:
	}
	if said := c.stderr.String(); said != "" {
		return fmt.Errorf("%s %s and said %s", quoteWord(c.command.Path), how, strconv.Quote(said))
	}
	return fmt.Errorf("%s %s", quoteWord(c.command.Path), how)
}

// Close ends the child and waits for it.
func (c *child) Close() (err error) {
	c.once.Do(func() {
		err = c.Conn.Close()
		timer := time.NewTimer(childWithin)
		defer timer.Stop()
		select {
		case <-c.ended:
			return
		case <-timer.C:
		}
		c.killed.Store(true)
		if kill := killGroup(c.command.Process); kill != nil && !errors.Is(kill, os.ErrProcessDone) {
			err = errors.Join(err, kill)
		}
		<-c.ended
	})
	if errors.Is(err, os.ErrClosed) { // CloseWrite was before
		err = nil
	}
	return err
}

// tail keeps the end of what is written.
type tail struct {
	mu   sync.Mutex
	text []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailBytes; over > 0 {
		t.text, t.cut = append(t.text[:0], t.text[over:]...), true
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.text))
	if t.cut {
		return "…" + text
	}
	return text
}
