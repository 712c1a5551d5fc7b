package rpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"waldo/env"
)

// A network that is silent for a while and comes back: what waits goes on at once, however long it was.
func TestSilence(t *testing.T) {
	for _, silence := range []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second, 5 * time.Minute} {
		t.Run(silence.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				machine := newFake()
				n := newNetwork(t, machine, ServerOptions{})
				defer n.close()
				c := n.client(ClientOptions{})
				defer c.Close()
				p := start(t, c, "p")
				n.stall(true)
				signal, stat := make(chan error, 1), make(chan error, 1)
				go func() { signal <- c.Signal(context.Background(), "p", "INT") }()
				go func() {
					_, err := c.Stat(context.Background(), root, true)
					stat <- err
				}()
				time.Sleep(silence)
				n.stall(false)
				back := time.Now()
				if err := errors.Join(<-signal, <-stat); err != nil {
					t.Error(err)
				}
				if took := time.Since(back); took > 3*time.Second {
					t.Errorf("the calls took %v after the return", took)
				}
				if machine.signalled() != 1 {
					t.Errorf("%d signals", machine.signalled())
				}
				closeOnce(machine.processes[c.session+"/p"].ended)
				<-p.Exited()
				if exit, err := p.Exit(); err != nil || exit.Code != 7 {
					t.Errorf("exit %+v, %v", exit, err)
				}
			})
		})
	}
}

// An idle connection that nobody waits for is left alone; one that answers is not replaced.
func TestNoNeedlessDials(t *testing.T) {
	bubble(t, func(t *testing.T) {
		machine := newFake()
		n := newNetwork(t, machine, ServerOptions{})
		defer n.close()
		c := n.client(ClientOptions{})
		defer c.Close()
		time.Sleep(time.Hour)
		start(t, c, "p") // waits for its exit
		time.Sleep(time.Hour)
		if n.dialled() != 1 {
			t.Errorf("%d connections", n.dialled())
		}
	})
}

// While there is no network it is tried again and again, at a bounded pace, until the lease has ended.
func TestBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t, newFake(), ServerOptions{})
		defer n.close()
		var told []error
		c := n.client(ClientOptions{Lease: time.Minute, Status: func(lost error) { told = append(told, lost) }})
		defer c.Close()
		p := start(t, c, "p")
		begin := time.Now()
		n.cut(true)
		<-p.Exited()
		_, err := p.Exit()
		wantError(t, "exit", err, env.ErrExpired)
		if err == nil || !strings.Contains(err.Error(), "network is down") {
			t.Errorf("no cause in %v", err)
		}
		if took := time.Since(begin); took < time.Minute || took > time.Minute+lastBackoff {
			t.Errorf("gave up after %v", took)
		}
		if dials := n.dialled(); dials < 30 || dials > 60 {
			t.Errorf("%d attempts in a minute", dials)
		}
		if len(told) != 1 || told[0] == nil {
			t.Errorf("status %v", told)
		}
	})
}

// Every method gives up with its context, and Close at once, though nothing can be sent.
func TestStalledCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t, newFake(), ServerOptions{})
		c := n.client(ClientOptions{})
		p := start(t, c, "p")
		n.stall(true)
		for name, call := range map[string]func(context.Context) error{
			"start":     func(ctx context.Context) error { _, err := c.Start(ctx, env.Command{Argv: []string{"x"}}); return err },
			"attach":    func(ctx context.Context) error { _, err := c.Attach(ctx, "p", env.Attach{}); return err },
			"processes": func(ctx context.Context) error { _, err := c.Processes(ctx); return err },
			"signal":    func(ctx context.Context) error { return p.Signal(ctx, "INT") },
			"terminate": func(ctx context.Context) error { return c.Terminate(ctx, "p", 0) },
			"stat":      func(ctx context.Context) error { _, err := c.Stat(ctx, root, true); return err },
			"dial":      func(ctx context.Context) error { _, err := c.Dial(ctx, "tcp", "x"); return err },
			"goodbye":   func(ctx context.Context) error { return c.Goodbye(ctx, true) },
			"output": func(ctx context.Context) (err error) {
				for _, err = range p.Output(ctx) {
				}
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			begin := time.Now()
			wantError(t, name, call(ctx), context.DeadlineExceeded)
			if took := time.Since(begin); took != time.Second {
				t.Errorf("%s returned after %v", name, took)
			}
			cancel()
		}
		begin := time.Now()
		p.Close()
		if took := time.Since(begin); took > detachWithin {
			t.Errorf("closing an attachment took %v", took)
		}
		waiting := make(chan error)
		go func() {
			_, err := c.Stat(context.Background(), root, true)
			waiting <- err
		}()
		synctest.Wait()
		begin = time.Now()
		closed := make(chan struct{})
		go func() { c.Close(); close(closed) }()
		wantError(t, "a call of a closed client", <-waiting, net.ErrClosed)
		<-closed
		if took := time.Since(begin); took > time.Second {
			t.Errorf("closing the client took %v", took)
		}
		n.close()
	})
}
