package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"waldo/env"
	"waldo/env/registry"
)

// joining says how a process is joined to our standard streams.
type joining struct {
	terminal bool // it has a terminal
	escapes  bool // what is typed may be for us
	input    bool // standard input goes to it
	watch    bool // it is only looked at
	hangUp   bool // it is a shell: it ends with our terminal, and nothing else is forwarded to it
	linger   time.Duration
	repaint  bool  // what it shows has to be drawn again
	replayed int64 // output below this offset is an older one's, and must not question our terminal
}

const (
	killAgain     = 2 * time.Second // a second INT within this kills
	endTreeWithin = 2 * time.Second // politely; then it is killed
	giveUpAfter   = 2 * time.Second // of trying to end what does not answer
	hangUpWithin  = 3 * time.Second // a shell may take this long to end
	quietWithin   = 300 * time.Millisecond
	inputBuffer   = 256 << 10
)

var errLingered = errors.New("something still holds the output")

// outputError says that our own output failed.
type outputError struct {
	file *os.File
	err  error
}

func (e *outputError) Error() string { return fmt.Sprintf("write %s: %v", e.file.Name(), e.err) }
func (e *outputError) Unwrap() error { return e.err }

// joined is a process that is joined to our standard streams.
type joined struct {
	joining
	stage       *stage
	environment *registry.Environment
	process     env.Process
	id          string
	console     *console // nil unless it is taken
	cancel      context.CancelCauseFunc
	modes       modes
	inLine      atomic.Bool // the last of the output was no end of a line
	tell        func(format string, args ...any)

	output   chan error      // how the output ended
	silent   chan struct{}   // closed when no more output is written
	detached chan struct{}   // a person asked for it
	hungUp   chan struct{}   // the terminal is gone
	forward  chan env.Signal // to the process
	linger   *linger
}

// join is the life of a process on our standard streams, until its output has closed or we go before it.
func (s *stage) join(ctx context.Context, e *registry.Environment, p env.Process, how joining) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	j := &joined{
		joining: how, stage: s, environment: e, process: p, id: fullID(e, p), tell: say,
		cancel: cancel,
		output: make(chan error, 1), silent: make(chan struct{}), detached: make(chan struct{}, 1), hungUp: make(chan struct{}, 1),
		forward: make(chan env.Signal, 16),
		linger:  &linger{wait: how.linger, over: func() { cancel(errLingered) }},
	}
	defer j.linger.stop()
	typed := isConsole()
	if how.terminal && typed {
		console, err := takeConsole()
		if err != nil {
			s.discard = true
			return err
		}
		console.undoText = j.modes.undo
		j.console, j.tell = console, console.say
		leave := ""
		if how.escapes {
			leave = " (Enter ~. leaves)"
		}
		s.notice.onConsole(console.say, leave)
		defer console.restore()
		go j.followSize(ctx)
	}
	go j.copyOutput(ctx)
	go j.awaitExit(ctx)
	go j.forwardSignals(ctx)
	if how.input || typed && how.escapes {
		go j.copyInput(ctx, typed)
	}
	err := j.wait()
	j.quiet()
	return err
}

// quiet stops the output and gives the terminal back. What is being written to a terminal that takes nothing is
// not waited for.
func (j *joined) quiet() {
	j.cancel(nil)
	select {
	case <-j.silent:
	case <-time.After(quietWithin):
	}
	j.console.restore()
}

// wait is the main loop.
func (j *joined) wait() error {
	var lastINT time.Time
	for {
		select {
		case err := <-j.output:
			return j.outputEnded(err)
		case <-j.detached:
			j.leave("detached from")
			return nil
		case <-j.hungUp:
			return j.hang(codeSignalled + signalNumbers["HUP"])
		case s := <-j.stage.signals:
			name, number := signalOf(s)
			code := codeSignalled + number
			switch {
			case j.watch:
				return &exitError{code: code}
			case j.hangUp && name == "HUP":
				return j.hang(code)
			case j.hangUp:
				j.leave("ended by SIG%s, and leaves", name)
				return &exitError{code: code}
			case name == "INT" && !lastINT.IsZero() && time.Since(lastINT) <= killAgain:
				return j.kill(code)
			case name == "INT":
				lastINT = time.Now()
			case j.stage.notice.lost(): // it cannot be passed on, and whoever sent it means us too
				j.leave("ended by SIG%s while the connection is lost, leaves", name)
				return &exitError{code: code}
			}
			select {
			case j.forward <- name:
			default: // so many wait already that one more tells the process nothing
			}
		}
	}
}

