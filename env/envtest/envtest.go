// Package envtest is what it means to be an [env.Env], as tests. It runs against this machine itself and against
// everything that stands between a caller and it, with nothing but the contract in hand.
//
// The environment under test has to be the machine that the tests run on, since they make files for it. Nothing
// here sleeps: a test waits for what must come, with a deadline that only a fault reaches.
package envtest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// patience is how long something may take that has to happen.
const patience = 30 * time.Second

// Run runs the suite. open opens a fresh environment and closes it when its test ends.
func Run(t *testing.T, open func(t *testing.T) env.Env) {
	if runtime.GOOS == "windows" {
		t.Skip("the suite's commands are POSIX ones")
	}
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"start", startTests}, {"output", outputTests}, {"stdin", stdinTests}, {"attach", attachTests},
		{"end", endTests}, {"terminal", terminalTests}, {"machine", machineTests}, {"reported", reportedTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
					defer cancel()
					test.run(&rig{T: t, env: open(t), ctx: ctx})
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(*rig)
}

// A rig is one test with its environment.
type rig struct {
	*testing.T
	env env.Env
	ctx context.Context
}

func sh(script string, args ...string) env.Command {
	return env.Command{Argv: append([]string{"/bin/sh", "-c", script}, args...)}
}

// start starts c, and ends it with the test.
func (r *rig) start(c env.Command) env.Process {
	r.Helper()
	p, err := r.env.Start(r.ctx, c)
	if err != nil {
		r.Fatalf("start %q: %v", c.Argv, err)
	}
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.env.Terminate(ctx, p.ID(), 0); err != nil && !errors.Is(err, env.ErrUnknownProcess) {
			r.Errorf("terminate %q: %v", c.Argv, err)
		}
		if err := p.Close(); err != nil {
			r.Errorf("close: %v", err)
		}
	})
	return p
}

func (r *rig) attach(id string, how env.Attach) env.Process {
	r.Helper()
	p, err := r.env.Attach(r.ctx, id, how)
	if err != nil {
		r.Fatalf("attach: %v", err)
	}
	r.Cleanup(func() { p.Close() })
	return p
}

// What an output came to.
type output struct {
	all         string // of all channels, in order
	out, err    string
	start, end  int64
	lost        int64
	firstIsLost bool
}

// read reads p's output to its end and checks that no byte is missing that is not told as lost.
func (r *rig) read(p env.Process) output {
	r.Helper()
	o, err := r.readUntil(p, nil)
	if err != nil {
		r.Fatalf("output after %d bytes: %v", len(o.all), err)
	}
	return o
}

// readUntil reads until enough says so, or to the end if it is nil.
func (r *rig) readUntil(p env.Process, enough func(output) bool) (o output, err error) {
	r.Helper()
	var all, stdout, stderr bytes.Buffer
	first := true
	for chunk, err := range p.Output(r.ctx) {
		if err != nil {
			o.all, o.out, o.err = all.String(), stdout.String(), stderr.String()
			return o, err
		}
		if first {
			o.start, o.end, o.firstIsLost = chunk.Offset, chunk.Offset, chunk.Lost > 0
			first = false
		}
		if chunk.Offset != o.end {
			r.Fatalf("a chunk at offset %d follows the end at %d", chunk.Offset, o.end)
		}
		if (len(chunk.Data) == 0) == (chunk.Lost == 0) {
			r.Fatalf("a chunk has %d bytes and reports %d lost", len(chunk.Data), chunk.Lost)
		}
		if chunk.Framed != nil && !bytes.HasSuffix(chunk.Framed, chunk.Data) {
			r.Fatal("a chunk's frame is not its data")
		}
		o.end += int64(len(chunk.Data)) + chunk.Lost
		o.lost += chunk.Lost
		all.Write(chunk.Data)
		switch chunk.Channel {
		case env.Stdout:
			stdout.Write(chunk.Data)
		case env.Stderr:
			stderr.Write(chunk.Data)
		}
		if enough != nil {
			if o.all = all.String(); enough(o) {
				break
			}
		}
	}
	o.all, o.out, o.err = all.String(), stdout.String(), stderr.String()
	return o, nil
}

