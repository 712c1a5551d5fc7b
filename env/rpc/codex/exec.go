package codex

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"waldo/env"
	"waldo/wire/jsonrpc"
)

type startParams struct {
	ProcessID             string            `json:"processId"`
	Argv                  []string          `json:"argv"`
	Cwd                   pathURI           `json:"cwd"`
	Env                   map[string]string `json:"env"`
	TTY                   bool              `json:"tty"`
	PipeStdin             bool              `json:"pipeStdin,omitempty"`
	Arg0                  *string           `json:"arg0"`
	EnvPolicy             *envPolicy        `json:"envPolicy"`
	Metadata              *startMetadata    `json:"metadata"`
	ShellSnapshot         *shellSnapshot    `json:"shellSnapshot"`
	Sandbox               *sandboxContext   `json:"sandbox"`
	EnforceManagedNetwork bool              `json:"enforceManagedNetwork,omitempty"`
	ManagedNetwork        *managedNetwork   `json:"managedNetwork"`
	NetworkProxy          json.RawMessage   `json:"networkProxy,omitempty"`
}

type startMetadata struct {
	ThreadID   *string `json:"threadId"`
	ToolCallID *string `json:"toolCallId"`
}

type managedNetwork struct {
	LoopbackPorts     *[]uint16 `json:"loopbackPorts"`
	AllowLocalBinding *bool     `json:"allowLocalBinding"`
}

// shellSnapshot asks for a shell that begins with the user's settings. It is not offered, so that the shell reads them
// itself; what is wrong with it is told all the same.
type shellSnapshot struct {
	ScopeID string `json:"scopeId"`
	Shell   struct {
		Name string `json:"name"`
		Path string `json:"path"`
	} `json:"shell"`
}

func (p *startParams) check() error {
	if len(p.Argv) == 0 {
		return invalidParams("argv must not be empty")
	}
	if p.EnvPolicy != nil {
		if err := oneOf("inherit", p.EnvPolicy.Inherit, "core", "all", "none"); err != nil {
			return err
		}
	}
	if p.Metadata != nil && p.Metadata.ThreadID != nil {
		if _, err := uuid.Parse(*p.Metadata.ThreadID); err != nil {
			return invalidParams("metadata: threadId: %v", err)
		}
	}
	if snapshot := p.ShellSnapshot; snapshot != nil {
		switch fits := len(p.Argv) >= 3 && p.Argv[0] == snapshot.Shell.Path && p.Argv[1] == "-lc"; {
		case snapshot.ScopeID == "" || len(snapshot.ScopeID) > 256:
			return invalidParams("shell snapshot scope must be non-empty and at most 256 bytes")
		case fits && snapshot.Shell.Name != "bash" && snapshot.Shell.Name != "zsh" && snapshot.Shell.Name != "sh":
			return invalidParams("shell snapshots are unsupported for shell `%s`", snapshot.Shell.Name)
		}
	}
	if len(p.NetworkProxy) > 0 && string(p.NetworkProxy) != "null" {
		return invalidParams("invalid network proxy config: this exec-server has no network proxy")
	}
	return nil
}

type startResult struct {
	ProcessID   string `json:"processId"`
	SandboxType string `json:"sandboxType"`
}

// prepareStart takes the id in the order of the calls, so that what comes behind is about this process.
func prepareStart(c *connection, params *startParams) (call, error) {
	if err := params.check(); err != nil {
		return call{}, err
	}
	if err := c.door.local(params.Cwd); err != nil {
		return call{}, invalidParams("cwd URI `%s` is not valid on this exec-server host: '%s' is invalid on '%s'", params.Cwd.URI, params.Cwd.URI, c.door.platform())
	}
	if err := params.Sandbox.forProcess(); err != nil {
		return call{}, err
	}
	s := c.session
	p, err := s.reserve(params)
	if err != nil {
		return call{}, err
	}
	var a env.Process
	return call{
		do: func(ctx context.Context) (any, error) {
			a, err = p.start(ctx, c.door.command(s, params))
			if err != nil {
				return nil, err
			}
			return startResult{p.id, "none"}, nil
		},
		then: func(ctx context.Context) {
			if a != nil {
				p.follow(ctx, c, a)
			}
		},
		undone: p.refused,
	}, nil
}

// command is what the environment is to start.
func (d *Door) command(s *session, params *startParams) env.Command {
	command := env.Command{
		Argv:        params.Argv,
		Directory:   params.Cwd.URI,
		Env:         d.environment(s.origin, params.EnvPolicy, params.Env),
		CleanEnv:    true,
		Stdin:       params.PipeStdin,
		ExplicitAck: true,
	}
	if params.Arg0 != nil {
		command.Arg0 = *params.Arg0
	}
	if params.TTY {
		size := terminalSize
		command.Terminal = &size
	}
	return command
}

type readParams struct {
	ProcessID string  `json:"processId"`
	AfterSeq  *uint64 `json:"afterSeq"`
	MaxBytes  *uint64 `json:"maxBytes"`
	WaitMS    *uint64 `json:"waitMs"`
}

