//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"waldo/env"
	"waldo/env/rpc"
	"waldo/wire/listen"
)

// waldoServer is an exec-server as a child, with a home of its own.
type waldoServer struct {
	*program
	url  string
	home string
}

// startWaldo starts an exec-server that listens at an address.
func (b *bench) startWaldo(ctx context.Context, address string) (*waldoServer, error) {
	path, err := b.build(ctx, "cmd/exec-server")
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp(b.dir, "home-")
	if err != nil {
		return nil, err
	}
	s := &waldoServer{home: home}
	c := exec.Command(path, "--listen", address, "--state-dir", s.stateDir())
	c.Env = append(os.Environ(), "WALDO_HOME="+home)
	if s.program, err = b.start(ctx, c); err != nil {
		return nil, err
	}
	s.url = s.first
	return s, nil
}

func (s *waldoServer) stateDir() string { return filepath.Join(s.home, "exec-server") }

// tokenFile is where the server has put the token that it made.
func (s *waldoServer) tokenFile() string { return filepath.Join(s.stateDir(), "token") }

// connectWaldo starts an exec-server on loopback and connects. What it returns is ended by its stop.
func (b *bench) connectWaldo(ctx context.Context) (*waldoServer, *rpc.Client, error) {
	s, err := b.startWaldo(ctx, "tcp://127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	client, err := dialWaldo(ctx, s.url, listen.DialOptions{StateDir: s.stateDir()})
	if err == nil {
		err = client.Ready(ctx)
	}
	if err != nil {
		s.stop()
		return nil, nil, fmt.Errorf("connect to exec-server: %w", err)
	}
	return s, client, nil
}

// dialWaldo connects as the app-server does. The first calls need not wait for Ready.
func dialWaldo(ctx context.Context, url string, options listen.DialOptions) (*rpc.Client, error) {
	address, err := listen.ParseAddress(url)
	if err != nil {
		return nil, err
	}
	token, err := listen.FindToken(address, options)
	if err != nil {
		return nil, err
	}
	return rpc.Dial(ctx, rpc.ClientOptions{
		Dial:  func(ctx context.Context) (net.Conn, error) { return listen.Dial(ctx, address, options) },
		Token: token,
		Name:  "bench",
	})
}

// finish reads a process's output to the end, giving each chunk to onOutput, unless that is nil, and then its exit.
func finish(ctx context.Context, p env.Process, onOutput func([]byte)) error {
	defer p.Close() //nolint:errcheck // returns nil
	for chunk, err := range p.Output(ctx) {
		if err != nil {
			return err
		}
		if chunk.Lost > 0 {
			return errors.New("output was lost")
		}
		if onOutput != nil {
			onOutput(chunk.Data)
		}
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	exit, err := p.Exit()
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("exit code %d", exit.Code)
	}
	return err
}
