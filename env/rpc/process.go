package rpc

import (
	"context"
	"errors"
	"strings"
	"time"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

// startParams are an env.Command on the wire.
type startParams struct {
	ID        wire.Text    `json:"id"`
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

	ExplicitAck bool `json:"explicitAck,omitempty"`
}

func newStartParams(command env.Command) startParams {
	params := startParams{
		ID:       wire.Text(command.ID),
		Argv:     wire.Texts(command.Argv),
		Arg0:     wire.Text(command.Arg0),
		Env:      wire.Texts(command.Env),
		CleanEnv: command.CleanEnv,
		Stdin:    command.Stdin,
		Terminal: command.Terminal,
		Delivery: command.Delivery,
		From:     command.From,

		ExplicitAck: command.ExplicitAck,
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
		ID:          string(p.ID),
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
	ID          wire.Text `json:"id"`
	From        int64     `json:"from,omitempty"`
	Watch       bool      `json:"watch,omitempty"`
	Take        bool      `json:"take,omitempty"`
	ExplicitAck bool      `json:"explicitAck,omitempty"`
}

// attached is the HEAD of the answer to start and attach.
type attached struct {
	Pid   int       `json:"pid"`
	Owner bool      `json:"owner,omitempty"`
	Input inputKind `json:"input,omitempty"`
	Stdin int64     `json:"stdin,omitempty"` // bytes that standard input has taken: the client goes on from there
	Ends  int64     `json:"ends,omitempty"`  // end-of-files that it has taken
}

// inputKind is what a process reads from; empty: nothing, or it is no longer known since the process has ended.
type inputKind string

const (
	inputPipe     inputKind = "pipe"
	inputTerminal inputKind = "terminal"
)

// control is a CONTROL message of an attachment: one of its fields is set.
type control struct {
	// From the server.
	Exit        *env.Exit   `json:"exit,omitempty"`
	Lost        *lost       `json:"lost,omitempty"`
	StdinTaken  *inputTaken `json:"stdinTaken,omitempty"`  // answers stdinEof
	StdinClosed *int64      `json:"stdinClosed,omitempty"` // the process reads no more; bytes that it has taken
	// From the client.
	StdinEOF *none     `json:"stdinEof,omitempty"`
	Resize   *env.Size `json:"resize,omitempty"`
	Acked    *int64    `json:"acked,omitempty"` // the output offset up to which all is taken, with explicitAck
}

// lost says that bytes are missing before the next DATA, or with none that it lies at another offset.
type lost struct {
	Offset int64 `json:"offset"`
	Bytes  int64 `json:"bytes"`
}

// inputTaken is how much standard input has taken.
type inputTaken struct {
	Bytes int64 `json:"bytes"`
	Ends  int64 `json:"ends"`
}

// ended is the result in the END of an attachment whose output has closed.
type ended struct {
	Exit  env.Exit `json:"exit"`
	Stdin int64    `json:"stdin,omitempty"` // bytes that standard input has taken
}

// listed is an env.ProcessInfo on the wire, where every byte survives.
type listed struct {
	ID   wire.Text   `json:"id"` // SESSION/ID
	Argv []wire.Text `json:"argv"`
	env.ProcessInfo
}

// Processes implements [env.Runner]. It lists those of every session: the ids of others are SESSION/ID.
func (c *Client) Processes(ctx context.Context) ([]env.ProcessInfo, error) {
	list, err := callList[listed](ctx, c, wire.Request{Method: methodProcessList})
	if err != nil {
		return nil, err
	}
	processes := make([]env.ProcessInfo, len(list))
	for i, item := range list {
		processes[i] = item.ProcessInfo
		processes[i].ID = strings.TrimPrefix(string(item.ID), c.session+"/")
		processes[i].Argv = wire.Strings(item.Argv)
	}
	return processes, nil
}

func serveProcessList(ctx context.Context, s *session, call *wire.Call) error {
	processes, err := s.processes(ctx)
	if err != nil {
		return err
	}
	list := make([]listed, len(processes))
	for i, p := range processes {
		list[i] = listed{wire.Text(p.ID), wire.Texts(p.Argv), p}
	}
	lines := lineSender{call: call}
	for _, item := range list {
		if err := lines.add(ctx, item); err != nil {
			return err
		}
	}
	return lines.flush(ctx)
}

// processes lists those of every session.
func (s *session) processes(ctx context.Context) ([]env.ProcessInfo, error) {
	processes, err := s.server.env.Processes(ctx)
	for i := range processes {
		processes[i].LeaseLeft = s.server.leaseLeft(processes[i].ID)
	}
	return processes, err
}

type signalParams struct {
	ID     wire.Text  `json:"id"`
	Signal env.Signal `json:"signal"`
}

// Signal implements [env.Runner].
func (c *Client) Signal(ctx context.Context, id string, sig env.Signal) error {
	_, err := callOnce[none](ctx, c, wire.Request{Method: methodProcessSignal, Params: signalParams{wire.Text(id), sig}})
	return err
}

func serveSignal(ctx context.Context, s *session, params signalParams) (none, error) {
	return find(s, string(params.ID), func(id string) (none, error) {
		return none{}, s.server.env.Signal(ctx, id, params.Signal)
	})
}

type terminateParams struct {
	ID    wire.Text `json:"id"`
	Grace int64     `json:"grace"` // milliseconds
}

// Terminate implements [env.Runner].
func (c *Client) Terminate(ctx context.Context, id string, grace time.Duration) error {
	const roundUp = time.Millisecond - 1 // no grace is another thing than little
	params := terminateParams{wire.Text(id), (grace + roundUp).Milliseconds()}
	_, err := call[none](ctx, c, wire.Request{Method: methodProcessTerminate, Params: params})
	return err
}

func serveTerminate(ctx context.Context, s *session, params terminateParams) (none, error) {
	return find(s, string(params.ID), func(id string) (none, error) {
		return none{}, s.server.env.Terminate(ctx, id, time.Duration(params.Grace)*time.Millisecond)
	})
}

// find does to the process that a client means by id: one of its own session, else SESSION/ID.
func find[R any](s *session, id string, do func(id string) (R, error)) (R, error) {
	result, err := do(s.qualify(id))
	if errors.Is(err, env.ErrUnknownProcess) && strings.Contains(id, "/") {
		return do(id)
	}
	return result, err
}
