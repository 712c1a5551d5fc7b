package codex

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"syscall"
	"time"

	"waldo/env"
	"waldo/wire/jsonrpc"
)

const (
	retainBound = 1 << 20 // bytes of output that each process keeps at the least
	maxEvents   = 50_000  // and not more pieces than these
)

// terminalSize is what every terminal of Codex has.
var terminalSize = env.Size{Rows: 24, Columns: 80}

// process is one of a session's. Everything that changes is guarded by session.mu.
//
// Each thing that happens to it has a number, which is given when it is taken from the environment. It is told to the
// connection that is there then, and kept for those that come later and ask. While there is no connection nothing is
// taken, so that the environment keeps it.
type process struct {
	session  *session
	id       string // the client's
	name     string // the environment's
	terminal bool
	stdin    bool
	ready    chan struct{} // closed when it has started, or could not

	telling sync.Mutex // held while something is numbered and told, so that it is told in order

	started bool
	changed chan struct{} // see news
	next    uint64        // number of the next event
	offset  int64         // of the output that was taken
	events  []*event
	kept    int // bytes in events
	exit    *env.Exit
	exited  bool // was told
	closed  bool // was told
	code    int64
	exitSeq uint64
	failure string
	input   input

	retention *time.Timer
}

// reserve makes the process of this id.
func (s *session) reserve(params *startParams) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processes[params.ProcessID] != nil {
		return nil, invalidRequest("process %s already exists", params.ProcessID)
	}
	s.serial++
	p := &process{
		session: s, id: params.ProcessID, name: strconv.Itoa(s.serial), terminal: params.TTY, stdin: params.TTY || params.PipeStdin,
		ready: make(chan struct{}), next: 1,
	}
	s.processes[p.id] = p
	return p, nil
}

// find returns the process that a client means, nil if there is none.
func (s *session) find(id string) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[id]
}

// await waits until the process has started, and tells whether it has.
func (p *process) await(ctx context.Context) (bool, error) {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	return p.started, nil
}

// news is closed at the next change. session.mu is held.
func (p *process) news() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// tell wakes who waits for news. session.mu is held.
func (p *process) tell() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// drop frees the id. session.mu is held.
func (p *process) drop() {
	if p.session.processes[p.id] == p {
		delete(p.session.processes, p.id)
	}
	p.events, p.kept, p.input.pending = nil, 0, nil
	p.tell()
}

// trim lets go of the oldest output. session.mu is held.
func (p *process) trim() {
	for len(p.events) > 0 && p.events[0].old {
		first := p.events[0]
		if p.kept-len(first.data) < retainBound && len(p.events) <= maxEvents {
			return
		}
		p.events[0] = nil
		p.events = p.events[1:]
		p.kept -= len(first.data)
	}
}

// start starts it.
func (p *process) start(ctx context.Context, command env.Command) (env.Process, error) {
	command.ID = p.name
	a, err := p.session.env.Start(ctx, command)
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	defer close(p.ready)
	if err != nil {
		p.drop()
		return nil, startError(err)
	}
	p.started = true
	return a, nil
}

// refused frees the id of a process that nobody will start.
func (p *process) refused() {
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	p.drop()
	close(p.ready)
}

// startError says why a process did not start, with the kind that Codex has for it.
func startError(err error) error {
	kind := "spawnFailed"
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, env.ErrExpired):
		return err
	case errors.Is(err, fs.ErrNotExist):
		kind = "spawnNotFound"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		kind = "spawnPermissionDenied"
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: err.Error(), Data: []byte(`{"kind":"` + kind + `"}`)}
}

// resume attaches again, for another connection.
func (p *process) resume(ctx context.Context, c *connection) {
	p.session.mu.Lock()
	from := p.offset
	p.session.mu.Unlock()
	a, err := p.session.env.Attach(ctx, p.name, env.Attach{From: from, ExplicitAck: true})
	if err != nil {
		p.lost(ctx, c, err)
		return
	}
	p.follow(ctx, c, a)
}