// leave lets the process live without us, and says how to come back.
func (j *joined) leave(format string, args ...any) {
	j.quiet()
	j.newLine()
	lease := ""
	if granted := j.environment.Connection().Lease; granted > 0 && !j.watch {
		lease = fmt.Sprintf(", which lives for %s without a client", durationText(granted))
	}
	how := []string{j.id}
	if j.watch {
		how = []string{"--watch", j.id}
	}
	say("%s %s%s; to come back: %s", fmt.Sprintf(format, args...), j.id, lease, j.stage.connection.commandLine("attach", how...))
}

// newLine begins a line of our own behind what the program has left on the terminal here.
func (j *joined) newLine() {
	if j.console != nil && j.inLine.Load() {
		fmt.Fprintln(os.Stderr)
	}
}

// hang hangs up on a shell, whose terminal is gone.
func (j *joined) hang(code int) error {
	ctx, cancel := context.WithTimeout(context.Background(), hangUpWithin)
	defer cancel()
	if err := j.process.Signal(ctx, "HUP"); err == nil {
		select {
		case <-j.process.Exited():
			return &exitError{code: code}
		case <-ctx.Done():
		}
	}
	j.leave("the terminal is gone, but not")
	return &exitError{code: code}
}

// kill gives up on a process that did not end at the first INT.
func (j *joined) kill(code int) error {
	ctx, cancel := context.WithTimeout(context.Background(), giveUpAfter)
	defer cancel()
	j.stage.discard = true
	if err := j.environment.Terminate(ctx, j.id, 0); err != nil && !errors.Is(err, env.ErrUnknownProcess) {
		j.leave("cannot kill (%v), leaves", err)
	}
	return &exitError{code: code}
}

// outputEnded says how it all ended.
func (j *joined) outputEnded(err error) error {
	var ours *outputError
	switch {
	case err == nil, errors.Is(err, errLingered):
	case errors.As(err, &ours):
		return j.outputFailed(ours)
	case errors.Is(err, env.ErrFenced):
		j.quiet()
		j.newLine()
		return &exitError{codeOurFailure, fmt.Errorf("%s was taken over by somebody else; to take it back: %s",
			j.id, j.stage.connection.commandLine("attach", "--take", j.id))}
	case errors.Is(err, env.ErrRestarted):
		j.quiet()
		j.newLine()
		return &exitError{codeOurFailure, fmt.Errorf("environment %s: server restarted, its processes are gone", j.environment.Spec())}
	default:
		j.quiet()
		j.newLine()
		return &exitError{codeOurFailure, j.environment.Explain(err)}
	}
	<-j.process.Exited()
	exit, exitErr := j.process.Exit()
	if exitErr != nil {
		return &exitError{codeOurFailure, j.environment.Explain(exitErr)}
	}
	if err != nil {
		j.leave("the command has ended, but something that it started still holds the output of")
	}
	code, note := exitCode(exit)
	if note != "" {
		j.quiet()
		say("%s", note)
	}
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}

// outputFailed ends the process, since nobody takes its output any more.
func (j *joined) outputFailed(err *outputError) error {
	if !j.watch {
		j.stage.discard = true
		ctx, cancel := context.WithTimeout(context.Background(), endTreeWithin+giveUpAfter)
		defer cancel()
		j.environment.Terminate(ctx, j.id, endTreeWithin) //nolint:errcheck // the session ends, and its processes with it
	}
	if isBrokenPipe(err.err) {
		return &exitError{code: codeBrokenPipe}
	}
	return &exitError{codeOurFailure, err}
}

// copyOutput writes the output out, chunk by chunk as it comes.
func (j *joined) copyOutput(ctx context.Context) {
	defer j.console.guard()
	defer close(j.silent)
	j.output <- j.writeOutput(ctx)
}

