package proc

import (
	"context"
	"fmt"
	"sync"
	"time"

	"waldo/env"
	"waldo/env/host/output"
)

// A process is one entry of the table: the leader that was started, its tree, and what it wrote.
//
// Its goroutines, all counted in table.running: one pump a stream, and watch, which waits for the leader, tells
// its exit, waits for the pumps, and is the last to touch the process. They end by themselves when the output
// has no holder any more, or when abandon is closed.
type process struct {
	table    *Table
	id       string
	argv     []string
	terminal bool
	delivery env.Delivery
	started  time.Time
	log      *output.Log
	child    *child

	exited  chan struct{} // closed once exit is set
	closed  chan struct{} // closed once no output can come any more
	abandon chan struct{} // closed to give up on output that somebody still holds

	mu          sync.Mutex
	owner       *attachment
	attachments map[*attachment]struct{}
	exit        env.Exit
	ended       time.Time
	status      exitStatus
	reason      string        // why the server ends it
	ending      chan struct{} // closed when the last endAll is through
	abandoned   bool
	timer       *time.Timer // of the wall clock limit
}

// exitStatus is how the leader ended, as the machine tells it.
type exitStatus struct {
	code   int64
	signal env.Signal
	cpu    time.Duration
}

// watch follows the process to its end.
func (p *process) watch() {
	defer p.table.running.Done()
	for _, s := range p.child.streams {
		go s.Pump(p.abandon)
	}
	status := p.child.wait()
	for _, s := range p.child.streams {
		s.Drain()
	}
	offset, broken := p.log.Written(), p.child.tree.Broken()
	p.mu.Lock()
	p.status = status
	if p.reason == "" {
		p.reason = broken
	}
	p.ended = time.Now()
	p.exit = env.Exit{Code: status.code, Signal: status.signal, Offset: offset, Reason: p.reason}
	p.mu.Unlock()
	close(p.exited)
	p.child.left()

	for _, s := range p.child.streams {
		select {
		case <-s.Done():
		case <-p.abandon:
			p.child.close()
			<-s.Done()
		}
	}
	p.child.close() // so that whoever sees the end finds nothing to write to any more
	p.log.Finish()
	close(p.closed)
	p.stopTimer()
	p.table.finished(p)
}

// giveUp stops waiting for output that somebody still holds.
func (p *process) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.abandoned {
		p.abandoned = true
		close(p.abandon)
	}
}

// stopTimer stops the wall clock, unless something of the tree still runs and is bound by it.
func (p *process) stopTimer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil && !p.child.tree.Alive() {
		p.timer.Stop()
	}
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// end ends the tree: politely, then, when grace is over or the polite signal cannot be sent, by force. It returns
// when the leader has ended or ctx has; the rest goes on.
func (p *process) end(ctx context.Context, grace time.Duration, reason string) error {
	p.endAll(grace, reason)
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("terminate process %q: %w", p.id, context.Cause(ctx))
	}
}

// endAll begins to end the tree, unless that is under way, and returns a channel that is closed when it is gone or
// was killed.
func (p *process) endAll(grace time.Duration, reason string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.hasExited() && p.reason == "" {
		p.reason = reason
	}
	if p.ending != nil {
		select {
		case <-p.ending:
		default:
			if grace <= 0 {
				p.child.tree.Kill()
			}
			return p.ending
		}
	}
	done := make(chan struct{})
	p.ending = done
	go func() {
		defer close(done)
		p.endTree(grace)
	}()
	return done
}

// endTree returns when the tree is gone, or was killed.
func (p *process) endTree(grace time.Duration) {
	tree := p.child.tree
	if grace > 0 && tree.Terminate(p.terminal) {
		deadline := time.NewTimer(grace)
		defer deadline.Stop()
		exited := p.exited
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			again := time.NewTimer(pause)
			select {
			case <-deadline.C:
				again.Stop()
				tree.Kill()
				return
			case <-p.table.hurry:
				again.Stop()
				tree.Kill()
				return
			case <-exited:
				exited = nil // the others may take the rest of the grace
			case <-again.C:
			}
			again.Stop()
			if p.hasExited() && !tree.Alive() {
				return
			}
		}
	}
	tree.Kill()
}

// limitTime ends the process when its wall clock limit is over.
func (p *process) limitTime(limit, grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(limit, func() {
		p.end(p.table.ending, grace, fmt.Sprintf("wall clock limit of %v", limit)) //nolint:errcheck // goes on by itself
	})
}

// attach adds a reader, who becomes the owner if asked and allowed.
func (p *process) attach(ctx context.Context, how env.Attach) (*attachment, error) {
	cursor, err := p.log.NewCursor(how.From)
	if err != nil {
		return nil, fmt.Errorf("attach to process %q: %w", p.id, err)
	}
	a := newAttachment(p, cursor, how.ExplicitAck)
	p.mu.Lock()
	before := p.owner
	if !how.Watch && (before == nil || how.Take) {
		a.owner = true
		p.owner = a
		if before != nil {
			before.fence(fmt.Errorf("process %q: %w", p.id, env.ErrFenced))
		}
		p.log.Own(true, cursor.Offset())
	}
	p.attachments[a] = struct{}{}
	p.mu.Unlock()
	if a.owner && before != nil && p.child.input != nil {
		// The older owner's Write must have ended before the new one may ask for the offset.
		if err := p.child.input.settle(ctx); err != nil {
			a.Close() //nolint:errcheck // never fails
			return nil, err
		}
	}
	return a, nil
}

// detach removes a reader.
func (p *process) detach(a *attachment) {
	p.mu.Lock()
	delete(p.attachments, a)
	if p.owner == a {
		p.owner = nil
		p.log.Own(false, 0)
	}
	p.mu.Unlock()
	p.table.prune()
}

// info describes the process.
func (p *process) info() env.ProcessInfo {
	log := p.log.State()
	info := env.ProcessInfo{
		ID: p.id, Pid: p.child.pid, Argv: p.argv, State: env.Running, Started: p.started,
		Terminal: p.terminal, Delivery: p.delivery,
		Output: log.End, Dropped: log.Dropped, Retained: log.Retained, Full: log.Full,
	}
	if p.child.input != nil {
		info.Stdin = p.child.input.offset()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	info.Owned = p.owner != nil
	info.Watchers = len(p.attachments)
	if info.Owned {
		info.Watchers--
	}
	if p.hasExited() {
		exit := p.exit
		info.State, info.Exit, info.Ended, info.CPU = env.Exited, &exit, p.ended, p.status.cpu
		select {
		case <-p.closed:
			info.State = env.Closed
		default:
		}
	}
	return info
}

// idle tells that nobody is attached to a closed process, and whether the owner took everything.
func (p *process) idle() (idle, taken bool) {
	select {
	case <-p.closed:
	default:
		return false, false
	}
	p.mu.Lock()
	idle = len(p.attachments) == 0
	p.mu.Unlock()
	log := p.log.State()
	return idle, log.Acked >= log.End
}
