package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/env/rpc"
	"waldo/wire"
	"waldo/wire/listen"
)

// The user's daemon is the server that every "--listen stdio" of a user joins, so that what was cut with one pipe
// is found again through the next.

const (
	daemonIdle  = 10 * time.Minute // without a client and a process, then it ends
	daemonStart = 10 * time.Second // from its start until it accepts
)

// daemonName has the protocol number in it: after an upgrade a second daemon starts, and the old one idles out.
func daemonName(suffix string) string {
	return fmt.Sprintf("daemon-%d.%s", wire.MaxVersion, suffix)
}

// join passes the pipe on to the user's daemon, which is started if there is none.
func join(ctx context.Context, stateDir string, in io.Reader, out io.Writer) error {
	if err := listen.PrivateDir(stateDir); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	socket := filepath.Join(stateDir, daemonName("sock"))
	conn, err := dialDaemon(ctx, socket)
	if err != nil {
		if conn, err = startDaemon(ctx, stateDir, socket); err != nil {
			return err
		}
	}
	defer conn.Close()
	if err := listen.SendNote(conn, launchNote()); err != nil {
		return fmt.Errorf("speak to the daemon: %w", err)
	}
	toDaemon := make(chan error, 1)
	go func() { // it ends with the process: a read of standard input cannot be interrupted
		_, err := io.Copy(conn, in)
		conn.(interface{ CloseWrite() error }).CloseWrite() //nolint:errcheck // the other direction tells
		toDaemon <- err
	}()
	_, err = io.Copy(out, conn)
	return err
}

func dialDaemon(ctx context.Context, socket string) (net.Conn, error) {
	return listen.Dial(ctx, listen.Address{Scheme: "unix", Path: socket}, listen.DialOptions{})
}

// startDaemon starts one and waits until it, or one that was started at the same time, accepts.
func startDaemon(ctx context.Context, stateDir, socket string) (net.Conn, error) {
	logPath := filepath.Join(stateDir, daemonName("log"))
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log of the daemon: %w", err)
	}
	defer log.Close()
	ready, err := spawnDaemon(stateDir, log)
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	defer ready.Close()
	// It closes its end when it accepts, or when it has found that another one holds the lock.
	ready.SetReadDeadline(time.Now().Add(daemonStart)) //nolint:errcheck // a pipe of ours
	io.Copy(io.Discard, ready)                         //nolint:errcheck // whichever way it ended, the socket tells
	ctx, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	for {
		conn, err := dialDaemon(ctx, socket)
		if err == nil {
			return conn, nil
		}
		select { // the holder of the lock may be a moment from accepting
		case <-ctx.Done():
			return nil, fmt.Errorf("the daemon does not answer, its log is %s: %w", logPath, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// launchNote tells the daemon from where a pipe was started: sessions begun on it get this environment and
// directory, so that SSH_AUTH_SOCK and PATH are those of the login that began them.
func launchNote() []byte {
	directory, _ := os.Getwd() // "" is the machine's default
	note, err := json.Marshal(launch{Environ: wire.Texts(childEnviron()), Directory: wire.Text(directory)})
	if err != nil {
		panic(err) // strings always marshal
	}
	return note
}

// childEnviron is this process's environment without what is only for programs of this project.
func childEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "WALDO_") })
}

type launch struct {
	Environ   []wire.Text `json:"environ"`
	Directory wire.Text   `json:"directory,omitempty"`
}

// origin is the launch of the pipe that a peer came through.
func origin(p *listen.Peer) (rpc.Origin, error) {
	if len(p.Note) == 0 {
		return rpc.Origin{}, nil
	}
	var l launch
	if err := json.NewDecoder(bytes.NewReader(p.Note)).Decode(&l); err != nil {
		return rpc.Origin{}, fmt.Errorf("note of the pipe: %w", err)
	}
	return rpc.Origin{Environ: wire.Strings(l.Environ), Directory: string(l.Directory)}, nil
}

// daemonCommand is the role that spawnDaemon starts. It is no command for people.
func daemonCommand() *cobra.Command {
	s := settings{detached: true, exitIdle: daemonIdle, maxLease: defaultMaxLease, logFormat: "text", logLevel: "info"}
	c := &cobra.Command{
		Use:    "daemon",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			lock, err := lockDaemon(filepath.Join(s.access.StateDir, daemonName("lock")))
			if errors.Is(err, errLocked) {
				return nil // another one was faster
			}
			if err != nil {
				return err
			}
			defer lock.Close()
			log, err := s.logger(os.Stderr)
			if err != nil {
				return err
			}
			s.access.Log = log
			socket := listen.Address{Scheme: "unix", Path: filepath.Join(s.access.StateDir, daemonName("sock"))}
			return s.run(c.Context(), log, []listen.Address{socket}, false)
		},
	}
	c.Flags().StringVar(&s.access.StateDir, "state-dir", "", "")
	return c
}