func (j *joined) writeOutput(ctx context.Context) error {
	var filter replayFilter
	stdout, stderr := polled(os.Stdout, os.O_WRONLY), polled(os.Stderr, os.O_WRONLY)
	replaying := j.replayed > 0 && j.terminal
	for chunk, err := range j.process.Output(ctx) {
		switch {
		case err != nil:
			return err
		case chunk.Lost > 0:
			j.tell("lost %d bytes at offset %d", chunk.Lost, chunk.Offset)
			j.linger.delivered(chunk.Offset + chunk.Lost)
			continue
		}
		file, data := stdout, chunk.Data
		switch chunk.Channel {
		case env.Stderr:
			file = stderr
		case env.Terminal:
			if replaying = replaying && chunk.Offset < j.replayed; replaying {
				data = filter.pass(data)
				if chunk.Offset+int64(len(chunk.Data)) >= j.replayed {
					replaying = false
					data = append(data, filter.end()...)
				}
			}
			j.modes.follow(data)
		}
		if _, err := file.Write(data); err != nil {
			return &outputError{file, err}
		}
		if len(data) > 0 {
			j.inLine.Store(data[len(data)-1] != '\n')
		}
		j.linger.delivered(chunk.Offset + int64(len(chunk.Data)))
	}
	return nil
}

// awaitExit tells linger that the command has ended.
func (j *joined) awaitExit(ctx context.Context) {
	select {
	case <-j.process.Exited():
		if exit, err := j.process.Exit(); err == nil {
			j.linger.exit(exit.Offset)
		}
	case <-ctx.Done():
	}
}

func (j *joined) forwardSignals(ctx context.Context) {
	for {
		select {
		case s := <-j.forward:
			err := j.process.Signal(ctx, s)
			if err != nil && ctx.Err() == nil && !errors.Is(err, env.ErrUnknownProcess) {
				j.tell("forward SIG%s: %v", s, err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// copyInput sends what comes on standard input. What is typed waits in a queue, so that an escape is seen even
// while the process or the network takes nothing.
func (j *joined) copyInput(ctx context.Context, typed bool) {
	defer j.console.guard()
	write := func(p []byte) error {
		_, err := j.process.Write(ctx, p)
		return err
	}
	var queue chan []byte
	if typed && j.escapes {
		queue = make(chan []byte, 256)
		go func() {
			for p := range queue {
				if p == nil {
					j.process.CloseStdin(ctx) //nolint:errcheck // it reads no more, or the output tells
				} else if j.input && write(p) != nil {
					break
				}
			}
			for range queue { // nobody takes it any more
			}
		}()
		defer close(queue)
	}
	var found escapes
	buffer := make([]byte, inputBuffer)
	stdin := polled(os.Stdin, os.O_RDONLY)
	for {
		if typed && j.console == nil {
			awaitTurn(ctx)
		}
		n, err := stdin.Read(buffer)
		switch {
		case n == 0:
		case queue != nil:
			j.typed(&found, append([]byte(nil), buffer[:n]...), queue)
		case write(buffer[:n]) != nil:
			return // it reads no more, or the output tells
		}
		if err == nil {
			continue
		}
		switch {
		case j.hangUp && j.console != nil:
			j.hungUp <- struct{}{}
		case !j.input:
		case queue != nil:
			queue <- nil
		default:
			j.process.CloseStdin(ctx) //nolint:errcheck // it reads no more, or the output tells
		}
		if err != io.EOF && !typed {
			j.tell("read standard input: %v", err)
		}
		return
	}
}

// typed acts on what a person typed.
func (j *joined) typed(found *escapes, p []byte, queue chan<- []byte) {
	for len(p) > 0 {
		if j.watch && j.console != nil && (p[0] == 3 || p[0] == 4) { // Ctrl-C, Ctrl-D
			j.detach()
			return
		}
		out, what, rest := found.feed(p)
		if len(out) > 0 {
			queue <- out
		}
		switch what {
		case detachEscape:
			j.detach()
			return
		case helpEscape:
			j.tell("%s", escapeHelp)
		}
		p = rest
	}
}

func (j *joined) detach() {
	select {
	case j.detached <- struct{}{}:
	default:
	}
}

const repaintPause = 100 * time.Millisecond // or a program takes two changes of size for none

// followSize keeps the process's terminal as large as ours, and has it drawn again where that is needed.
func (j *joined) followSize(ctx context.Context) {
	if j.watch {
		return
	}
	resize := func(size env.Size) {
		j.process.Resize(ctx, size) //nolint:errcheck // one that has ended needs none
	}
	if j.repaint {
		other := terminalSize()
		if other.Rows > 1 {
			other.Rows--
		} else {
			other.Rows++
		}
		resize(other)
		select {
		case <-time.After(repaintPause):
		case <-ctx.Done():
			return
		}
		resize(terminalSize())
	}
	watchConsole(ctx, func() { resize(terminalSize()) }, j.console.again)
}
