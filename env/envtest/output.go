package envtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"waldo/env"
)

var outputTests = []test{
	{"channels", func(r *rig) {
		o, exit := r.run(sh("echo out; echo err >&2; echo more"))
		if o.out != "out\nmore\n" || o.err != "err\n" || o.end != 13 || exit.Offset != 13 {
			r.Errorf("stdout %q, stderr %q, end %d, exit at %d", o.out, o.err, o.end, exit.Offset)
		}
		o, _ = r.run(sh("exec >&- 2>&-; exit 0"))
		if o.all != "" || o.end != 0 {
			r.Errorf("from closed channels: %q", o.all)
		}
	}},
	{"bytes", func(r *rig) {
		r.wantOutput(sh(`printf 'a\342'; sleep .1; printf '\200\224b\n'`), "a\xe2\x80\x94b\n")
		r.wantOutput(sh(`printf '\342\202'`), "\xe2\x82")
		r.wantOutput(sh(`printf '\033]52;c;eA==\007\000\r\n'`), "\x1b]52;c;eA==\x07\x00\r\n")
		p := r.start(sh(`printf '\377'; exec sleep 100`))
		r.expect(p, "\xff") // not held back
	}},
	{"much", func(r *rig) {
		want, err := exec.Command("seq", "1", "1000000").Output()
		if err != nil {
			r.Skip(err)
		}
		o, exit := r.run(env.Command{Argv: []string{"seq", "1", "1000000"}})
		if sha256.Sum256([]byte(o.all)) != sha256.Sum256(want) || o.lost != 0 || exit.Offset != int64(len(want)) {
			r.Errorf("%d bytes, want %d; %d lost; exit at %d", len(o.all), len(want), o.lost, exit.Offset)
		}
	}},
	{"small pieces", func(r *rig) {
		o, _ := r.run(sh("i=0; while [ $i -lt 3000 ]; do echo $i; echo $i >&2; i=$((i+1)); done"))
		var want strings.Builder
		for i := range 3000 {
			fmt.Fprintln(&want, i)
		}
		if o.out != want.String() || o.err != want.String() {
			r.Errorf("stdout %d bytes, stderr %d, want %d each", len(o.out), len(o.err), want.Len())
		}
	}},
	{"exit does not wait for holders", func(r *rig) {
		for _, test := range []struct {
			script, want string
			code         int64
		}{
			{"sleep 100 & echo hi", "hi\n", 0},
			{"(trap '' TERM; sleep 100) & exit 3", "", 3},
			{"yes >&2 & sleep .1; echo hi; exit 4", "hi\n", 4},
		} {
			p := r.start(sh(test.script))
			r.wantExit(p, test.code)
			exit, _ := p.Exit()
			if exit.Offset == 0 {
				continue // and no end to wait for
			}
			o, err := r.readUntil(p, func(o output) bool { return o.end >= exit.Offset })
			if err != nil || o.out != test.want {
				r.Errorf("%q: %q, want %q; %v", test.script, o.out, test.want, err)
			}
		}
	}},
	{"exit before output", func(r *rig) {
		if _, err := exec.LookPath("bash"); err != nil {
			r.Skip("no bash")
		}
		o, exit := r.run(env.Command{Argv: []string{"bash", "-c", "exec > >(cat) 2>&1; echo x"}})
		if o.all != "x\n" || exit.Code != 0 {
			r.Errorf("%q, %+v", o.all, exit)
		}
	}},
	{"late output", func(r *rig) {
		c := sh("(read x; echo LATE) <&3 & echo NOW")
		c.Argv[2] = "exec 3<&0; " + c.Argv[2]
		c.Stdin = true
		p := r.start(c)
		r.expect(p, "NOW\n")
		exit := r.wantExit(p, 0)
		if exit.Offset != 4 {
			r.Errorf("the exit stands at %d, want 4", exit.Offset)
		}
		if info, _ := r.info(p.ID()); info.State != env.Exited {
			r.Errorf("the state is %q, want %q", info.State, env.Exited)
		}
		if _, err := p.Write(r.ctx, []byte("\n")); err != nil {
			r.Fatal(err)
		}
		if o := r.read(p); o.all != "LATE\n" {
			r.Errorf("late output %q", o.all)
		}
	}},
	{"no tail is lost", func(r *rig) {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 20 {
					p, err := r.env.Start(r.ctx, sh("head -c 30000 /dev/zero | tr '\\0' x; printf END"))
					if err != nil {
						r.Error(err)
						return
					}
					o := r.read(p)
					<-p.Exited()
					exit, err := p.Exit()
					if len(o.all) != 30003 || !strings.HasSuffix(o.all, "END") || err != nil || exit.Offset != 30003 {
						r.Errorf("%d bytes, exit %+v, %v", len(o.all), exit, err)
					}
					p.Close()
				}
			})
		}
		group.Wait()
	}},
	{"lossless blocks", func(r *rig) {
		p := r.start(sh("head -c 40000000 /dev/zero; echo done >&2"))
		r.eventually("the log is full", func() bool { info, _ := r.info(p.ID()); return info.Full })
		if info, _ := r.info(p.ID()); info.State != env.Running || info.Output >= 40000000 || info.Retained > 32<<20 {
			r.Errorf("full at %+v", info)
		}
		o := r.read(p)
		if len(o.out) != 40000000 || o.err != "done\n" || o.lost != 0 {
			r.Errorf("%d bytes, %q, %d lost", len(o.out), o.err, o.lost)
		}
	}},
	{"latest drops and tells", func(r *rig) {
		const size = 128 << 20
		c := sh(fmt.Sprintf("head -c %d /dev/zero; echo END", size))
		c.Delivery = env.Latest
		p := r.start(c)
		r.wantExit(p, 0) // it never blocks
		o := r.read(p)
		if o.lost == 0 || int64(len(o.all))+o.lost != size+4 || !strings.HasSuffix(o.all, "END\n") {
			r.Errorf("%d bytes and %d lost of %d", len(o.all), o.lost, size+4)
		}
		if info, _ := r.info(p.ID()); info.Dropped > o.lost || info.Output != size+4 {
			r.Errorf("dropped %d, output %d, told lost %d", info.Dropped, info.Output, o.lost)
		}
	}},
	{"unread does not stop others", func(r *rig) {
		r.start(sh("exec yes"))
		for range 100 {
			r.wantOutput(sh("echo ok"), "ok\n")
		}
	}},
	{"context", func(r *rig) {
		p := r.start(env.Command{Argv: []string{"cat"}, Stdin: true})
		ctx, cancel := context.WithCancel(r.ctx)
		var last error
		r.quick("output", func() {
			steps := 0
			go cancel()
			for _, err := range p.Output(ctx) {
				last = err
				steps++
			}
			if steps != 1 {
				r.Errorf("%d steps, want the error alone", steps)
			}
		})
		r.wantError("output under an ended context", last, context.Canceled)
		if _, err := p.Write(r.ctx, []byte("still here\n")); err != nil { // the process and the attachment live
			r.Fatal(err)
		}
		r.expect(p, "still here\n")
	}},
	{"breaking off", func(r *rig) {
		p := r.start(sh("echo one; echo two >&2; echo three"))
		var all strings.Builder
		for ended := false; !ended; {
			ended = true
			for chunk, err := range p.Output(r.ctx) {
				if err != nil {
					r.Fatal(err)
				}
				all.Write(chunk.Data)
				ended = false
				break
			}
		}
		for _, line := range []string{"one\n", "two\n", "three\n"} {
			if strings.Count(all.String(), line) != 1 {
				r.Errorf("in pieces: %q", all.String())
			}
		}
	}},
}
