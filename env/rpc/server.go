// Package rpc carries an [env.Env] over a wire: [Server] serves one, [Client] is one.
//
// The client and the server half of each method stand side by side in one file. Sessions, leases and the
// operation journal live here and not in the environment: they are about clients, not about the machine.
package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

// ServerOptions are the settings of a Server.
type ServerOptions struct {
	Name         string        // of the program and its version, told to clients
	DefaultLease time.Duration // of a session that asks for none; zero means 10 minutes
	MaxLease     time.Duration // the longest that is granted; zero means 7 days
	Grace        time.Duration // between the polite signal and the kill when a lease ends; zero means 5 seconds
	Log          *slog.Logger  // nil: nothing is logged
}

// Server offers one environment to any number of clients.
type Server struct {
	env      env.Env
	options  ServerOptions
	instance string
	info     json.RawMessage
	paths    pathuri.Convention

	ctx    context.Context // of what outlives connections
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	handles atomic.Int64 // see hold
	stats   stats
	working atomic.Int64 // operations that are being done

	mu          sync.Mutex
	closed      bool
	sessions    map[string]*session
	holdings    map[string]*holding // by process id, of those whose output has not closed
	connections map[connection]struct{}
	quiet       chan struct{} // closed and made anew when a connection comes or goes
	attachments int           // being relayed
	drained     chan struct{} // closed when there is none, while somebody waits
}

// NewServer makes a server of e, which it does not close.
func NewServer(ctx context.Context, e env.Env, options ServerOptions) (*Server, error) {
	if options.DefaultLease == 0 {
		options.DefaultLease = 10 * time.Minute
	}
	if options.MaxLease == 0 {
		options.MaxLease = 7 * 24 * time.Hour
	}
	options.DefaultLease = min(options.DefaultLease, options.MaxLease)
	if options.Grace == 0 {
		options.Grace = 5 * time.Second
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	description, err := e.Describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("describe the environment: %w", err)
	}
	info, err := json.Marshal(description)
	if err != nil {
		return nil, err
	}
	s := &Server{
		env:         e,
		options:     options,
		instance:    uuid.NewString(),
		info:        info,
		paths:       description.Paths,
		sessions:    make(map[string]*session),
		holdings:    make(map[string]*holding),
		connections: make(map[connection]struct{}),
		quiet:       make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Origin is where a connection came from on the server's own machine. Sessions that begin on it start their
// processes from there.
type Origin struct {
	Environ   []string // "NAME=value"; nil: what the environment gives
	Directory string   // native; "": the environment's default
}

// Serve serves one connection until it or ctx ends, and closes it. authenticate decides on the token of its HELLO.
func (s *Server) Serve(ctx context.Context, nc net.Conn, origin Origin, authenticate func(token string) error) error {
	p := &peer{server: s, origin: origin, alone: make(chan struct{})}
	started := make(chan struct{})
	conn, err := wire.Server(nc, func(ctx context.Context, hello wire.Hello) (wire.Welcome, error) {
		if err := authenticate(hello.Token); err != nil {
			return wire.Welcome{}, fmt.Errorf("%w: %w", wire.Unauthenticated, err)
		}
		<-started
		return s.welcome(p, hello)
	}, p.serve)
	if err != nil {
		return err
	}
	p.conn = conn
	if !s.connected(conn) {
		conn.CloseWith(fmt.Errorf("%w: server is shutting down", net.ErrClosed)) //nolint:errcheck // returns nil
		close(started)
		return net.ErrClosed
	}
	close(started)
	select {
	case <-conn.Done():
	case <-ctx.Done():
	}
	conn.Close() //nolint:errcheck // returns nil; waits for the calls
	s.disconnected(conn)
	if p.session != nil {
		p.session.disconnected(conn)
	}
	return conn.Err()
}

func (s *Server) connected(conn connection) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.connections[conn] = struct{}{}
	s.changed()
	return true
}

func (s *Server) disconnected(conn connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, conn)
	s.changed()
}

// changed wakes AwaitIdle. s.mu is held.
func (s *Server) changed() {
	close(s.quiet)
	s.quiet = make(chan struct{})
}

// AwaitIdle returns nil when for d there was no client, no process that runs or has output to come, and no operation
// that is not over.
func (s *Server) AwaitIdle(ctx context.Context, d time.Duration) error {
	for wasIdle := false; ; {
		s.mu.Lock()
		clients, changed := len(s.connections), s.quiet
		s.mu.Unlock()
		var due <-chan time.Time
		var timer *time.Timer
		idle := false
		if clients == 0 {
			busy, err := s.busy(ctx)
			if err != nil {
				return err
			}
			idle = !busy
			if idle && wasIdle {
				return nil
			}
			wait := d
			if busy {
				wait = min(d, time.Second) // a process tells nobody here when it ends
			}
			timer = time.NewTimer(wait)
			due = timer.C
		}
		select {
		case <-changed:
			wasIdle = false
		case <-due:
			wasIdle = idle
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// busy tells whether a process runs or has output to come, or something is done or held open for a session.
func (s *Server) busy(ctx context.Context) (bool, error) {
	if s.handles.Load() > 0 || s.working.Load() > 0 {
		return true, nil
	}
	processes, err := s.env.Processes(ctx)
	return slices.ContainsFunc(processes, func(p env.ProcessInfo) bool { return p.State != env.Closed }), err
}

// task runs f for what the server does beside its calls. The lock is what orders it before the wait in Close, which
// comes when the calls have ended.
func (s *Server) task(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks.Go(f)
}

// relaying counts the attachments that are relayed.
func (s *Server) relaying(delta int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attachments += delta
	if s.attachments == 0 && s.drained != nil {
		close(s.drained)
		s.drained = nil
	}
}

// Drain returns when no client is attached to a process: when all processes have ended, and all clients know.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	if s.attachments == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.drained == nil {
		s.drained = make(chan struct{})
	}
	drained := s.drained
	s.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends every connection and session and waits for their goroutines. The environment, and with it the
// processes, is the caller's to close.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for conn := range s.connections {
		s.tasks.Go(func() {
			conn.CloseWith(fmt.Errorf("%w: server is shutting down", net.ErrClosed)) //nolint:errcheck // it has logged nothing that is of use now
		})
	}
	for _, session := range s.sessions {
		session.stop()
	}
	s.mu.Unlock()
	s.cancel()
	s.tasks.Wait()
	return nil
}
