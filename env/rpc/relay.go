package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

func serveStart(ctx context.Context, s *session, call *wire.Call) error {
	var params startParams
	if err := call.Params(&params); err != nil {
		return err
	}
	if params.ID == "" {
		return fmt.Errorf("%w: a process needs an id", wire.Invalid)
	}
	p, err := s.start(ctx, params.command())
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // there is nothing to be done about it
	return relay(ctx, s, call, p, params.From, params.ExplicitAck)
}

// start starts a process of the session, under its lease.
func (s *session) start(ctx context.Context, command env.Command) (env.Process, error) {
	command.ID = s.qualify(command.ID)
	if err := s.place(&command); err != nil {
		return nil, err
	}
	// Held before it runs, so that at no moment nobody would end it.
	undo, err := s.hold(command.ID)
	if err != nil {
		return nil, err
	}
	p, err := s.server.env.Start(ctx, command)
	if err != nil {
		undo()
		return nil, err
	}
	var input inputKind
	switch {
	case command.Terminal != nil:
		input = inputTerminal
	case command.Stdin:
		input = inputPipe
	}
	if err := s.started(p, input); err != nil {
		p.Close() //nolint:errcheck // there is nothing to be done about it
		return nil, err
	}
	return p, nil
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
	p, err := s.attach(ctx, string(params.ID), env.Attach{From: params.From, Watch: params.Watch, Take: params.Take, ExplicitAck: true})
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // there is nothing to be done about it
	return relay(ctx, s, call, p, params.From, params.ExplicitAck)
}

// attach attaches to a process; one that it becomes the owner of lives under the session's lease from now on.
func (s *session) attach(ctx context.Context, id string, how env.Attach) (env.Process, error) {
	p, err := find(s, id, func(id string) (env.Process, error) {
		return s.server.env.Attach(ctx, id, how)
	})
	if err != nil {
		return nil, err
	}
	if p.Owner() {
		if _, err := s.hold(p.ID()); err != nil {
			p.Close() //nolint:errcheck // there is nothing to be done about it
			return nil, err
		}
	}
	return p, nil
}

// relay joins a call to an attachment until the output has closed, the client has ended the call, or another
// owner took over. With explicit the client says in CONTROL messages what it acknowledges.
func relay(ctx context.Context, s *session, call *wire.Call, p env.Process, from int64, explicit bool) error {
	s.server.relaying(+1)
	defer s.server.relaying(-1)
	kind, ends := s.server.inputOf(p.ID())
	if err := call.Reply(attached{Pid: p.Pid(), Owner: p.Owner(), Input: kind, Stdin: p.StdinOffset(), Ends: ends}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()

	output := &outputRelay{call: call, process: p, runs: []run{{0, max(from, 0)}}}
	outputDone := make(chan error, 1)
	tasks.Go(func() { outputDone <- output.run(ctx, from) })
	input := &inputRelay{call: call, process: p, server: s.server, wake: make(chan struct{}, 1), failed: make(chan error, 1)}

	exited := p.Exited()
	for {
		event, ok, err := call.TryReceive()
		switch {
		case errors.Is(err, io.EOF):
			return nil // the client has detached
		case err != nil:
			return err
		case !ok:
		case event.Kind == wire.EndEvent:
			return nil
		case event.Kind == wire.AckEvent:
			if !explicit {
				p.Ack(output.acked())
			}
			continue
		case event.Kind == wire.DataEvent:
			input.add(ctx, event, &tasks)
			continue
		default:
			var c control
			if err := json.Unmarshal(event.Data, &c); err != nil {
				return fmt.Errorf("%w: control %q", wire.Invalid, event.Data)
			}
			switch {
			case c.StdinEOF != nil:
				input.add(ctx, event, &tasks)
			case c.Resize != nil:
				p.Resize(ctx, *c.Resize) //nolint:errcheck // the client has checked it; a process that has ended is no fault
			case c.Acked != nil && explicit:
				p.Ack(*c.Acked)
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
		case err := <-input.failed:
			return err
		case err := <-outputDone:
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
			s.server.release(p.ID())
			return call.End(ended{exit, p.StdinOffset()})
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// outputRelay sends the output of a process.
type outputRelay struct {
	call    *wire.Call
	process env.Process

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
	server  *Server
	wake    chan struct{} // holds a token when there may be more in queue
	failed  chan error    // gets what the attachment has to end for

	mu      sync.Mutex
	queue   []wire.Event // DATA, and CONTROL for an end-of-file
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
	wake(i.wake)
}

func (i *inputRelay) run(ctx context.Context) {
	for {
		i.mu.Lock()
		queue := i.queue
		i.queue = nil
		i.mu.Unlock()
		for _, event := range queue {
			err := i.feed(ctx, event)
			switch {
			case err == nil:
			case ctx.Err() != nil:
				return
			case errors.Is(err, env.ErrStdinClosed):
				taken := i.process.StdinOffset()
				i.call.Control(control{StdinClosed: &taken}) //nolint:errcheck // a cut is noticed by the receiver
				return
			default: // fenced
				i.failed <- err
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

// feed writes one piece.
func (i *inputRelay) feed(ctx context.Context, event wire.Event) error {
	if event.Kind == wire.DataEvent {
		_, err := i.process.Write(ctx, event.Data)
		if err == nil {
			i.call.Took(event)
		}
		return err
	}
	if err := i.process.CloseStdin(ctx); err != nil {
		return err
	}
	taken := inputTaken{i.process.StdinOffset(), i.server.inputEnded(i.process.ID())}
	i.call.Control(control{StdinTaken: &taken}) //nolint:errcheck // a cut is noticed by the receiver
	return nil
}
