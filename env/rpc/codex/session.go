package codex

import (
	"sync"
	"time"

	"waldo/env"
	"waldo/env/rpc"
)

// recentBound is how much output of a session is kept beyond what each process keeps, since it may have been on its way
// when a connection was cut: more than the buffers of a connection hold.
const recentBound = 16 << 20

// awaitWithin is how long a client that has resumed its session has to ask for what it has missed, before that may be
// let go.
const awaitWithin = 5 * time.Second

// session is what a client has, across connections.
type session struct {
	door   *Door
	rpc    *rpc.Session
	id     string
	env    env.Env
	origin rpc.Origin

	mu        sync.Mutex // guards the processes too
	lease     time.Duration
	processes map[string]*process // by the client's id
	serial    int                 // of the newest process
	ended     bool

	recent   []*event          // newest output of all processes, oldest first
	cost     int               // of recent
	missing  map[*process]bool // whose client has resumed and not asked yet for what it has missed
	patience *time.Timer
	settled  chan struct{} // closed when missing becomes empty
}

func newSession(d *Door, opened *rpc.Session, origin rpc.Origin) *session {
	s := &session{
		door: d, rpc: opened, id: opened.ID(), env: opened.Env(), origin: origin,
		lease: defaultLease, processes: make(map[string]*process),
	}
	opened.AfterEnd(s.end)
	return s
}

// end lets go of everything; the processes have been ended.
func (s *session) end() {
	s.door.forget(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.settle()
	for _, p := range s.processes {
		if p.retention != nil {
			p.retention.Stop()
		}
	}
}

// granted notes the lease that a connection asked for.
func (s *session) granted(lease time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

// attach begins to tell c what happens to the processes. Nothing is told to an older connection any more.
func (s *session) attach(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.settle()
	for _, p := range s.processes {
		if len(p.events) > 0 {
			if s.missing == nil {
				s.missing, s.settled = make(map[*process]bool), make(chan struct{})
				s.patience = time.AfterFunc(awaitWithin, s.expire)
			}
			s.missing[p] = true
		}
		if p.started && !p.closed {
			c.task(func() { p.resume(c.ctx, c) }) //nolint:errcheck // the connection that comes next does it
		}
	}
}

// expire gives up waiting for a client to ask.
func (s *session) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
}

// asked notes that the client has asked for the output of p. s.mu is held.
func (s *session) asked(p *process) {
	if s.missing == nil {
		return
	}
	if delete(s.missing, p); len(s.missing) == 0 {
		s.settle()
	}
}

// settle lets the output that clients may have missed go again. s.mu is held.
func (s *session) settle() {
	if s.missing == nil {
		return
	}
	s.patience.Stop()
	s.missing = nil
	close(s.settled)
	s.trim()
}

// event is a piece of output. Its data is never changed.
type event struct {
	process *process
	seq     uint64
	stream  string
	data    []byte
	old     bool // no longer among the recent ones
}

// eventCost is what an event takes beside its data.
const eventCost = 128

// keep adds an event. s.mu is held.
func (s *session) keep(e *event) {
	p := e.process
	p.events = append(p.events, e)
	p.kept += len(e.data)
	s.recent = append(s.recent, e)
	s.cost += len(e.data) + eventCost
	s.trim()
}

// trim lets the oldest events go. s.mu is held.
func (s *session) trim() {
	for s.missing == nil && s.cost > recentBound {
		e := s.recent[0]
		s.recent[0] = nil
		s.recent = s.recent[1:]
		s.cost -= len(e.data) + eventCost
		e.old = true
		e.process.trim()
	}
}