// expect reads until text has come, and fails when it cannot come any more.
func (r *rig) expect(p env.Process, text string) string {
	r.Helper()
	o, err := r.readUntil(p, func(o output) bool { return strings.Contains(o.all, text) })
	if err != nil || !strings.Contains(o.all, text) {
		r.Fatalf("waited for %q, got %q, then %v", text, o.all, err)
	}
	return o.all
}

// exit waits for p's exit.
func (r *rig) exit(p env.Process) env.Exit {
	r.Helper()
	select {
	case <-p.Exited():
	case <-time.After(patience):
		r.Fatalf("process %q has not exited in %v", p.ID(), patience)
	}
	exit, err := p.Exit()
	if err != nil {
		r.Fatalf("exit: %v", err)
	}
	return exit
}

// wantExit waits for p's exit and checks its code.
func (r *rig) wantExit(p env.Process, code int64) env.Exit {
	r.Helper()
	exit := r.exit(p)
	if exit.Code != code || exit.Signal != "" {
		r.Errorf("exit %+v, want code %d", exit, code)
	}
	return exit
}

// run runs c to its end.
func (r *rig) run(c env.Command) (output, env.Exit) {
	r.Helper()
	p := r.start(c)
	o := r.read(p)
	exit := r.exit(p)
	if exit.Offset > o.end {
		r.Errorf("the exit stands at offset %d, the output ends at %d", exit.Offset, o.end)
	}
	return o, exit
}

// wantOutput runs c and checks what it wrote on all channels and that it ended well.
func (r *rig) wantOutput(c env.Command, want string) {
	r.Helper()
	o, exit := r.run(c)
	if o.all != want || exit.Code != 0 {
		r.Errorf("%q: output %q, want %q; exit %+v", c.Argv, o.all, want, exit)
	}
}

// wantError checks that err is all of wants.
func (r *rig) wantError(what string, err error, wants ...error) {
	r.Helper()
	if err == nil {
		r.Errorf("%s: no error, want %v", what, wants)
	}
	for _, want := range wants {
		if err != nil && !errors.Is(err, want) {
			r.Errorf("%s: error %q is not %q", what, err, want)
		}
	}
	if err != nil {
		for _, c := range err.Error() {
			if c < ' ' || c == 0x7f {
				r.Errorf("%s: error %q has raw control characters", what, err)
				break
			}
		}
	}
}

// quick fails the test when call has not returned in time.
func (r *rig) quick(what string, call func()) {
	r.Helper()
	done := make(chan struct{})
	go func() { defer close(done); call() }()
	select {
	case <-done:
	case <-time.After(patience):
		r.Fatalf("%s hangs", what)
	}
}

// eventually waits until ok says so. It is for what has no event in the contract.
func (r *rig) eventually(what string, ok func() bool) {
	r.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			r.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// info finds one process in the list.
func (r *rig) info(id string) (env.ProcessInfo, bool) {
	r.Helper()
	list, err := r.env.Processes(r.ctx)
	if err != nil {
		r.Fatalf("processes: %v", err)
	}
	for _, info := range list {
		if info.ID == id {
			return info, true
		}
	}
	return env.ProcessInfo{}, false
}

// file makes a file and returns its path.
func (r *rig) file(dir, name, content string, mode fs.FileMode) string {
	r.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		r.Fatal(err)
	}
	return path
}

func (r *rig) uri(path string) pathuri.URI {
	r.Helper()
	uri, err := pathuri.FromNative(path, pathuri.Posix)
	if err != nil {
		r.Fatal(err)
	}
	return uri
}

// tempDir is t.TempDir without symbolic links in it.
func (r *rig) tempDir() string {
	r.Helper()
	dir, err := filepath.EvalSymlinks(r.TempDir())
	if err != nil {
		r.Fatal(err)
	}
	return dir
}
