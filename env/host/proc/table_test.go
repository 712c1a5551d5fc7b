package proc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/env"
	"waldo/wire"
)

func TestCloseEndsEverything(t *testing.T) {
	for _, none := range []bool{false, true} {
		table := New(Options{Environment: []string{"PATH=/usr/bin:/bin"}, Grace: 100 * time.Millisecond, NoCgroups: none})
		var all []env.Process
		for _, script := range []string{
			"exec sleep 1000",
			"trap '' TERM HUP INT; while :; do sleep 1; done",
			"exec yes", // blocks on a log that nobody reads
			"setsid sleep 1000 & exit 3",
		} {
			for _, size := range []*env.Size{nil, {Rows: 24, Columns: 80}} {
				c := sh(script)
				c.Terminal = size
				all = append(all, run(t, table, c))
			}
		}
		begun := time.Now()
		var group sync.WaitGroup
		for range 3 { // it is idempotent, and may be called together
			group.Go(func() {
				if err := table.Close(context30(t)); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("closing took %v", took)
		}
		for _, p := range all {
			if e := exit(t, p); e.Reason == "" && e.Code != 3 {
				t.Errorf("exit %+v", e)
			}
			for range p.Output(context30(t)) { // ends
			}
		}
		if _, err := table.Start(context30(t), sh("true")); !errors.Is(err, ErrClosed) {
			t.Errorf("start after close: %v", err)
		}
		if m, d := table.memory.Used(), table.disk.Used(); m != 0 || d != 0 {
			t.Errorf("%d bytes of memory and %d of disk are still accounted for", m, d)
		}
	}
}

// When ctx ends Close is polite no longer.
func TestCloseInAHurry(t *testing.T) {
	table := New(Options{Grace: time.Hour})
	p := run(t, table, sh("trap '' TERM; echo ready; while :; do sleep .1; done"))
	for chunk, err := range p.Output(context30(t)) {
		if err != nil || strings.Contains(string(chunk.Data), "ready") {
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := table.Close(ctx); err != nil {
		t.Error(err)
	}
	if e := exit(t, p); e.Signal != "KILL" || e.Reason != ErrClosed.Error() {
		t.Errorf("exit %+v", e)
	}
}

func TestMaxProcesses(t *testing.T) {
	table := open(t, Options{MaxProcesses: 2})
	a := run(t, table, sh("exec sleep 1000"))
	run(t, table, sh("exec sleep 1000"))
	if _, err := table.Start(context30(t), sh("true")); !errors.Is(err, env.ErrLimit) {
		t.Errorf("a third: %v", err)
	}
	if err := table.End(context30(t), a.ID(), 0, "made room"); err != nil {
		t.Fatal(err)
	}
	all(t, a)
	if e := exit(t, a); e.Reason != "made room" {
		t.Errorf("exit %+v", e)
	}
	for range 10 {
		if _, err := table.Start(context30(t), env.Command{Argv: []string{"/no/such"}}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what failed takes no place: %v", err)
		}
	}
	waitFor(t, "a place is free", func() bool {
		p, err := table.Start(context30(t), sh("exec sleep 1000"))
		return err == nil && p.Close() == nil
	})
}

func TestForget(t *testing.T) {
	table := open(t, Options{})
	p := run(t, table, sh("exec sleep 1000"))
	if err := table.Forget(p.ID()); !errors.Is(err, env.ErrInvalid) {
		t.Errorf("one that runs: %v", err)
	}
	// Unread output, and something that holds it, are no hindrance.
	p = run(t, table, sh("exec 0</dev/null; yes & exit 0"))
	exit(t, p)
	if err := table.Forget(p.ID()); err != nil {
		t.Error(err)
	}
	for range p.Output(context30(t)) { // ends
	}
	if err := table.Forget(p.ID()); !errors.Is(err, env.ErrUnknownProcess) {
		t.Errorf("again: %v", err)
	}
}

// Finished processes are remembered, but not all for ever; and they are no zombies, though nobody ever reads.
func TestFinishedAreBounded(t *testing.T) {
	table := open(t, Options{MaxRemembered: 20})
	for range 300 {
		p, err := table.Start(context30(t), env.Command{Argv: []string{"/bin/true"}})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
	}
	waitFor(t, "the oldest are forgotten", func() bool {
		infos, err := table.Processes(context30(t))
		return err == nil && len(infos) == 20
	})
	if zombies := zombies(t); zombies > 0 {
		t.Errorf("%d zombies", zombies)
	}
	// Output that nobody has read keeps its record.
	p := run(t, table, sh("echo kept"))
	exit(t, p)
	p.Close()
	for range 50 {
		q := run(t, table, sh("exit 0"))
		all(t, q)
		q.Close()
	}
	again, err := table.Attach(context30(t), p.ID(), env.Attach{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if out, _ := all(t, again); out != "kept\n" {
		t.Errorf("%q", out)
	}
}

// A program that was written this moment can be started this moment.
func TestTextFileBusy(t *testing.T) {
	table := open(t, Options{})
	dir := t.TempDir()
	var group sync.WaitGroup
	for w := range 8 {
		group.Go(func() {
			for i := range 100 {
				path := filepath.Join(dir, fmt.Sprint(w, "-", i))
				if err := os.WriteFile(path, []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
					t.Error(err)
					return
				}
				p, err := table.Start(context30(t), env.Command{Argv: []string{path}})
				if err != nil {
					t.Error(err)
					continue
				}
				<-p.Exited()
				if e, err := p.Exit(); err != nil || e.Code != 7 {
					t.Errorf("%+v, %v", e, err)
				}
				p.Close()
			}
		})
	}
	group.Wait()
}

// Terminals that are terminated, also with somebody outside the session holding on to them, leave nothing behind.
func TestTerminatedTerminalsLeaveNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	table := open(t, Options{MaxRemembered: 1})
	once := func(script string) {
		c := sh(script)
		c.Terminal = &env.Size{Rows: 24, Columns: 80}
		p, err := table.Start(context30(t), c)
		if err != nil {
			t.Fatal(err)
		}
		for chunk, err := range p.Output(context30(t)) {
			if err != nil || strings.Contains(string(chunk.Data), "ready") {
				break
			}
		}
		if err := table.Terminate(context30(t), p.ID(), time.Second); err != nil {
			t.Error(err)
		}
		for range p.Output(context30(t)) {
		}
		p.Close()
	}
	once("echo ready; exec sleep 1000")
	files, routines := descriptors(t), runtime.NumGoroutine()
	for range 50 {
		once("echo ready; exec sleep 1000")
		once("(setsid sleep 1000 </dev/tty >/dev/null 2>&1 &); echo ready; exec sleep 1000")
	}
	waitFor(t, "descriptors and goroutines are back", func() bool {
		return descriptors(t) <= files+64 && runtime.NumGoroutine() <= routines+5 // cgroups are kept for the next
	})
}

// Output that nobody reads does not starve the rest of memory.
func TestMemoryBudgetIsShared(t *testing.T) {
	const (
		slab       = 2 * (wire.HeaderSize + wire.MaxData) // what a log takes of the budget at once
		guaranteed = 64 << 10                             // what it has whatever the budget says
	)
	table := open(t, Options{MemoryBudget: 2 << 20, SpillPerProcess: -1})
	for range 10 {
		run(t, table, sh("exec yes"))
	}
	waitFor(t, "the budget is used up", func() bool { return table.memory.Used() > 2<<20-slab })
	for range 20 {
		p := run(t, table, sh("seq 1 20000"))
		if out, lost := all(t, p); len(out) != 108894 || lost != 0 {
			t.Errorf("%d bytes, %d lost", len(out), lost)
		}
	}
	infos, err := table.Processes(context30(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos[:10] {
		if info.State != env.Running || info.Retained > 2<<20 {
			t.Errorf("%+v", info)
		}
	}
	if used := table.memory.Used(); used > 2<<20+30*guaranteed {
		t.Errorf("%d bytes are used", used)
	}
}

// A detached process goes on to disk and then blocks; its memory is bounded, and all of it comes back.
func TestDetachedSpills(t *testing.T) {
	table := open(t, Options{SpillPerProcess: 8 << 20, SpillDirectory: t.TempDir()})
	p := run(t, table, sh("head -c 30000000 /dev/zero | tr '\\0' x; printf END"))
	p.Close()
	waitFor(t, "it is full", func() bool {
		infos, err := table.Processes(context30(t))
		return err == nil && infos[0].Full && infos[0].Retained > 8<<20
	})
	if table.memory.Used() > 3<<20 || table.disk.Used() < 7<<20 {
		t.Errorf("%d bytes in memory, %d on disk", table.memory.Used(), table.disk.Used())
	}
	again, err := table.Attach(context30(t), p.ID(), env.Attach{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	out, lost := all(t, again)
	if len(out) != 30000003 || lost != 0 || strings.Trim(out, "x") != "END" {
		t.Errorf("%d bytes, %d lost", len(out), lost)
	}
	if n := table.disk.Used(); n != 0 {
		t.Errorf("%d bytes are still on disk", n)
	}
}

func TestConcurrentStartsOfOneID(t *testing.T) {
	table := open(t, Options{})
	var group sync.WaitGroup
	pids := make([]int, 20)
	for i := range pids {
		group.Go(func() {
			c := sh("exec sleep 1000")
			c.ID = "one"
			p, err := table.Start(context30(t), c)
			if err != nil {
				t.Error(err)
				return
			}
			pids[i] = p.Pid()
			p.Close()
		})
	}
	group.Wait()
	for _, pid := range pids {
		if pid != pids[0] {
			t.Fatalf("several were started: %v", pids)
		}
	}
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(names)
}
