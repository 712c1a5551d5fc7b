package envtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"waldo/env"
	"waldo/pathuri"
)

var startTests = []test{
	{"exit codes", func(r *rig) {
		for _, code := range []int64{0, 1, 3, 126, 255} {
			_, exit := r.run(sh(fmt.Sprintf("exit %d", code)))
			if exit.Code != code || exit.Signal != "" || exit.Reason != "" {
				r.Errorf("exit %+v, want code %d", exit, code)
			}
		}
		for _, sig := range []env.Signal{"KILL", "TERM", "SEGV"} {
			_, exit := r.run(sh("kill -" + string(sig) + " $$"))
			if exit.Code != -1 || exit.Signal != sig {
				r.Errorf("exit %+v, want signal %s", exit, sig)
			}
		}
	}},
	{"arguments", func(r *rig) {
		args := []string{"", " ", "a b", `"$HOME" * \`, "line\nfeed", "\xff\xfe", "é", "-n", strings.Repeat("x", 100000)}
		o, _ := r.run(env.Command{Argv: append([]string{"/bin/sh", "-c", `printf '%s\0' "$@"`, "sh"}, args...)})
		if want := strings.Join(args, "\x00") + "\x00"; o.all != want {
			r.Errorf("arguments came as %.200q", o.all)
		}
		c := sh("echo $0")
		c.Arg0 = "another name"
		r.wantOutput(c, "another name\n")
	}},
	{"argument too long", func(r *rig) {
		_, err := r.env.Start(r.ctx, env.Command{Argv: []string{"/bin/echo", strings.Repeat("x", 4<<20)}})
		r.wantError("an argument of 4 MiB", err)
	}},
	{"environment", func(r *rig) {
		c := sh(`echo "${A-none} ${B-none} ${HOME+home} ${PATH+path}"`)
		c.Env = []string{"A=1", "A=2", "B=", "HOME"}
		r.wantOutput(c, "2   path\n")
		c = env.Command{Argv: []string{"/usr/bin/env"}, CleanEnv: true, Env: []string{"A=x=y", "B=\xff"}}
		r.wantOutput(c, "A=x=y\nB=\xff\n")
		c = sh("env | grep -v ^WALDO_PROCESS= | grep ^WALDO_ || true") // its cookie is the server's own
		r.wantOutput(c, "")
	}},
	{"directory", func(r *rig) {
		root := r.tempDir()
		for _, name := range []string{"plain", "a b'c\"d$(touch pwn)\nx", "-n", "\xff", "%2F"} {
			dir := filepath.Join(root, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				r.Skip(err)
			}
			c := sh("pwd -P; ls")
			c.Directory = r.uri(dir)
			r.wantOutput(c, dir+"\n")
			c.Argv = []string{"/usr/bin/env"}
			if o, _ := r.run(c); !strings.Contains(o.all, "PWD="+dir+"\n") {
				r.Errorf("PWD is not %q in %q", dir, o.all)
			}
		}
	}},
	{"lookup", func(r *rig) {
		dir := r.tempDir()
		bin := filepath.Join(dir, "bin")
		for _, sub := range []string{bin, filepath.Join(dir, "decoy"), filepath.Join(dir, "decoy", "tool")} {
			if err := os.Mkdir(sub, 0o755); err != nil {
				r.Fatal(err)
			}
		}
		r.file(bin, "tool", "#!/bin/sh\necho found\n", 0o755)
		for _, c := range []env.Command{
			{Argv: []string{"tool"}, Env: []string{"PATH=/nowhere:" + bin}},
			{Argv: []string{"tool"}, Env: []string{"PATH=" + filepath.Join(dir, "decoy") + ":" + bin}}, // a directory is passed over
			{Argv: []string{"tool"}, Env: []string{"PATH=bin"}},
			{Argv: []string{"tool"}, Env: []string{"PATH="}, Directory: r.uri(bin)},
			{Argv: []string{"./tool"}, Directory: r.uri(bin)},
			{Argv: []string{"bin/tool"}},
		} {
			if c.Directory.IsZero() {
				c.Directory = r.uri(dir)
			}
			r.wantOutput(c, "found\n")
		}
	}},
	{"errors", startErrors},
	{"invalid", func(r *rig) {
		one := []string{"/bin/true"}
		for name, c := range map[string]env.Command{
			"no argv":           {},
			"empty argv[0]":     {Argv: []string{""}},
			"NUL in argv[0]":    {Argv: []string{"a\x00b"}},
			"NUL in an arg":     {Argv: []string{"/bin/echo", "a\x00b"}},
			"NUL in arg0":       {Argv: one, Arg0: "a\x00"},
			"NUL in a value":    {Argv: one, Env: []string{"A=\x00"}},
			"NUL in a name":     {Argv: one, Env: []string{"A\x00=x"}},
			"no name":           {Argv: one, Env: []string{"=x"}},
			"empty variable":    {Argv: one, Env: []string{""}},
			"foreign directory": {Argv: one, Directory: mustParse("file:///C:/Windows")},
			"no rows":           {Argv: one, Terminal: &env.Size{Columns: 80}},
			"no columns":        {Argv: one, Terminal: &env.Size{Rows: 24}},
			"delivery":          {Argv: one, Delivery: "sometimes"},
			"negative limit":    {Argv: one, Limits: env.Limits{Memory: -1}},
		} {
			_, err := r.env.Start(r.ctx, c)
			r.wantError(name, err, env.ErrInvalid)
		}
		r.wantOutput(sh("echo ok"), "ok\n")
	}},
	{"ids", func(r *rig) {
		a, b := r.start(sh("true")), r.start(sh("true"))
		if a.ID() == "" || a.ID() == b.ID() {
			r.Errorf("made ids %q and %q", a.ID(), b.ID())
		}
		c := sh("echo $$")
		c.ID = "mine \x01\xff/../é"
		p := r.start(c)
		o := r.read(p)
		if p.ID() != c.ID || o.all != fmt.Sprintln(p.Pid()) {
			r.Errorf("id %q, pid %d, output %q", p.ID(), p.Pid(), o.all)
		}
		if _, ok := r.info(c.ID); !ok {
			r.Error("it is not listed under its id")
		}
	}},
	{"clean slate", func(r *rig) {
		if runtime.GOOS != "linux" {
			r.Skip("needs /proc")
		}
		o, _ := r.run(sh("grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l; ps -o pid=,pgid=,sid= -p $$ 2>/dev/null || true"))
		lines := strings.Split(o.all, "\n")
		for _, line := range lines[:2] {
			if fields := strings.Fields(line); len(fields) != 2 || strings.Trim(fields[1], "0") != "" {
				r.Errorf("signals are not at their defaults: %q", o.all)
			}
		}
		if fds := strings.TrimSpace(lines[2]); fds != "4" { // the three, and the directory itself
			r.Errorf("%s descriptors are open", fds)
		}
		if ids := strings.Fields(lines[3]); len(ids) == 3 && (ids[0] != ids[1] || ids[0] != ids[2]) {
			r.Errorf("the leader does not lead a session of its own: %q", lines[3])
		}
	}},
	{"many at once", func(r *rig) {
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				c := sh(fmt.Sprintf("echo %d; exit %d", i, i))
				p, err := r.env.Start(r.ctx, c)
				if err != nil {
					r.Error(err)
					return
				}
				defer p.Close()
				o := r.read(p)
				<-p.Exited()
				if exit, err := p.Exit(); err != nil || exit.Code != int64(i) || o.all != fmt.Sprintln(i) {
					r.Errorf("%d: %q, %+v, %v", i, o.all, exit, err)
				}
			})
		}
		group.Wait()
	}},
	{"list", func(r *rig) {
		c := sh("echo abc; read x", "one", "two words")
		c.Stdin = true
		p := r.start(c)
		r.expect(p, "abc\n")
		info, ok := r.info(p.ID())
		switch {
		case !ok:
			r.Fatal("a running process is not listed")
		case info.Pid != p.Pid() || strings.Join(info.Argv, "|") != strings.Join(c.Argv, "|") || info.State != env.Running ||
			info.Started.IsZero() || info.Exit != nil || info.Terminal || info.Delivery != env.Lossless || !info.Owned ||
			info.Watchers != 0 || info.Output != 4:
			r.Errorf("listed as %+v", info)
		}
		watcher := r.attach(p.ID(), env.Attach{Watch: true})
		if info, _ := r.info(p.ID()); info.Watchers != 1 {
			r.Errorf("%d watchers, want 1", info.Watchers)
		}
		if err := watcher.Close(); err != nil {
			r.Error(err)
		}
		r.eventually("the watcher is gone", func() bool { info, _ := r.info(p.ID()); return info.Watchers == 0 })
		if _, err := p.Write(r.ctx, []byte("x\n")); err != nil {
			r.Fatal(err)
		}
		r.read(p)
		r.wantExit(p, 0)
		r.eventually("it is closed", func() bool {
			info, ok = r.info(p.ID())
			return ok && info.State == env.Closed
		})
		if info.Exit == nil || info.Exit.Code != 0 || info.Ended.Before(info.Started) || info.Stdin != 2 {
			r.Errorf("listed as %+v", info)
		}
	}},
	{"usage", func(r *rig) {
		p := r.start(sh("echo go; while :; do :; done"))
		r.expect(p, "go\n")
		r.eventually("cpu time and memory are told", func() bool {
			info, _ := r.info(p.ID())
			return info.CPU > 0 && info.Memory > 0
		})
	}},
	{"limits", func(r *rig) {
		for _, limits := range []env.Limits{{Memory: 256 << 20}, {Processes: 20}} {
			c := sh("echo ok")
			c.Limits = limits
			p, err := r.env.Start(r.ctx, c)
			if err != nil {
				r.wantError("a limit that is not enforced", err, errors.ErrUnsupported)
				continue
			}
			if o := r.read(p); o.all != "ok\n" {
				r.Errorf("under %+v: %q", limits, o.all)
			}
			p.Close()
		}
	}},
}

func mustParse(text string) pathuri.URI {
	uri, err := pathuri.Parse(text)
	if err != nil {
		panic(err)
	}
	return uri
}

// startErrors: what cannot be started says why, is told apart, and leaves nothing behind.
func startErrors(r *rig) {
	dir := r.tempDir()
	foreign := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xf3\x00\x01\x00\x00\x00" + strings.Repeat("\x00", 200) // RISC-V, or MIPS on it
	messages := map[string]string{}
	for _, test := range []struct {
		name  string
		argv0 string
		say   string
		wants []error
	}{
		{"not found", "nosuchprogram", "not found", []error{fs.ErrNotExist}},
		{"no such file", dir + "/none", "does not exist", []error{fs.ErrNotExist}},
		{"escape bytes", "\x1b[31mnope\x07", `\x1b[31mnope`, []error{fs.ErrNotExist}},
		{"interpreter", r.file(dir, "nointerp", "#!/no/such/sh\n", 0o755), `interpreter "/no/such/sh"`, []error{fs.ErrNotExist}},
		{"carriage return", r.file(dir, "crlf", "#!/bin/sh\r\necho\r\n", 0o755), "carriage return", []error{fs.ErrNotExist}},
		{"directory", dir, "is a directory", nil},
		{"not executable", r.file(dir, "plain", "#!/bin/sh\n", 0o644), "not executable", []error{fs.ErrPermission}},
		{"no #!", r.file(dir, "text", "echo hi\n", 0o755), "exec format", nil},
		{"other machine", r.file(dir, "foreign", foreign, 0o755), "exec format", nil},
		{"empty", r.file(dir, "empty", "", 0o755), "exec format", nil},
	} {
		_, err := r.env.Start(r.ctx, env.Command{ID: test.name, Argv: []string{test.argv0}})
		r.wantError(test.name, err, append(test.wants, env.ErrStart)...)
		if err != nil {
			if !strings.Contains(err.Error(), test.say) {
				r.Errorf("%s: %q does not say %q", test.name, err, test.say)
			}
			if before, ok := messages[err.Error()]; ok {
				r.Errorf("%s and %s are not told apart", before, test.name)
			}
			messages[err.Error()] = test.name
		}
		if _, ok := r.info(test.name); ok {
			r.Errorf("%s: it is listed", test.name)
		}
	}
	_, err := r.env.Start(r.ctx, env.Command{Argv: []string{"/bin/true"}, Directory: r.uri(dir + "/none")})
	r.wantError("no such directory", err, env.ErrStart, fs.ErrNotExist)
	_, err = r.env.Start(r.ctx, env.Command{Argv: []string{"/bin/true"}, Directory: r.uri(dir + "/text")})
	r.wantError("directory is a file", err, env.ErrStart)
	c := sh("echo ok")
	c.ID = "not found" // an id that failed is free
	r.wantOutput(c, "ok\n")
}