// follow tells c what happens until that is over, or ctx is.
func (p *process) follow(ctx context.Context, c *connection, a env.Process) {
	err := p.relay(ctx, c, a)
	a.Close() //nolint:errcheck // there is nothing to be done about it
	switch {
	case err == nil || ctx.Err() != nil || errors.Is(err, errUntold): // the connection that comes next goes on
	case errors.Is(err, env.ErrFenced): // somebody else at this machine has it now: look on
		p.resume(ctx, c)
	default:
		p.lost(ctx, c, err)
	}
}

// lost ends a process of which nothing more is to be learned.
func (p *process) lost(ctx context.Context, c *connection, err error) {
	if ctx.Err() != nil {
		return
	}
	p.session.mu.Lock()
	p.failure = err.Error()
	if p.exit == nil {
		p.exit = &env.Exit{Code: -1}
	}
	p.session.mu.Unlock()
	p.telling.Lock()
	defer p.telling.Unlock()
	if p.tellExit(ctx, c) == nil {
		p.tellClosed(ctx, c) //nolint:errcheck // it is kept
	}
}

// relay takes what the environment has to say.
func (p *process) relay(ctx context.Context, c *connection, a env.Process) error {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	if p.stdin {
		tasks.Go(func() { p.feed(ctx, a) })
	}
	tasks.Go(func() {
		select {
		case <-a.Exited():
			p.telling.Lock()
			defer p.telling.Unlock()
			p.learnExit(a)
			if p.hasAll() {
				p.tellExit(ctx, c) //nolint:errcheck // it is kept
			}
		case <-ctx.Done():
		}
	})
	for chunk, err := range a.Output(ctx) {
		if err != nil {
			return err
		}
		if err := p.take(ctx, c, a, chunk); err != nil {
			return err
		}
		a.Ack(chunk.Offset + chunk.Lost + int64(len(chunk.Data)))
	}
	select {
	case <-a.Exited():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	p.learnExit(a)
	if err := p.tellExit(ctx, c); err != nil {
		return err
	}
	return p.tellClosed(ctx, c)
}

// take numbers and tells a piece of output; the exit has its place among it.
func (p *process) take(ctx context.Context, c *connection, a env.Process, chunk env.Chunk) error {
	p.telling.Lock()
	defer p.telling.Unlock()
	if chunk.Lost > 0 {
		p.session.mu.Lock()
		p.offset = chunk.Offset + chunk.Lost
		p.failure = fmt.Sprintf("%d bytes of output were lost at offset %d", chunk.Lost, chunk.Offset)
		p.tell()
		p.session.mu.Unlock()
		return nil
	}
	select {
	case <-a.Exited():
		p.learnExit(a)
	default:
	}
	data := chunk.Data
	if before := p.beforeExit(chunk.Offset); before < int64(len(data)) {
		if before > 0 {
			if err := p.tellOutput(ctx, c, chunk.Channel, data[:before]); err != nil {
				return err
			}
		}
		if err := p.tellExit(ctx, c); err != nil {
			return err
		}
		data = data[before:]
	}
	if err := p.tellOutput(ctx, c, chunk.Channel, data); err != nil {
		return err
	}
	if p.hasAll() {
		return p.tellExit(ctx, c)
	}
	return nil
}

// learnExit takes the exit of a process that has ended. p.telling is held.
func (p *process) learnExit(a env.Process) {
	exit, err := a.Exit()
	if err != nil {
		exit = env.Exit{Code: -1}
	}
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	if p.exit == nil {
		p.exit = &exit
	}
}

// hasAll tells whether the leader has ended and all that it wrote was told.
func (p *process) hasAll() bool {
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	return p.exit != nil && p.offset >= p.exit.Offset
}

// beforeExit is how many bytes at offset are told before the exit.
func (p *process) beforeExit(offset int64) int64 {
	p.session.mu.Lock()
	defer p.session.mu.Unlock()
	if p.exit == nil || p.exited {
		return 1<<63 - 1
	}
	return max(p.exit.Offset-offset, 0)
}

var streamNames = map[env.Channel]string{env.Stdout: "stdout", env.Stderr: "stderr", env.Terminal: "pty"}

// tellOutput numbers a piece of output, keeps it and tells it. p.telling is held.
func (p *process) tellOutput(ctx context.Context, c *connection, channel env.Channel, data []byte) error {
	s := p.session
	e := &event{process: p, stream: streamNames[channel], data: append([]byte(nil), data...)}
	s.mu.Lock()
	for s.missing != nil && s.cost > 2*recentBound {
		settled := s.settled
		s.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.mu.Lock()
	}
	e.seq = p.next
	p.next++
	p.offset += int64(len(data))
	s.keep(e)
	p.tell()
	s.mu.Unlock()
	return c.notify(ctx, "process/output", outputNotification{p.id, e})
}

// tellExit numbers and tells the exit, once. p.telling is held.
func (p *process) tellExit(ctx context.Context, c *connection) error {
	s := p.session
	s.mu.Lock()
	if p.exited {
		s.mu.Unlock()
		return nil
	}
	p.exited, p.code, p.exitSeq = true, exitCode(*p.exit), p.next
	p.next++
	p.tell()
	s.mu.Unlock()
	return c.notify(ctx, "process/exited", exitedNotification{ProcessID: p.id, Seq: p.exitSeq, ExitCode: p.code})
}

// tellClosed numbers and tells the end. p.telling is held.
func (p *process) tellClosed(ctx context.Context, c *connection) error {
	s := p.session
	s.mu.Lock()
	if p.closed {
		s.mu.Unlock()
		return nil
	}
	p.closed = true
	seq := p.next
	p.next++
	p.input.end(env.ErrStdinClosed)
	p.tell()
	if !s.ended {
		p.retention = time.AfterFunc(s.lease, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			p.drop()
		})
	}
	s.mu.Unlock()
	return c.notify(ctx, "process/closed", closedNotification{p.id, seq})
}

