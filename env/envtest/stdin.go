package envtest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"

	"waldo/env"
)

var stdinTests = []test{
	{"none", func(r *rig) {
		p := r.start(env.Command{Argv: []string{"cat"}})
		if o := r.read(p); o.all != "" {
			r.Errorf("read %q", o.all)
		}
		r.wantExit(p, 0)
		p = r.start(sh("exec sleep 100"))
		_, err := p.Write(r.ctx, []byte("x"))
		r.wantError("write to none", err, env.ErrStdinClosed)
		if err := p.CloseStdin(r.ctx); err != nil {
			r.Errorf("close none: %v", err)
		}
	}},
	{"write and close", func(r *rig) {
		c := sh("cat | wc -c")
		c.Stdin = true
		p := r.start(c)
		for _, part := range []string{"a", "", "bc"} {
			if n, err := p.Write(r.ctx, []byte(part)); n != len(part) || err != nil {
				r.Fatalf("write %q: %d, %v", part, n, err)
			}
		}
		r.eventually("standard input stands at 3", func() bool { return p.StdinOffset() == 3 })
		for range 2 {
			if err := p.CloseStdin(r.ctx); err != nil {
				r.Fatal(err)
			}
		}
		if o := r.read(p); strings.TrimSpace(o.all) != "3" {
			r.Errorf("counted %q", o.all)
		}
		_, err := p.Write(r.ctx, []byte("x"))
		r.wantError("write after close", err, env.ErrStdinClosed)
	}},
	{"much both ways", func(r *rig) {
		data := make([]byte, 20<<20)
		rand.NewChaCha8([32]byte{}).Read(data)
		p := r.start(env.Command{Argv: []string{"cat"}, Stdin: true})
		wrote := make(chan error, 1)
		go func() {
			_, err := p.Write(r.ctx, data)
			wrote <- errors.Join(err, p.CloseStdin(r.ctx))
		}()
		o := r.read(p)
		if err := <-wrote; err != nil {
			r.Error(err)
		}
		if !bytes.Equal([]byte(o.all), data) {
			r.Errorf("%d bytes came back of %d", len(o.all), len(data))
		}
	}},
	{"closed by the process", func(r *rig) {
		c := sh("exec <&-; echo closed; exec sleep 100")
		c.Stdin = true
		p := r.start(c)
		r.expect(p, "closed\n")
		_, err := p.Write(r.ctx, make([]byte, 1<<20))
		r.wantError("write to what nobody reads", err, env.ErrStdinClosed)
	}},
	{"after the end", func(r *rig) {
		c := sh("exit 0")
		c.Stdin = true
		p := r.start(c)
		r.read(p)
		r.wantExit(p, 0)
		r.quick("write after the end", func() {
			_, err := p.Write(r.ctx, make([]byte, 1<<20))
			r.wantError("write after the end", err, env.ErrStdinClosed)
			if err := p.CloseStdin(r.ctx); err != nil {
				r.Errorf("close standard input after the end: %v", err)
			}
		})
	}},
	{"cancelled", func(r *rig) {
		c := sh("echo ready; exec sleep 100")
		c.Stdin = true
		p := r.start(c)
		r.expect(p, "ready\n")
		ctx, cancel := context.WithCancel(r.ctx)
		defer cancel()
		done := make(chan struct{})
		var n int
		var err error
		go func() {
			defer close(done)
			n, err = p.Write(ctx, make([]byte, 64<<20))
		}()
		r.eventually("the pipe is full", func() bool { return p.StdinOffset() > 0 })
		cancel()
		r.quick("a cancelled write", func() { <-done })
		r.wantError("a cancelled write", err, context.Canceled)
		const buffer = 4 << 20 // there may be one on the way
		if n >= 64<<20 || int64(n) > p.StdinOffset()+buffer {
			r.Errorf("%d bytes said to be taken, standard input stands at %d", n, p.StdinOffset())
		}
		// A process that does not read can be signalled all the same.
		if err := p.Signal(r.ctx, "KILL"); err != nil {
			r.Error(err)
		}
		if exit := r.exit(p); exit.Signal != "KILL" {
			r.Errorf("exit %+v", exit)
		}
	}},
}
