package envtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"waldo/env"
)

var endTests = []test{
	{"signal", func(r *rig) {
		p := r.start(sh("trap 'echo usr1; exit 7' USR1; echo ready; while :; do sleep .01; done"))
		r.expect(p, "ready\n")
		if err := p.Signal(r.ctx, "USR1"); err != nil {
			r.Fatal(err)
		}
		r.expect(p, "usr1\n")
		r.wantExit(p, 7)
		r.wantError("no such signal", p.Signal(r.ctx, "NOPE"), env.ErrInvalid)
	}},
	{"signal reaches the group", func(r *rig) {
		p := r.start(sh("trap 'wait; exit 0' INT; sh -c 'trap \"echo child; exit 0\" INT; echo ready; while :; do sleep .01; done'"))
		r.expect(p, "ready\n")
		if err := r.env.Signal(r.ctx, p.ID(), "INT"); err != nil {
			r.Fatal(err)
		}
		if o := r.read(p); o.all != "child\n" {
			r.Errorf("%q", o.all)
		}
	}},
	{"terminate politely", func(r *rig) {
		p := r.start(sh("trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep .01; done"))
		r.expect(p, "ready\n")
		if err := r.env.Terminate(r.ctx, p.ID(), patience); err != nil {
			r.Fatal(err)
		}
		r.wantExit(p, 5)
		if o := r.read(p); !strings.Contains(o.all, "bye\n") {
			r.Errorf("%q", o.all)
		}
	}},
	{"terminate by force", func(r *rig) {
		p := r.start(sh("trap '' TERM INT HUP; echo ready; while :; do sleep .01; done"))
		r.expect(p, "ready\n")
		if err := r.env.Terminate(r.ctx, p.ID(), 50*time.Millisecond); err != nil {
			r.Fatal(err)
		}
		if exit := r.exit(p); exit.Signal != "KILL" || exit.Code != -1 {
			r.Errorf("exit %+v", exit)
		}
		r.read(p)
	}},
	{"terminate what is stopped", func(r *rig) {
		p := r.start(sh("echo ready; kill -STOP $$; exec sleep 100"))
		r.expect(p, "ready\n")
		if err := r.env.Terminate(r.ctx, p.ID(), patience); err != nil {
			r.Fatal(err)
		}
		if exit := r.exit(p); exit.Signal != "TERM" {
			r.Errorf("exit %+v", exit)
		}
	}},
	{"terminate the whole tree", func(r *rig) {
		// Children that have left the group, the session, the parent, and that hold no output.
		dir := r.tempDir()
		child := func(n int) string {
			return fmt.Sprintf("sh -c 'trap \"\" TERM HUP; echo $$ >%s/%d.tmp; mv %s/%d.tmp %s/%d; exec sleep 1000' </dev/null >/dev/null 2>&1 &", dir, n, dir, n, dir, n)
		}
		p := r.start(sh(child(0) + " setsid " + child(1) + " (setsid " + child(2) + "); echo ready; trap '' TERM; while :; do sleep .01; done"))
		r.expect(p, "ready\n")
		pids := r.pids(dir, 3)
		if err := r.env.Terminate(r.ctx, p.ID(), 20*time.Millisecond); err != nil {
			r.Fatal(err)
		}
		r.gone(pids)
	}},
	{"terminate what is left", func(r *rig) {
		dir := r.tempDir()
		p := r.start(sh(fmt.Sprintf("sh -c 'echo $$ >%s/t; mv %s/t %s/0; exec sleep 1000' </dev/null & setsid sh -c 'echo $$ >%s/u; mv %s/u %s/1; exec sleep 1000' </dev/null >/dev/null 2>&1 & exit 3", dir, dir, dir, dir, dir, dir)))
		r.wantExit(p, 3)
		pids := r.pids(dir, 2)
		if err := r.env.Terminate(r.ctx, p.ID(), time.Second); err != nil {
			r.Fatal(err)
		}
		r.gone(pids)
		r.read(p)
		r.wantExit(p, 3) // what it was stays
	}},
	{"after the end", func(r *rig) {
		c := sh("exit 9")
		c.Stdin = true
		p := r.start(c)
		r.read(p)
		r.wantExit(p, 9)
		r.quick("calls on an ended process", func() {
			for range 2 {
				if err := p.Signal(r.ctx, "TERM"); err != nil {
					r.Errorf("signal: %v", err)
				}
				if err := r.env.Signal(r.ctx, p.ID(), "KILL"); err != nil {
					r.Errorf("signal by id: %v", err)
				}
				if err := r.env.Terminate(r.ctx, p.ID(), time.Second); err != nil {
					r.Errorf("terminate: %v", err)
				}
			}
			r.wantError("resize", p.Resize(r.ctx, env.Size{Rows: 1, Columns: 1}), env.ErrInvalid)
			_, err := r.env.Attach(r.ctx, p.ID(), env.Attach{From: 1 << 40})
			r.wantError("a far-off offset", err, env.ErrInvalid)
		})
		r.wantExit(p, 9)
		r.wantOutput(sh("echo ok"), "ok\n")
	}},
	{"output before the end stays", func(r *rig) {
		p := r.start(sh("echo before; exec sleep 100"))
		r.expect(p, "before\n")
		if _, err := p.Exit(); err == nil {
			r.Error("an exit of what runs")
		}
		if err := p.Signal(r.ctx, "INT"); err != nil {
			r.Fatal(err)
		}
		r.read(p)
		if exit := r.exit(p); exit.Signal != "INT" || exit.Offset != 7 {
			r.Errorf("exit %+v", exit)
		}
	}},
	{"wall clock", func(r *rig) {
		c := sh("trap '' TERM; echo ready; sleep 100 & wait; sleep 100")
		c.Limits.WallClock = 100 * time.Millisecond
		p := r.start(c)
		r.read(p)
		if exit := r.exit(p); !strings.Contains(exit.Reason, "100ms") {
			r.Errorf("exit %+v does not tell the limit", exit)
		}
		dir := r.tempDir() // it bounds the tree, not just the leader
		c.Argv[2] = fmt.Sprintf("(trap '' TERM; sh -c 'echo $$ >%s/t; mv %s/t %s/0; exec sleep 1000' >/dev/null 2>&1) & exit 0", dir, dir, dir)
		r.wantExit(r.start(c), 0)
		r.gone(r.pids(dir, 1))
		c.Argv = []string{"true"}
		c.Limits.WallClock = time.Hour
		if exit := r.exit(r.start(c)); exit.Reason != "" || exit.Code != 0 {
			r.Errorf("exit %+v", exit)
		}
	}},
	{"ended contexts", func(r *rig) {
		p := r.start(sh("exec sleep 100"))
		ctx, cancel := context.WithCancel(r.ctx)
		cancel()
		_, err := r.env.Start(ctx, sh("true"))
		r.wantError("start", err, context.Canceled)
		_, err = r.env.Processes(ctx)
		r.wantError("processes", err, context.Canceled)
		_, err = r.env.Describe(ctx)
		r.wantError("describe", err, context.Canceled)
		_, err = r.env.Stat(ctx, r.uri("/"), true)
		r.wantError("stat", err, context.Canceled)
		_, err = r.env.Dial(ctx, "tcp", "127.0.0.1:1")
		r.wantError("dial", err, context.Canceled)
		// Ending one that minds nothing takes as long as its grace; the call need not.
		q := r.start(sh("trap '' TERM; echo ready; while :; do sleep .01; done"))
		r.expect(q, "ready\n")
		ctx, cancel = context.WithTimeout(r.ctx, 20*time.Millisecond)
		defer cancel()
		r.wantError("terminate", r.env.Terminate(ctx, q.ID(), patience), context.DeadlineExceeded)
		if info, _ := r.info(p.ID()); info.State != env.Running {
			r.Errorf("the bystander is %q", info.State)
		}
	}},
}

// pids reads the numbers that n processes have left in dir.
func (r *rig) pids(dir string, n int) (pids []int) {
	r.Helper()
	for i := range n {
		var b []byte
		r.eventually(fmt.Sprintf("child %d is there", i), func() (ok bool) {
			var err error
			b, err = os.ReadFile(filepath.Join(dir, strconv.Itoa(i)))
			return err == nil
		})
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			r.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// gone waits until none of pids runs. A zombie, which only its new parent can remove, does not run.
func (r *rig) gone(pids []int) {
	r.Helper()
	for _, pid := range pids {
		r.eventually(fmt.Sprintf("process %d has ended", pid), func() bool {
			if p, err := os.FindProcess(pid); err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
				return true
			}
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			_, state, _ := strings.Cut(string(stat), ") ")
			return err == nil && strings.HasPrefix(state, "Z")
		})
	}
}