// errUntold says of something that was numbered and kept that the connection did not take it.
var errUntold = errors.New("the client was not told")

func (c *connection) notify(ctx context.Context, method string, params any) error {
	if err := c.peer.Notify(ctx, method, params); err != nil {
		return fmt.Errorf("%w: %w", errUntold, err)
	}
	return nil
}

type outputNotification struct {
	processID string
	event     *event
}

// AppendJSON implements [jsonrpc.Appender].
func (n outputNotification) AppendJSON(b []byte) []byte {
	b = append(b, `{"processId":`...)
	b = jsonrpc.AppendString(b, n.processID)
	b = append(b, ',')
	return append(n.event.appendFields(b), '}')
}

// appendFields appends the members that a piece of output has everywhere.
func (e *event) appendFields(b []byte) []byte {
	b = strconv.AppendUint(append(b, `"seq":`...), e.seq, 10)
	b = append(append(append(b, `,"stream":"`...), e.stream...), `","chunk":`...)
	return jsonrpc.AppendBase64(b, e.data)
}

type exitedNotification struct {
	ProcessID     string `json:"processId"`
	Seq           uint64 `json:"seq"`
	ExitCode      int64  `json:"exitCode"`
	SandboxDenied bool   `json:"sandboxDenied"`
}

type closedNotification struct {
	ProcessID string `json:"processId"`
	Seq       uint64 `json:"seq"`
}

// signalNumbers are those that are the same wherever POSIX is, and Linux's for the rest.
var signalNumbers = map[env.Signal]int64{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "IOT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10,
	"SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16, "CHLD": 17, "CONT": 18, "STOP": 19,
	"TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28,
	"IO": 29, "POLL": 29, "PWR": 30, "SYS": 31,
}

// exitCode is the code that Codex has for an end.
func exitCode(exit env.Exit) int64 {
	if exit.Signal == "" {
		return exit.Code
	}
	number, known := signalNumbers[exit.Signal]
	if !known {
		number, _ = strconv.ParseInt(string(exit.Signal), 10, 32) //nolint:errcheck // 0 is left for a name that nobody knows
	}
	return 128 + number
}
