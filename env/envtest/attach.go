package envtest

import (
	"fmt"
	"strings"

	"waldo/env"
)

var attachTests = []test{
	{"unknown", func(r *rig) {
		_, err := r.env.Attach(r.ctx, "nope", env.Attach{})
		r.wantError("attach", err, env.ErrUnknownProcess)
		r.wantError("signal", r.env.Signal(r.ctx, "nope", "TERM"), env.ErrUnknownProcess)
		r.wantError("terminate", r.env.Terminate(r.ctx, "nope", 0), env.ErrUnknownProcess)
	}},
	{"detach and return", func(r *rig) {
		p := r.start(env.Command{Argv: []string{"cat"}, Stdin: true})
		write := func(p env.Process, text string) {
			r.Helper()
			if _, err := p.Write(r.ctx, []byte(text)); err != nil {
				r.Fatal(err)
			}
		}
		write(p, "one\n")
		r.expect(p, "one\n")
		for range 2 {
			if err := p.Close(); err != nil {
				r.Fatal(err)
			}
		}
		r.eventually("nobody owns it", func() bool { info, ok := r.info(p.ID()); return ok && !info.Owned })
		again := r.attach(p.ID(), env.Attach{From: 4})
		if !again.Owner() || again.Pid() != p.Pid() || again.ID() != p.ID() {
			r.Errorf("owner %v, pid %d, want %d", again.Owner(), again.Pid(), p.Pid())
		}
		if n := again.StdinOffset(); n != 4 {
			r.Errorf("standard input stands at %d, want 4", n)
		}
		write(again, "two\n")
		r.expect(again, "two\n")
		if err := again.CloseStdin(r.ctx); err != nil {
			r.Error(err)
		}
		r.wantExit(again, 0)
	}},
	{"offsets", func(r *rig) {
		p := r.start(sh("echo 0123456789; echo abcdefghij >&2; exec sleep 100"))
		r.eventually("all is written", func() bool { info, _ := r.info(p.ID()); return info.Output == 22 })
		all := ""
		for from := range int64(22) {
			w := r.attach(p.ID(), env.Attach{From: from, Watch: true})
			o, err := r.readUntil(w, func(o output) bool { return o.end == 22 })
			if err != nil || o.start != from {
				r.Fatalf("from %d it starts at %d, %v", from, o.start, err)
			}
			if from == 0 {
				all = o.all
			}
			if o.all != all[from:] {
				r.Errorf("from %d: %q, want %q", from, o.all, all[from:])
			}
			w.Close()
		}
		w := r.attach(p.ID(), env.Attach{From: -1, Watch: true})
		if o, err := r.readUntil(w, func(o output) bool { return o.end == 22 }); err != nil || o.all != all {
			r.Errorf("from the oldest: %q, %v", o.all, err)
		}
		for _, from := range []int64{23, 1 << 60, -2} {
			_, err := r.env.Attach(r.ctx, p.ID(), env.Attach{From: from, Watch: true})
			r.wantError(fmt.Sprintf("from %d", from), err, env.ErrInvalid)
		}
	}},
	{"start again", func(r *rig) {
		c := sh("echo one; read x; echo $x")
		c.ID, c.Stdin = "again", true
		p := r.start(c)
		r.expect(p, "one\n")
		c.From = 4
		second := r.start(c)
		if !second.Owner() || second.Pid() != p.Pid() {
			r.Errorf("owner %v, pid %d, want %d", second.Owner(), second.Pid(), p.Pid())
		}
		r.fenced(p)
		if _, err := second.Write(r.ctx, []byte("two\n")); err != nil {
			r.Fatal(err)
		}
		r.exit(second)
		other := sh("echo other")
		other.ID = c.ID
		_, err := r.env.Start(r.ctx, other)
		r.wantError("another command", err, env.ErrInvalid)
		third := r.start(c) // after the end: the rest, exit and closed
		if o := r.read(third); o.all != "two\n" {
			r.Errorf("after the end: %q", o.all)
		}
		r.wantExit(third, 0)
	}},
	{"watch", func(r *rig) {
		p := r.start(env.Command{Argv: []string{"cat"}, Stdin: true})
		w := r.attach(p.ID(), env.Attach{Watch: true})
		if w.Owner() || !p.Owner() {
			r.Errorf("the watcher owns: %v, the owner owns: %v", w.Owner(), p.Owner())
		}
		_, err := w.Write(r.ctx, []byte("no"))
		r.wantError("a watcher writes", err, env.ErrFenced)
		r.wantError("a watcher closes standard input", w.CloseStdin(r.ctx), env.ErrFenced)
		second := r.attach(p.ID(), env.Attach{}) // there is an owner, so it watches
		if second.Owner() {
			r.Error("two owners")
		}
		if _, err := p.Write(r.ctx, []byte("seen by all\n")); err != nil {
			r.Fatal(err)
		}
		for _, each := range []env.Process{w, p, second} {
			r.expect(each, "seen by all\n")
		}
		if err := p.CloseStdin(r.ctx); err != nil {
			r.Fatal(err)
		}
		for _, each := range []env.Process{w, p, second} {
			r.read(each)
			r.wantExit(each, 0)
		}
	}},
	{"a watcher paces nothing", func(r *rig) {
		p := r.start(sh("head -c 30000000 /dev/zero; printf END"))
		w := r.attach(p.ID(), env.Attach{Watch: true})
		o := r.read(p)
		if len(o.all) != 30000003 || o.lost != 0 {
			r.Errorf("the owner got %d bytes, %d lost", len(o.all), o.lost)
		}
		late := r.read(w)
		if int64(len(late.all))+late.lost != 30000003 || !strings.HasSuffix(late.all, "END") {
			r.Errorf("the watcher got %d bytes and was told of %d lost", len(late.all), late.lost)
		}
	}},
	{"take", func(r *rig) {
		c := sh("exec sleep 100")
		c.Stdin = true
		p := r.start(c)
		type result struct {
			n   int
			err error
		}
		wrote := make(chan result, 1)
		go func() {
			n, err := p.Write(r.ctx, make([]byte, 32<<20))
			wrote <- result{n, err}
		}()
		r.eventually("the pipe is full", func() bool { info, _ := r.info(p.ID()); return info.Stdin > 0 })
		taker := r.attach(p.ID(), env.Attach{From: -1, Take: true})
		at := taker.StdinOffset()
		var old result
		r.quick("the older owner's write", func() { old = <-wrote })
		r.wantError("the older owner's write", old.err, env.ErrFenced)
		if int64(old.n) > at || taker.StdinOffset() != at {
			r.Errorf("the older owner wrote %d, the new one finds %d and then %d", old.n, at, taker.StdinOffset())
		}
		if !taker.Owner() {
			r.Error("the taker does not own")
		}
		r.fenced(p)
	}},
	{"explicit acknowledgement", func(r *rig) {
		c := sh("head -c 500000 /dev/zero | tr '\\0' x; printf END")
		c.ExplicitAck = true
		p := r.start(c)
		if o := r.read(p); len(o.all) != 500003 {
			r.Errorf("%d bytes", len(o.all))
		}
		p.Close()
		r.eventually("it is detached", func() bool { info, _ := r.info(p.ID()); return !info.Owned })
		again := r.attach(p.ID(), env.Attach{ExplicitAck: true}) // handed over and never acknowledged: all is there
		if o := r.read(again); len(o.all) != 500003 || o.lost != 0 {
			r.Errorf("again: %d bytes, %d lost", len(o.all), o.lost)
		}
		again.Ack(500003)
		again.Ack(1) // goes back: ignored
	}},
	{"unread output waits for an owner", func(r *rig) {
		c := sh("head -c 3000000 /dev/zero | tr '\\0' x; printf END")
		p := r.start(c)
		p.Close()
		var again env.Process
		r.eventually("it is detached", func() bool { info, _ := r.info(p.ID()); return !info.Owned })
		info, err := r.env.Describe(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		for _, ability := range info.Abilities {
			if ability == env.AbilitySpill { // so it can run to its end
				r.eventually("it has ended", func() bool { info, _ := r.info(p.ID()); return info.State == env.Closed })
			}
		}
		again = r.attach(p.ID(), env.Attach{})
		if o := r.read(again); len(o.all) != 3000003 || o.lost != 0 || !strings.HasSuffix(o.all, "END") {
			r.Errorf("%d bytes, %d lost", len(o.all), o.lost)
		}
		r.wantExit(again, 0)
	}},
}

// fenced checks that p, once an owner, can do nothing any more.
func (r *rig) fenced(p env.Process) {
	r.Helper()
	r.quick("a fenced attachment", func() {
		var last error
		for _, err := range p.Output(r.ctx) {
			last = err
		}
		r.wantError("fenced output", last, env.ErrFenced)
		_, err := p.Write(r.ctx, []byte("no"))
		r.wantError("fenced write", err, env.ErrFenced)
	})
	if p.Owner() {
		r.Error("a fenced attachment says it owns")
	}
}
