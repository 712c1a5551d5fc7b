package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/env"
	"waldo/wire/wiretest"
)

// until reads output until it ends with text.
func until(t *testing.T, p env.Process, text string) string {
	t.Helper()
	var got strings.Builder
	for chunk, err := range p.Output(t.Context()) {
		if err != nil {
			t.Fatalf("waited for %q after %q: %v", text, got.String(), err)
		}
		got.Write(chunk.Data)
		if strings.HasSuffix(got.String(), text) {
			return got.String()
		}
	}
	t.Fatalf("waited for %q, got %q", text, got.String())
	return ""
}

// A conversation that is cut after any number of bytes, in either direction, is the same conversation.
func TestCutAnywhere(t *testing.T) {
	r := newRig(t, ServerOptions{})
	dir := t.TempDir()
	converse := func(t *testing.T, name string, fault func(*wiretest.Faulty)) {
		marker := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		var once sync.Once
		client, err := Dial(t.Context(), ClientOptions{Token: r.token, Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.address)
			if err != nil {
				return nil, err
			}
			faulty := wiretest.NewFaulty(conn)
			once.Do(func() { fault(faulty) })
			return faulty, nil
		}})
		if err != nil {
			return // cut before HELLO was out
		}
		defer client.Close()
		p, err := client.Start(t.Context(), env.Command{
			Argv: sh(fmt.Sprintf("echo once >>%s; cat; echo err >&2; exit 3", marker)), Stdin: true,
		})
		if err != nil {
			if client.Ready(t.Context()) == nil {
				t.Errorf("start: %v", err)
			}
			return // the first HELLO was cut: that one is not tried again
		}
		var input bytes.Buffer
		for i := range 300 {
			fmt.Fprintf(&input, "line %d\n", i)
		}
		for _, part := range bytes.SplitAfter(input.Bytes(), []byte("99\n")) {
			if _, err := p.Write(t.Context(), part); err != nil {
				t.Errorf("write: %v", err)
			}
		}
		if err := p.CloseStdin(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		output := collect(t, p)
		if output[env.Stdout] != input.String() || output[env.Stderr] != "err\n" {
			t.Errorf("output %q", output)
		}
		if exit, err := p.Exit(); err != nil || exit.Code != 3 || exit.Offset != int64(input.Len())+4 {
			t.Errorf("exit %+v, %v", exit, err)
		}
		if started, _ := os.ReadFile(marker); string(started) != "once\n" {
			t.Errorf("started: %q", started)
		}
	}
	var conversation *wiretest.Faulty
	converse(t, "whole", func(f *wiretest.Faulty) { conversation = f })
	read, written := conversation.Count()
	const steps = 60
	for i := range int64(steps) {
		at := i*read/steps + 1
		t.Run(fmt.Sprint("read ", at), func(t *testing.T) {
			t.Parallel()
			converse(t, t.Name()[len("TestCutAnywhere/"):], func(f *wiretest.Faulty) { f.CutRead(at) })
		})
		at2 := i*written/steps + 1
		t.Run(fmt.Sprint("written ", at2), func(t *testing.T) {
			t.Parallel()
			converse(t, t.Name()[len("TestCutAnywhere/"):], func(f *wiretest.Faulty) { f.CutWrite(at2) })
		})
	}
}

// An end-of-file is typed once, however often the connection is cut around it.
func TestTypedEndSurvivesCuts(t *testing.T) {
	r := newRig(t, ServerOptions{})
	client := r.dialAccepted(t, ClientOptions{})
	p, err := client.Start(t.Context(), env.Command{Argv: sh("for i in 1 2 3 4 5 6; do cat; echo next $i; done"), Terminal: &env.Size{Rows: 24, Columns: 80}})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 6; i++ {
		r.proxy.Cut()
		if _, err := p.Write(t.Context(), fmt.Appendf(nil, "text %d\n", i)); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- p.CloseStdin(t.Context()) }()
		r.proxy.Cut()
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		got := until(t, p, fmt.Sprintf("next %d\r\n", i))
		if strings.Count(got, "next") != 1 {
			t.Fatalf("one end of file gave %q", got)
		}
	}
	<-p.Exited()
}

