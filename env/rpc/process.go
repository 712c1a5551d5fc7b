package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

// startParams are an env.Command on the wire.
type startParams struct {
	ID        string       `json:"id"`
	Argv      []wire.Text  `json:"argv"`
	Arg0      wire.Text    `json:"arg0,omitempty"`
	Directory *pathuri.URI `json:"directory,omitempty"`
	Env       []wire.Text  `json:"env,omitempty"`
	CleanEnv  bool         `json:"cleanEnv,omitempty"`
	Stdin     bool         `json:"stdin,omitempty"`
	Terminal  *env.Size    `json:"terminal,omitempty"`
	Delivery  env.Delivery `json:"delivery,omitempty"`
	From      int64        `json:"from,omitempty"`
	Limits    *env.Limits  `json:"limits,omitempty"`
}

func newStartParams(command env.Command) startParams {
	params := startParams{
		ID:       command.ID,
		Argv:     wire.Texts(command.Argv),
		Arg0:     wire.Text(command.Arg0),
		Env:      wire.Texts(command.Env),
		CleanEnv: command.CleanEnv,
		Stdin:    command.Stdin,
		Terminal: command.Terminal,
		Delivery: command.Delivery,
		From:     command.From,
	}
	if !command.Directory.IsZero() {
		params.Directory = &command.Directory
	}
	if command.Limits != (env.Limits{}) {
		params.Limits = &command.Limits
	}
	return params
}

func (p startParams) command() env.Command {
	command := env.Command{
		ID:          p.ID,
		Argv:        wire.Strings(p.Argv),
		Arg0:        string(p.Arg0),
		Env:         wire.Strings(p.Env),
		CleanEnv:    p.CleanEnv,
		Stdin:       p.Stdin,
		Terminal:    p.Terminal,
		Delivery:    p.Delivery,
		From:        p.From,
		ExplicitAck: true,
	}
	if p.Directory != nil {
		command.Directory = *p.Directory
	}
	if p.Limits != nil {
		command.Limits = *p.Limits
	}
	return command
}

type attachParams struct {
	ID    string `json:"id"`
	From  int64  `json:"from,omitempty"`
	Watch bool   `json:"watch,omitempty"`
	Take  bool   `json:"take,omitempty"`
}

// attached is the HEAD of the answer to start and attach.
type attached struct {
	ID    string `json:"id"`
	Pid   int    `json:"pid"`
	Owner bool   `json:"owner,omitempty"`
	Stdin int64  `json:"stdin,omitempty"` // bytes that standard input has taken: the client goes on from there
}

// control is a CONTROL message of an attachment: one of its fields is set.
type control struct {
	// From the server.
	Exit        *env.Exit `json:"exit,omitempty"`
	Lost        *lost     `json:"lost,omitempty"`
	StdinClosed *none     `json:"stdinClosed,omitempty"` // the process reads no more
	StdinTaken  *int64    `json:"stdinTaken,omitempty"`  // bytes that standard input has taken, once all sent were
	// From the client.
	StdinEOF *none     `json:"stdinEof,omitempty"`
	Resize   *env.Size `json:"resize,omitempty"`
}

// lost says that bytes are missing before the next DATA.
type lost struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// ended is the result in the END of an attachment whose output has closed.
type ended struct {
	Exit env.Exit `json:"exit"`
}

func serveStart(ctx context.Context, s *session, call *wire.Call) error {
	var params startParams
	if err := call.Params(&params); err != nil {
		return err
	}
	if params.ID == "" {
		return fmt.Errorf("%w: a process needs an id", wire.Invalid)
	}
	command := params.command()
	command.ID = s.qualify(command.ID)
	if err := s.place(&command); err != nil {
		return err
	}
	// Held before it runs, so that at no moment nobody would end it.
	undo, err := s.hold(command.ID)
	if err != nil {
		return err
	}
	p, err := s.server.env.Start(ctx, command)
	if err != nil {
		undo()
		return err
	}
	defer p.Close()
	return relay(ctx, call, p, params.From)
}

