package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
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
	files
	link       *link
	session    string
	operations operations
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
	c := &Client{link: link, session: options.Session}
	c.files.client = c
	return c, nil
}

// Session is the id of the client's session.
func (c *Client) Session() string { return c.session }

// Ready waits until the server has accepted the client, or says why it has not.
func (c *Client) Ready(ctx context.Context) error { return c.link.ready(ctx) }

// Gone is closed when the client can never connect again, or is closed; Ready then says why.
func (c *Client) Gone() <-chan struct{} { return c.link.ctx.Done() }

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
	if !keep && errors.Is(err, env.ErrExpired) {
		return nil // it has ended; a goodbye whose answer was lost finds it so
	}
	return err
}

// Close ends the connection, and every call and attachment with it. Processes live on under the lease, unless
// Goodbye has said otherwise.
func (c *Client) Close() error {
	c.link.close()
	return nil
}

var _ env.Env = (*Client)(nil)
