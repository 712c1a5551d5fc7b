package envtest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"waldo/env"
)

// tty is a command at a terminal.
func tty(script string) env.Command {
	c := sh(script)
	c.Terminal = &env.Size{Rows: 24, Columns: 80}
	return c
}

var terminalTests = []test{
	{"size", func(r *rig) {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 25 {
					p, err := r.env.Start(r.ctx, env.Command{Argv: []string{"stty", "size"}, Terminal: &env.Size{Rows: 41, Columns: 123}})
					if err != nil {
						r.Error(err)
						return
					}
					if o := r.read(p); o.all != "41 123\r\n" {
						r.Errorf("size %q", o.all)
					}
					p.Close()
				}
			})
		}
		group.Wait()
	}},
	{"resize", func(r *rig) {
		p := r.start(tty("trap 'stty size' WINCH; stty size; while :; do sleep .01; done"))
		r.expect(p, "24 80\r\n")
		if err := p.Resize(r.ctx, env.Size{Rows: 50, Columns: 132}); err != nil {
			r.Fatal(err)
		}
		r.expect(p, "50 132\r\n")
		for _, size := range []env.Size{{}, {Rows: 1}, {Columns: 1}} {
			r.wantError("a size of zero", p.Resize(r.ctx, size), env.ErrInvalid)
		}
		if err := p.Resize(r.ctx, env.Size{Rows: 1, Columns: 65535}); err != nil {
			r.Error(err)
		}
		r.expect(p, "1 65535\r\n")
		watcher := r.attach(p.ID(), env.Attach{From: -1, Watch: true})
		r.wantError("a watcher resizes", watcher.Resize(r.ctx, env.Size{Rows: 9, Columns: 9}), env.ErrFenced)
		q := r.start(sh("exec sleep 100"))
		r.wantError("resize of no terminal", q.Resize(r.ctx, env.Size{Rows: 9, Columns: 9}), env.ErrInvalid)
	}},
	{"resize after the end", func(r *rig) {
		p := r.start(tty("exit 0"))
		r.read(p)
		r.wantExit(p, 0)
		r.quick("resize", func() {
			r.wantError("resize", p.Resize(r.ctx, env.Size{Rows: 9, Columns: 9}), env.ErrInvalid)
		})
		r.quick("write", func() {
			_, err := p.Write(r.ctx, []byte("x"))
			r.wantError("write", err, env.ErrStdinClosed)
		})
	}},
	{"a terminal it is", func(r *rig) {
		o, exit := r.run(tty("test -t 0 && test -t 1 && test -t 2 && echo all >/dev/tty"))
		if o.all != "all\r\n" || exit.Code != 0 {
			r.Errorf("%q, %+v", o.all, exit)
		}
		p := r.start(tty("exec sleep 100"))
		if info, _ := r.info(p.ID()); !info.Terminal {
			r.Error("it is not listed as a terminal")
		}
	}},
	{"the end is no error", func(r *rig) {
		var group sync.WaitGroup
		for range 5 {
			group.Go(func() {
				for range 10 {
					p, err := r.env.Start(r.ctx, tty("head -c 300000 /dev/zero | tr '\\0' x; printf END"))
					if err != nil {
						r.Error(err)
						return
					}
					o := r.read(p)
					<-p.Exited()
					if exit, err := p.Exit(); len(o.all) != 300003 || !strings.HasSuffix(o.all, "END") || err != nil || exit.Code != 0 || exit.Offset != 300003 {
						r.Errorf("%d bytes, %+v, %v", len(o.all), exit, err)
					}
					p.Close()
				}
			})
		}
		group.Wait()
	}},
	{"end of file", func(r *rig) {
		// Typed by hand: one ^D after text only hands it over, the second is the end.
		p := r.start(env.Command{Argv: []string{"cat"}, Terminal: &env.Size{Rows: 24, Columns: 80}})
		r.typed(p, "abc\x04")
		r.expect(p, "abcabc")
		r.typed(p, "\x04")
		r.read(p)
		r.wantExit(p, 0)
		// CloseStdin is the end, wherever the cursor stands.
		for _, text := range []string{"", "abc", "abc\n", "abc\x7f\x7f\x7f", "abc\x15", "abc\x04"} {
			p := r.start(env.Command{Argv: []string{"cat"}, Terminal: &env.Size{Rows: 24, Columns: 80}})
			r.typed(p, text)
			before := int64(len(text))
			r.eventually("it is typed", func() bool { return p.StdinOffset() == before })
			if err := p.CloseStdin(r.ctx); err != nil {
				r.Fatal(err)
			}
			r.read(p)
			r.wantExit(p, 0)
			if at := p.StdinOffset(); at != before {
				r.Errorf("end-of-file moved standard input from %d to %d", before, at)
			}
		}
		// It is one end, not two: a shell goes on after what it ran has had it.
		p = r.start(tty("cat; echo next; cat; echo last"))
		r.typed(p, "x\n")
		r.expect(p, "x\r\nx\r\n")
		for _, text := range []string{"next", "last"} {
			if err := p.CloseStdin(r.ctx); err != nil {
				r.Fatal(err)
			}
			r.expect(p, text+"\r\n")
		}
		r.wantExit(p, 0)
	}},
	{"interrupt key", func(r *rig) {
		p := r.start(tty("trap 'echo caught; exit 3' INT; echo ready; while :; do sleep .01; done"))
		r.expect(p, "ready\r\n")
		r.typed(p, "\x03")
		r.expect(p, "caught\r\n")
		r.wantExit(p, 3)
	}},
	{"big paste", func(r *rig) {
		p := r.start(tty("echo ready; exec cat"))
		r.expect(p, "ready\r\n")
		line := strings.Repeat("p", 59)
		paste := strings.Repeat(line+"\n", 3400) // 204,000 bytes
		r.quick("a paste that nobody reads the echo of", func() { r.typed(p, paste) })
		r.wantOutput(sh("echo meanwhile"), "meanwhile\n")
		// Echo and copy mix, also within lines.
		if err := p.CloseStdin(r.ctx); err != nil {
			r.Fatal(err)
		}
		o := r.read(p)
		if n, lines := strings.Count(o.all, "p"), strings.Count(o.all, "\n"); n != 2*3400*59 || lines != 2*3400 {
			r.Errorf("%d characters in %d lines came back, want echo and copy of 3400 lines", n, lines)
		}
	}},
	{"raw", func(r *rig) {
		p := r.start(tty("stty raw -echo; echo ready; head -c 100000 | cksum"))
		r.expect(p, "ready")
		r.typed(p, strings.Repeat("\x00\x03\x04\r\n\x7f\xffx.,", 10000))
		want := r.start(sh("i=0; while [ $i -lt 10000 ]; do printf '\\000\\003\\004\\015\\012\\177\\377x.,'; i=$((i+1)); done | cksum"))
		if got, want := strings.TrimSpace(r.read(p).all), strings.TrimSpace(r.read(want).all); got != want {
			r.Errorf("checksum %q, want %q", got, want)
		}
	}},
	{"background job", func(r *rig) {
		// By the kernel's own rule jobs get HUP when the leader ends.
		p := r.start(tty("(sleep .5; echo LATE) & echo NOW"))
		o := r.read(p)
		if r.wantExit(p, 0); strings.TrimSpace(o.all) != "NOW" {
			r.Errorf("%q", o.all)
		}
		// One that does not mind goes on, and is heard.
		p = r.start(tty("trap '' HUP; (sleep .5; echo LATE) & echo NOW"))
		r.expect(p, "NOW\r\n")
		r.wantExit(p, 0)
		if o := r.read(p); o.all != "LATE\r\n" {
			r.Errorf("%q", o.all)
		}
	}},
	{"terminate", func(r *rig) {
		// An interactive shell minds HUP, not TERM; and something outside the session holds the terminal.
		p := r.start(tty("trap '' TERM; (setsid sleep 1000 </dev/tty &); echo ready; while :; do sleep .01; done"))
		r.expect(p, "ready\r\n")
		if err := r.env.Terminate(r.ctx, p.ID(), patience); err != nil {
			r.Fatal(err)
		}
		if exit := r.exit(p); exit.Signal != "HUP" {
			r.Errorf("exit %+v", exit)
		}
		r.read(p) // closed: the holder has ended too
		q := r.start(tty("exec sleep 1000"))
		if err := r.env.Terminate(r.ctx, q.ID(), time.Second); err != nil {
			r.Fatal(err)
		}
		r.read(q)
	}},
	{"bytes are not altered", func(r *rig) {
		o, _ := r.run(tty(`printf '\033]52;c;eA==\007\302\220\377'`))
		if o.all != "\x1b]52;c;eA==\x07\xc2\x90\xff" {
			r.Errorf("%q", o.all)
		}
	}},
	{"full screen of them", func(r *rig) {
		for i := range 100 {
			p := r.start(env.Command{ID: fmt.Sprint("tty", i), Argv: []string{"cat"}, Terminal: &env.Size{Rows: 24, Columns: 80}})
			r.typed(p, "x\n")
			r.expect(p, "x\r\nx\r\n")
		}
	}},
}

// typed types text.
func (r *rig) typed(p env.Process, text string) {
	r.Helper()
	if n, err := p.Write(r.ctx, []byte(text)); n != len(text) || err != nil {
		r.Fatalf("typed %d bytes of %d: %v", n, len(text), err)
	}
}
