package envtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// Faults that users of programs of this kind have met, where no other group has them.
var reportedTests = []test{
	{"script text is left alone", func(r *rig) {
		// Text that ends in a here-document, a comment or a syntax error swallows whatever one wraps around it.
		for _, test := range []struct {
			script, want string
			code         int64
		}{
			{"cat <<'E'\nx\nE", "x\n", 0},
			{"cat <<\\E\ny\nE", "y\n", 0},
			{"echo hi # c", "hi\n", 0},
			{"echo a \\\nb", "a b\n", 0},
			{"true &", "", 0},
			{"exit 5", "", 5},
			{":; }", "", 2},
		} {
			o, exit := r.run(sh(test.script))
			if o.out != test.want || exit.Code != test.code || exit.Signal != "" {
				r.Errorf("%q: output %q, exit %+v, want %q and %d", test.script, o.out, exit, test.want, test.code)
			}
			if test.code == 2 && o.err == "" {
				r.Errorf("%q: the shell's message is missing", test.script)
			}
			r.wantOutput(sh("echo next"), "next\n")
		}
	}},
	{"a background job is no business of the next command", func(r *rig) {
		p := r.start(sh("sleep 100 & echo a"))
		r.expect(p, "a\n")
		r.wantExit(p, 0)
		r.wantOutput(sh("echo b"), "b\n")
	}},
	{"a program that was just written", func(r *rig) {
		// A child that is being started elsewhere may still have it open for writing: "text file busy".
		dir := r.tempDir()
		program, err := os.ReadFile("/bin/true")
		if err != nil {
			r.Skip(err)
		}
		var group sync.WaitGroup
		for worker := range 8 {
			group.Go(func() {
				for i := range 50 {
					path, content := fmt.Sprintf("%s/%d.%d", dir, worker, i), program
					if i%2 == 0 {
						content = []byte("#!/bin/sh\nexit 0\n")
					}
					if err := os.WriteFile(path, content, 0o755); err != nil {
						r.Error(err)
						return
					}
					p, err := r.env.Start(r.ctx, env.Command{Argv: []string{path}})
					if err != nil {
						r.Error(err)
						continue
					}
					r.wantExit(p, 0)
					p.Close()
				}
			})
		}
		group.Wait()
	}},
	{"a program of any name", func(r *rig) {
		dir := filepath.Join(r.tempDir(), "a b'c\"d$(touch pwn)\nx")
		if err := os.Mkdir(dir, 0o755); err != nil {
			r.Skip(err)
		}
		for _, name := range []string{"-n", "a b", "$(touch pwn)", "`touch pwn`;", "a\nb", "é\xff"} {
			path := r.file(dir, name, "#!/bin/sh\nprintf '%s' \"$0\"\n", 0o755)
			c := env.Command{Argv: []string{path}, Directory: r.uri(dir)}
			r.wantOutput(c, path)
			c.Argv, c.Env = []string{name}, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
			r.wantOutput(c, path)
		}
		if _, err := os.Lstat(filepath.Join(dir, "pwn")); err == nil {
			r.Error("a shell has read a name")
		}
	}},
	{"files of any name", func(r *rig) {
		// Each URI leads to its own file, also for names that are no text and those that mean something in a URI.
		dir := r.tempDir()
		uris := map[pathuri.URI]int{}
		for i, name := range []string{
			"a\xffb", "a\xfeb", "a\xef\xbf\xbdb", "a#b", "a?b", "a b", "a+b", "a%20b", "a%FFb", "a;b", "a&b=c", `a"b`, "a<b>", "a\nb",
			"[x]", "~t", "a:b", "é", "e\u0301", "😀", `a\b`, "...", "a\x1b]0;x\x07", "c:",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), make([]byte, i+1), 0o600); err != nil {
				r.Logf("no file %q here: %v", name, err)
				continue
			}
			uri, err := r.uri(dir).JoinName(name)
			if err != nil {
				r.Error(err)
				continue
			}
			uris[uri] = i + 1
			again, err := pathuri.Parse(uri.String())
			if err != nil || again != uri {
				r.Errorf("%q is read as %q, %v", uri, again, err)
			}
			info, err := r.env.Stat(r.ctx, again, false)
			if err != nil || info.Size != int64(i+1) {
				r.Errorf("%q leads to a file of %d bytes, %v; want that of %d", uri, info.Size, err, i+1)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != len(uris) {
			r.Errorf("%d files have %d URIs, %v", len(entries), len(uris), err)
		}
	}},
	{"a drive is no directory", func(r *rig) {
		for _, text := range []string{"file:///c%3A/x", "file:///C:/x", "file:///C%3a/x", "FILE:///c:/x", "file:/c:/x", "file://srv/share/x"} {
			uri := mustParse(text)
			_, err := r.env.Start(r.ctx, env.Command{Argv: []string{"/bin/true"}, Directory: uri})
			r.wantError("a directory "+text, err, env.ErrInvalid)
			_, err = r.env.Stat(r.ctx, uri, true)
			r.wantError("stat of "+text, err)
		}
	}},
	{"an exit asked for again", func(r *rig) {
		c := sh("read x; exit 9")
		c.Stdin = true
		p := r.start(c)
		if _, err := p.Exit(); err == nil {
			r.Error("an exit of what runs")
		}
		if _, err := p.Write(r.ctx, []byte("\n")); err != nil {
			r.Fatal(err)
		}
		for range 3 {
			r.wantExit(p, 9)
			again := r.attach(p.ID(), env.Attach{From: -1, Watch: true})
			r.wantExit(again, 9)
			r.read(again)
			r.wantExit(again, 9)
		}
		if info, _ := r.info(p.ID()); info.Exit == nil || info.Exit.Code != 9 {
			r.Errorf("listed as %+v", info)
		}
	}},
	{"what was dropped before anyone came is told", func(r *rig) {
		const size = 64 << 20
		c := sh(fmt.Sprintf("read x; head -c %d /dev/zero; echo END", size))
		c.Stdin, c.Delivery = true, env.Latest
		p := r.start(c)
		if _, err := p.Write(r.ctx, []byte("\n")); err != nil {
			r.Fatal(err)
		}
		r.wantExit(p, 0)
		for _, how := range []env.Attach{{From: -1, Watch: true}, {From: -1, Take: true}} {
			again := r.attach(p.ID(), how)
			if o := r.read(again); o.lost == 0 || o.start+int64(len(o.all))+o.lost != size+4 || !strings.HasSuffix(o.all, "END\n") {
				r.Errorf("from %d on %d bytes, and %d lost, of %d", o.start, len(o.all), o.lost, size+4)
			}
		}
	}},
	{"calls on what is not there", func(r *rig) {
		p := r.start(sh("exit 0"))
		r.wantExit(p, 0)
		r.quick("calls on an unknown process", func() {
			for range 2 {
				for name, err := range map[string]error{
					"signal":    r.env.Signal(r.ctx, "nope", "TERM"),
					"terminate": r.env.Terminate(r.ctx, "nope", time.Second),
				} {
					r.wantError(name, err, env.ErrUnknownProcess)
				}
				for _, how := range []env.Attach{{}, {From: -1}, {From: 1 << 60}, {Take: true}, {Watch: true}} {
					_, err := r.env.Attach(r.ctx, "nope", how)
					r.wantError("attach", err, env.ErrUnknownProcess)
				}
			}
		})
		r.wantOutput(sh("echo ok"), "ok\n")
	}},
	{"a variable of the request wins at a terminal too", func(r *rig) {
		c := tty(`printf '%s|' "$TERM" "$PAGER" "$GIT_PAGER" "${LESS-none}"`)
		c.Env = []string{"TERM=dumb", "PAGER=sh -c \"echo P; cat\"", "GIT_PAGER=", "LESS"}
		r.wantOutput(c, "dumb|sh -c \"echo P; cat\"||none|")
	}},
	{"a size at once", func(r *rig) {
		for range 20 {
			p := r.start(tty("until [ \"$(stty size)\" = '50 132' ]; do :; done"))
			if err := p.Resize(r.ctx, env.Size{Rows: 50, Columns: 132}); err != nil {
				r.Fatal(err)
			}
			r.read(p)
			r.wantExit(p, 0)
		}
	}},
	{"a secret is in no list and no error", func(r *rig) {
		const secret = "sentinel-4711"
		c := env.Command{ID: "secret", Argv: []string{"sleep", "100"}, Env: []string{"SECRET=" + secret}}
		r.start(c)
		list, err := r.env.Processes(r.ctx)
		if text := fmt.Sprintf("%+v", list); err != nil || strings.Contains(text, secret) {
			r.Errorf("%v in %s", err, text)
		}
		other := c
		other.Argv = []string{"sleep", "200"}
		_, again := r.env.Start(r.ctx, other)
		other = c
		other.ID, other.Argv = "", []string{"nosuchprogram"}
		_, missing := r.env.Start(r.ctx, other)
		other.Env = []string{"SECRET=" + secret + "\x00"}
		_, invalid := r.env.Start(r.ctx, other)
		other.Env = []string{"=" + secret}
		_, unnamed := r.env.Start(r.ctx, other)
		for _, err := range []error{again, missing, invalid, unnamed} {
			if err == nil || strings.Contains(err.Error(), secret) {
				r.Errorf("error %v", err)
			}
		}
		if !errors.Is(unnamed, env.ErrInvalid) {
			r.Errorf("error %v", unnamed)
		}
	}},
}