// place starts a command where the session came from, as far as it does not say itself.
func (s *session) place(command *env.Command) error {
	if s.origin.Environ != nil && !command.CleanEnv {
		command.Env = slices.Concat(s.origin.Environ, command.Env)
		command.CleanEnv = true
	}
	if s.origin.Directory != "" && command.Directory.IsZero() {
		directory, err := pathuri.FromNative(s.origin.Directory, s.server.paths)
		if err != nil {
			return err
		}
		command.Directory = directory
	}
	return nil
}

func serveAttach(ctx context.Context, s *session, call *wire.Call) error {
	var params attachParams
	if err := call.Params(&params); err != nil {
		return err
	}
	p, err := s.server.env.Attach(ctx, s.qualify(params.ID), env.Attach{
		From: params.From, Watch: params.Watch, Take: params.Take, ExplicitAck: true,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	if p.Owner() {
		if _, err := s.hold(p.ID()); err != nil {
			return err
		}
	}
	return relay(ctx, call, p, params.From)
}

// relay joins a call to an attachment until the output has closed, the client has ended the call, or another
// owner took over.
func relay(ctx context.Context, call *wire.Call, p env.Process, from int64) error {
	if err := call.Reply(attached{ID: p.ID(), Pid: p.Pid(), Owner: p.Owner(), Stdin: p.StdinOffset()}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()

	output := &outputRelay{call: call, process: p, done: make(chan error, 1), runs: []run{{0, max(from, 0)}}}
	tasks.Go(func() { output.done <- output.run(ctx, from) })
	input := &inputRelay{call: call, process: p, wake: make(chan struct{}, 1)}

	exited := p.Exited()
	for {
		event, ok, err := call.TryReceive()
		if errors.Is(err, io.EOF) {
			return nil // the client has detached
		}
		if err != nil {
			return err
		}
		if ok && event.Kind == wire.AckEvent {
			p.Ack(output.acked())
			continue
		}
		if ok {
			if detached, err := handle(ctx, event, p, input, &tasks); detached || err != nil {
				return err
			}
			continue
		}
		select {
		case <-call.Readable():
		case <-exited:
			exited = nil
			if exit, err := p.Exit(); err == nil {
				if err := call.Control(control{Exit: &exit}); err != nil {
					return err
				}
			}
		case err := <-output.done:
			if err != nil {
				return err
			}
			select {
			case <-p.Exited():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			exit, err := p.Exit()
			if err != nil {
				return err
			}
			return call.End(ended{exit})
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handle acts on one event of the client.
func handle(ctx context.Context, event wire.Event, p env.Process, input *inputRelay, tasks *sync.WaitGroup) (detached bool, err error) {
	switch event.Kind {
	case wire.EndEvent:
		return true, nil
	case wire.DataEvent:
		input.add(ctx, event, tasks)
	case wire.ControlEvent:
		var c control
		if err := json.Unmarshal(event.Data, &c); err != nil {
			return false, fmt.Errorf("%w: control %q", wire.Invalid, event.Data)
		}
		switch {
		case c.StdinEOF != nil:
			input.add(ctx, wire.Event{Kind: wire.ControlEvent}, tasks)
		case c.Resize != nil:
			p.Resize(ctx, *c.Resize) //nolint:errcheck // the client has checked it; a process that has ended is no fault
		}
	}
	return false, nil
}

// outputRelay sends the output of a process.
type outputRelay struct {
	call    *wire.Call
	process env.Process
	done    chan error // gets the outcome of run

	mu   sync.Mutex
	runs []run // where sent bytes lie in the output: grows only where bytes were lost
}

// run says that the bytes sent from at on lie in the output from offset on.
type run struct {
	at, offset int64
}

// run sends until the output has closed. The client counts from the offset it asked for: only where that does
// not hold is it told.
func (o *outputRelay) run(ctx context.Context, next int64) error {
	var sent int64
	skip := func(offset, bytes int64) error {
		next = offset + bytes
		o.mu.Lock()
		o.runs = append(o.runs, run{sent, next})
		o.mu.Unlock()
		return o.call.Control(control{Lost: &lost{offset, bytes}})
	}
	for chunk, err := range o.process.Output(ctx) {
		if err != nil {
			return err
		}
		if chunk.Lost > 0 {
			if err := skip(chunk.Offset, chunk.Lost); err != nil {
				return err
			}
			continue
		}
		if chunk.Offset != next {
			if err := skip(chunk.Offset, 0); err != nil {
				return err
			}
		}
		if chunk.Framed != nil {
			err = o.call.SendFramed(ctx, chunk.Framed)
		} else {
			err = o.call.Send(ctx, wire.Channel(chunk.Channel), chunk.Data)
		}
		if err != nil {
			return err
		}
		sent += int64(len(chunk.Data))
		next += int64(len(chunk.Data))
	}
	return nil
}

// acked returns the offset below which the client's code has taken the output.
func (o *outputRelay) acked() int64 {
	taken := o.call.Taken()
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.runs) > 1 && o.runs[1].at <= taken {
		o.runs = o.runs[1:]
	}
	return o.runs[0].offset + taken - o.runs[0].at
}

// inputRelay feeds standard input. Its queue is bounded by the credit of the call.
type inputRelay struct {
	call    *wire.Call
	process env.Process
	wake    chan struct{}

	mu      sync.Mutex
	queue   []wire.Event
	started bool
}

func (i *inputRelay) add(ctx context.Context, event wire.Event, tasks *sync.WaitGroup) {
	i.mu.Lock()
	i.queue = append(i.queue, event)
	start := !i.started
	i.started = true
	i.mu.Unlock()
	if start {
		tasks.Go(func() { i.run(ctx) })
	}
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

func (i *inputRelay) run(ctx context.Context) {
	for {
		i.mu.Lock()
		queue := i.queue
		i.queue = nil
		i.mu.Unlock()
		for _, event := range queue {
			if !i.feed(ctx, event) {
				return
			}
		}
		if len(queue) > 0 {
			i.call.Flush()
			continue
		}
		select {
		case <-i.wake:
		case <-ctx.Done():
			return
		}
	}
}

// feed writes one piece; it reports whether standard input goes on.
func (i *inputRelay) feed(ctx context.Context, event wire.Event) bool {
	var err error
	if event.Kind == wire.DataEvent {
		_, err = i.process.Write(ctx, event.Data)
		if err == nil {
			i.call.Took(event)
			return true
		}
	} else {
		i.call.Flush()
		if err = i.process.CloseStdin(ctx); err == nil {
			taken := i.process.StdinOffset()
			i.call.Control(control{StdinTaken: &taken}) //nolint:errcheck // a cut is noticed by the receiver
			return true
		}
	}
	if ctx.Err() == nil {
		i.call.Control(control{StdinClosed: &none{}}) //nolint:errcheck // a cut is noticed by the receiver
	}
	return false
}

// Processes implements [env.Runner]. It lists those of every session, their ids as SESSION/ID.
func (c *Client) Processes(ctx context.Context) ([]env.ProcessInfo, error) {
	return callList[env.ProcessInfo](ctx, c, wire.Request{Method: methodProcessList})
}

func serveProcessList(ctx context.Context, s *session, call *wire.Call) error {
	processes, err := s.server.env.Processes(ctx)
	if err != nil {
		return err
	}
	for i := range processes {
		processes[i].LeaseLeft = s.server.leaseLeft(processes[i].ID)
	}
	return sendList(ctx, call, processes)
}

type signalParams struct {
	ID     string     `json:"id"`
	Signal env.Signal `json:"signal"`
}

// Signal implements [env.Runner].
func (c *Client) Signal(ctx context.Context, id string, sig env.Signal) error {
	_, err := callOnce[none](ctx, c, wire.Request{Method: methodProcessSignal, Params: signalParams{id, sig}})
	return err
}

func serveSignal(ctx context.Context, s *session, params signalParams) (none, error) {
	return none{}, s.server.env.Signal(ctx, s.qualify(params.ID), params.Signal)
}

type terminateParams struct {
	ID    string `json:"id"`
	Grace int64  `json:"grace"` // milliseconds
}

// Terminate implements [env.Runner].
func (c *Client) Terminate(ctx context.Context, id string, grace time.Duration) error {
	_, err := call[none](ctx, c, wire.Request{Method: methodProcessTerminate, Params: terminateParams{id, grace.Milliseconds()}})
	return err
}

func serveTerminate(ctx context.Context, s *session, params terminateParams) (none, error) {
	return none{}, s.server.env.Terminate(ctx, s.qualify(params.ID), time.Duration(params.Grace)*time.Millisecond)
}