// Many reconnects leave nothing behind, and nothing is held for a consumer that does not read.
func TestManyReconnects(t *testing.T) {
	r := newRig(t, ServerOptions{})
	client := r.dialAccepted(t, ClientOptions{})
	p, err := client.Start(t.Context(), env.Command{Argv: []string{"yes"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Terminate(t.Context(), p.ID(), 0) //nolint:errcheck // it ends with the machine
	counts := func() (goroutines, files int) {
		if _, err := client.Processes(t.Context()); err != nil {
			t.Fatal(err)
		}
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(list)
	}
	goroutines, files := counts()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 100 {
		r.proxy.Cut()
		if _, err := client.Processes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 96<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	eventually(t, func() error {
		g, f := counts()
		if g > goroutines+20 || f > files+20 {
			return fmt.Errorf("%d goroutines and %d files, %d and %d before", g, f, goroutines, files)
		}
		return nil
	})
	next := int64(0)
	for chunk, err := range p.Output(t.Context()) {
		if err != nil || chunk.Offset != next || chunk.Lost != 0 {
			t.Fatalf("chunk at %d (lost %d), want %d; %v", chunk.Offset, chunk.Lost, next, err)
		}
		if next += int64(len(chunk.Data)); next > 4<<20 {
			break
		}
	}
}

// eventually waits for what has no event.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// Another client takes a process over: the older one is told, types nothing more, and the lease moves.
func TestTakeBetweenClients(t *testing.T) {
	r := newRig(t, ServerOptions{})
	a, b := r.dial(t, ClientOptions{Session: "a"}), r.dial(t, ClientOptions{Session: "b"})
	p, err := a.Start(t.Context(), env.Command{ID: "p", Argv: []string{"cat"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	p.Write(t.Context(), []byte("one\n")) //nolint:errcheck // what comes back tells
	until(t, p, "one\n")
	watcher, err := b.Attach(t.Context(), "a/p", env.Attach{From: -1})
	if err != nil || watcher.Owner() {
		t.Fatalf("owner %v, %v", watcher.Owner(), err)
	}
	until(t, watcher, "one\n")
	taker, err := b.Attach(t.Context(), "a/p", env.Attach{From: 4, Take: true})
	if err != nil || !taker.Owner() {
		t.Fatalf("owner %v, %v", taker.Owner(), err)
	}
	<-p.Exited()
	_, err = p.Exit()
	wantError(t, "the older owner", err, env.ErrFenced)
	_, err = p.Write(t.Context(), []byte("no\n"))
	wantError(t, "its write", err, env.ErrFenced)
	taker.Write(t.Context(), []byte("two\n")) //nolint:errcheck // what comes back tells
	until(t, taker, "two\n")
	until(t, watcher, "two\n")
	// a's end is not the process's any more.
	if err := a.Goodbye(t.Context(), false); err != nil {
		t.Error(err)
	}
	if err := taker.CloseStdin(t.Context()); err != nil {
		t.Error(err)
	}
	<-taker.Exited()
	if exit, err := taker.Exit(); err != nil || exit.Code != 0 {
		t.Errorf("exit %+v, %v", exit, err)
	}
}

// A process that reads nothing while much waits for it can be signalled, resized and left at once.
func TestJammedInput(t *testing.T) {
	client := newRig(t, ServerOptions{}).dial(t, ClientOptions{})
	p, err := client.Start(t.Context(), env.Command{Argv: sh("trap 'echo usr1' USR1; echo ready; while :; do sleep .01; done"), Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	until(t, p, "ready\n")
	wrote := make(chan error, 1)
	go func() {
		_, err := p.Write(t.Context(), make([]byte, 100<<20))
		wrote <- err
	}()
	eventually(t, func() error {
		if p.StdinOffset() == 0 {
			return errors.New("the pipe is not full")
		}
		return nil
	})
	if err := p.Signal(t.Context(), "USR1"); err != nil {
		t.Error(err)
	}
	until(t, p, "usr1\n")
	begin := time.Now()
	p.Close()
	if took := time.Since(begin); took > detachWithin/2 {
		t.Errorf("Close took %v", took)
	}
	if err := <-wrote; err == nil {
		t.Error("it wrote all")
	}
	again, err := client.Attach(t.Context(), p.ID(), env.Attach{From: -1})
	if err != nil || !again.Owner() {
		t.Errorf("it was not let go: %v", err)
	}
	if err := client.Terminate(t.Context(), p.ID(), 0); err != nil {
		t.Error(err)
	}
}

// What was accepted and not taken is an error of a later call, once.
func TestLostInputIsTold(t *testing.T) {
	client := newRig(t, ServerOptions{}).dial(t, ClientOptions{})
	p, err := client.Start(t.Context(), env.Command{Argv: sh("exec sleep 0.05"), Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(t.Context(), make([]byte, 500_000)); err != nil { // more than a pipe holds
		t.Fatal(err)
	}
	wantError(t, "close", p.CloseStdin(t.Context()), env.ErrStdinClosed)
	if err := p.CloseStdin(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
	_, err = p.Write(t.Context(), []byte("x"))
	wantError(t, "write", err, env.ErrStdinClosed)
}

// Every byte of names survives, and a list has no bound.
func TestNamesAndLongList(t *testing.T) {
	client := newRig(t, ServerOptions{}).dial(t, ClientOptions{})
	p, err := client.Start(t.Context(), env.Command{
		ID: "i\xff", Argv: []string{"/bin/sh", "-c", `printf %s "$1$V"`, "sh", "\xff<&>"}, Env: []string{"V=\xfe\x01"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, p)[env.Stdout]; got != "\xff<&>\xfe\x01" {
		t.Errorf("output %q", got)
	}
	list, err := client.Processes(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "i\xff" || list[0].Argv[4] != "\xff<&>" {
		t.Errorf("listed %+v, %v", list, err)
	}
	fake := newFake()
	n := newNetwork(t, fake, ServerOptions{})
	defer n.close()
	c := n.client(ClientOptions{})
	defer c.Close()
	for i := range 2000 {
		fake.Start(t.Context(), env.Command{ID: fmt.Sprintf("s/%060d", i)}) //nolint:errcheck // returns nil
	}
	if list, err := c.Processes(t.Context()); err != nil || len(list) != 2000 {
		t.Errorf("%d of 2000 processes, %v", len(list), err)
	}
}

// A relay that acknowledges itself gets what it has not acknowledged again, across cuts and attachments.
func TestExplicitAck(t *testing.T) {
	r := newRig(t, ServerOptions{})
	client := r.dialAccepted(t, ClientOptions{})
	p, err := client.Start(t.Context(), env.Command{Argv: sh("head -c 2000000 /dev/zero; echo END; exec sleep 100"), ExplicitAck: true})
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for chunk, err := range p.Output(t.Context()) {
		if err != nil || chunk.Offset != n || chunk.Lost != 0 {
			t.Fatalf("chunk at %d (lost %d), want %d; %v", chunk.Offset, chunk.Lost, n, err)
		}
		before := n
		if n += int64(len(chunk.Data)); n/200_000 != before/200_000 {
			r.proxy.Cut() // what was handed out and not acknowledged does not come twice
			p.Ack(n / 2)
		}
		if n == 2000004 {
			break
		}
	}
	p.Close()
	again, err := client.Attach(t.Context(), p.ID(), env.Attach{From: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	n = 1_000_000
	for chunk, err := range again.Output(t.Context()) {
		if err != nil || chunk.Offset != n || chunk.Lost != 0 {
			t.Fatalf("chunk at %d (lost %d), want %d; %v", chunk.Offset, chunk.Lost, n, err)
		}
		if n += int64(len(chunk.Data)); n == 2000004 {
			break
		}
	}
	if err := client.Terminate(t.Context(), p.ID(), 0); err != nil {
		t.Error(err)
	}
}
