package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"waldo/env"
	"waldo/wire"
)

// ClientOptions are the settings of a Client.
type ClientOptions struct {
	// Dial makes a byte stream to the server. It is called again whenever the connection is lost.
	Dial func(context.Context) (net.Conn, error)
	// Token is what the HELLO carries; empty where the server needs none.
	Token string
	// FindToken, if not nil, is asked for the token instead, each time after Dial has connected.
	FindToken func() (string, error)
	// Name of the program and its version, told to the server.
	Name string
	// Session names the session to open; empty: a new one.
	Session string
	// Lease is how long the session, and the processes in it, outlive the connection; zero is the server's default.
	Lease time.Duration
	// Log gets what happens to the connection; nil: nothing.
	Log *slog.Logger
	// Status, if not nil, is told when the connection is lost (with why) and when it is back (nil). It must not wait.
	Status func(lost error)
}

// Client is an environment on the other end of a wire. It reconnects by itself, until the lease has ended;
// calls and processes go on across that.
type Client struct {
	link       *link
	session    string
	operations operations

	mu        sync.Mutex
	processes map[*process]struct{}
	tasks     sync.WaitGroup
	closed    bool
}

// Dial connects to a server. The first connection is tried once. Whether the server accepts the client is told
// by Ready, or by the first call. Close ends the client.
func Dial(ctx context.Context, options ClientOptions) (*Client, error) {
	if options.Session == "" {
		// Short, since people type it: it has to be unique among one user's sessions on one machine.
		options.Session = strings.ReplaceAll(uuid.NewString(), "-", "")[:10]
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	link, err := newLink(ctx, options)
	if err != nil {
		return nil, err
	}
	return &Client{link: link, session: options.Session, processes: make(map[*process]struct{})}, nil
}

// Session is the id of the client's session.
func (c *Client) Session() string { return c.session }

// Ready waits until the server has accepted the client, or says why it has not.
func (c *Client) Ready(ctx context.Context) error { return c.link.ready(ctx) }

// Connection describes the newest connection of a client.
type Connection struct {
	Server  string        // name and version
	Latency time.Duration // from the HELLO to its answer
	Lease   time.Duration // granted
}

// Connection describes the newest connection; zero before Ready.
func (c *Client) Connection() Connection {
	welcome, trip := c.link.greeting()
	return Connection{welcome.Server, trip, time.Duration(welcome.Lease) * time.Millisecond}
}

// Goodbye ends the session: its processes are ended at once, or with keep left to the lease. Close is still to
// be called.
func (c *Client) Goodbye(ctx context.Context, keep bool) error {
	_, err := call[none](ctx, c, wire.Request{Method: methodGoodbye, Params: goodbyeParams{Keep: keep}})
	return err
}

// Close ends the connection. Processes live on under the lease, unless Goodbye has said otherwise.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	open := make([]*process, 0, len(c.processes))
	for p := range c.processes {
		open = append(open, p)
	}
	c.mu.Unlock()
	for _, p := range open {
		p.Close() //nolint:errcheck // returns nil
	}
	c.link.close()
	c.tasks.Wait()
	return nil
}

// track makes a task for p, unless the client is closed.
func (c *Client) track(p *process, task func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("environment: %w", net.ErrClosed)
	}
	c.processes[p] = struct{}{}
	c.tasks.Go(task)
	return nil
}

func (c *Client) untrack(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.processes, p)
}

var _ env.Env = (*Client)(nil)