// readProcess answers with what has happened since the client last heard, and waits for that a while if it is to.
func readProcess(ctx context.Context, c *connection, params *readParams) (any, error) {
	p := c.session.find(params.ProcessID)
	if p != nil {
		if started, err := p.await(ctx); err != nil {
			return nil, err
		} else if !started {
			p = nil
		}
	}
	if p == nil {
		return nil, invalidRequest("unknown process id %s", params.ProcessID)
	}
	var deadline <-chan time.Time
	if params.WaitMS != nil && *params.WaitMS > 0 {
		timer := time.NewTimer(time.Duration(min(*params.WaitMS, uint64(1<<62/time.Millisecond))) * time.Millisecond)
		defer timer.Stop()
		deadline = timer.C
	}
	s := p.session
	for over := deadline == nil; ; {
		s.mu.Lock()
		s.asked(p)
		result := p.since(params.AfterSeq, params.MaxBytes)
		enough := len(result.chunks) > 0 || p.closed || p.exited && result.after+1 < p.next
		news := p.news()
		s.mu.Unlock()
		if over || enough {
			return result, nil
		}
		select {
		case <-news:
		case <-deadline:
			over = true
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// readResult is the answer of process/read.
type readResult struct {
	after   uint64
	chunks  []*event
	nextSeq uint64
	exited  bool
	code    int64
	closed  bool
	failure string
}

// since is what has happened after a number. session.mu is held.
func (p *process) since(after, limit *uint64) readResult {
	result := readResult{nextSeq: p.next, exited: p.exited, code: p.code, closed: p.closed, failure: p.failure}
	if after != nil {
		result.after = *after
	}
	left := uint64(1<<64 - 1)
	if limit != nil {
		left = *limit
	}
	for _, e := range p.events {
		if e.seq <= result.after {
			continue
		}
		if size := uint64(len(e.data)); size > left && len(result.chunks) > 0 {
			break
		} else {
			left -= min(left, size)
		}
		result.chunks = append(result.chunks, e)
	}
	if limit != nil && len(result.chunks) > 0 {
		result.nextSeq = result.chunks[len(result.chunks)-1].seq + 1
	}
	return result
}

// AppendJSON implements [jsonrpc.Appender].
func (r readResult) AppendJSON(b []byte) []byte {
	b = append(b, `{"chunks":[`...)
	for i, e := range r.chunks {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(e.appendFields(append(b, '{')), '}')
	}
	b = strconv.AppendUint(append(b, `],"nextSeq":`...), r.nextSeq, 10)
	b = strconv.AppendBool(append(b, `,"exited":`...), r.exited)
	if r.exited {
		b = strconv.AppendInt(append(b, `,"exitCode":`...), r.code, 10)
	} else {
		b = append(b, `,"exitCode":null`...)
	}
	b = strconv.AppendBool(append(b, `,"closed":`...), r.closed)
	if r.failure != "" {
		b = jsonrpc.AppendString(append(b, `,"failure":`...), r.failure)
	} else {
		b = append(b, `,"failure":null`...)
	}
	return append(b, `,"sandboxDenied":false}`...)
}

type writeParams struct {
	ProcessID string `json:"processId"`
	Chunk     []byte `json:"chunk"`
	WriteID   string `json:"writeId"`
}

type writeResult struct {
	Status string `json:"status"`
}

// prepareWrite queues the input in the order of the calls.
func prepareWrite(c *connection, params *writeParams) (call, error) {
	if params.WriteID == "" {
		return call{}, invalidParams("writeId must not be empty")
	}
	p := c.session.find(params.ProcessID)
	var mark int64
	if p != nil {
		var err error
		if mark, err = p.put(params.WriteID, params.Chunk); err != nil {
			return call{}, err
		}
	}
	return call{do: func(ctx context.Context) (any, error) {
		if p != nil {
			started, err := p.await(ctx)
			if err != nil {
				return nil, err
			}
			if started {
				status, err := p.accepted(ctx, mark)
				return writeResult{status}, err
			}
		}
		return writeResult{"unknownProcess"}, nil
	}}, nil
}

type signalParams struct {
	ProcessID string `json:"processId"`
	Signal    string `json:"signal"`
}

func signalProcess(ctx context.Context, c *connection, params *signalParams) (any, error) {
	if err := oneOf("signal", params.Signal, "interrupt"); err != nil {
		return nil, err
	}
	p := c.session.find(params.ProcessID)
	if p == nil {
		return done{}, nil
	}
	if started, err := p.await(ctx); err != nil || !started {
		return done{}, err
	}
	err := p.session.env.Signal(ctx, p.name, "INT")
	if errors.Is(err, env.ErrUnknownProcess) {
		err = nil
	}
	return done{}, err
}

type terminateParams struct {
	ProcessID string `json:"processId"`
}

type terminateResult struct {
	Running bool `json:"running"`
}

// killedWithin is how long a killed process is waited for before the client is told that it runs no more.
const killedWithin = time.Second

func terminateProcess(ctx context.Context, c *connection, params *terminateParams) (any, error) {
	p := c.session.find(params.ProcessID)
	if p == nil {
		return terminateResult{}, nil
	}
	if started, err := p.await(ctx); err != nil || !started {
		return terminateResult{}, err
	}
	p.session.mu.Lock()
	running := p.exit == nil
	p.session.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, killedWithin)
	defer cancel()
	err := p.session.env.Terminate(limited, p.name, 0)
	if errors.Is(err, env.ErrUnknownProcess) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil
	}
	return terminateResult{running}, err
}

// about is the machine as a session sees it.
func (c *connection) about() environmentInfo {
	about := c.door.about
	if directory := c.options.Origin.Directory; directory != "" {
		if uri, err := c.door.info.Directory.Join(directory); err == nil {
			about.Cwd = &uri
		}
	}
	return about
}
