package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"waldo/env"
	"waldo/env/rpc"
)

// newNetworkUnder is newNetwork with a server that argv starts: the last words of argv are the server's own.
func newNetworkUnder(t *testing.T, argv []string, flags ...string) *network {
	t.Helper()
	n := &network{rig: &rig{t: t, dir: programs(t), home: t.TempDir()}}
	n.server = n.command("exec-server", append(flags, "--listen", "tcp://127.0.0.1:0")...)
	path, err := exec.LookPath(argv[0])
	if err != nil {
		t.Skip(err)
	}
	n.server.Args = append(argv, append([]string{n.server.Path}, n.server.Args[1:]...)...)
	n.server.Path = path
	n.attachServer()
	return n
}

// unshared skips a test where unshare may not do what argv asks for.
func unshared(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], append(argv[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("%q: %v %s", argv, err, out)
	}
}

// output runs a command through the network and returns its standard output.
func (n *network) output(args ...string) string {
	n.t.Helper()
	command := n.through(append([]string{"run"}, args...)...)
	command.Stderr = &lockedBuffer{}
	out, err := command.Output()
	if err != nil {
		n.t.Fatalf("run %q: %v %s", args, err, command.Stderr)
	}
	return string(out)
}

// awaitNone waits until count says 0.
func (n *network) awaitNone(what string, count func() int) {
	n.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(storyPatience); ; {
		got := count()
		if got == 0 {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			n.t.Fatalf("there are still %d %s", got, what)
		}
	}
}

// many starts count times from a few tasks at once.
func many(count int, start func(i int)) {
	var tasks sync.WaitGroup
	turns := make(chan struct{}, 16)
	for i := range count {
		turns <- struct{}{}
		tasks.Go(func() {
			defer func() { <-turns }()
			start(i)
		})
	}
	tasks.Wait()
}

// A server that is PID 1 reaps the orphans of the whole container, and no exit code gets lost over it.
func TestServerIsInit(t *testing.T) {
	t.Parallel()
	argv := []string{"unshare", "-pf", "--mount-proc", "--kill-child"}
	unshared(t, argv...)
	n := newNetworkUnder(t, argv)
	t.Cleanup(func() { // unshare minds no TERM
		child, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", n.server.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(child)))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGTERM)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if pid := strings.TrimSpace(n.output("--", "sh", "-c", "echo $PPID")); pid != "1" {
		t.Fatalf("the server is process %s", pid)
	}
	client := n.connect()
	many(500, func(i int) {
		p, err := client.Start(t.Context(), env.Command{Argv: []string{"sh", "-c", "(sleep 0.2 &); exit 3"}})
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		<-p.Exited()
		if exit, err := p.Exit(); err != nil || exit.Code != 3 {
			t.Errorf("%d: %+v, %v", i, exit, err)
		}
	})
	n.awaitNone("zombies", func() int {
		stats := n.output("--", "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || true")
		return strings.Count(stats, ") Z ")
	})
}

// Processes whose end nobody asked for leave no zombie and little memory.
func TestUnreadProcessesLeaveNothing(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	if _, err := n.connect().Processes(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := n.usage()
	client := n.connect()
	many(500, func(int) {
		if _, err := client.Start(t.Context(), env.Command{Argv: []string{"true"}}); err != nil {
			t.Error(err)
		}
	})
	n.proxy.Cut()
	client.Close()
	n.awaitNone("children", func() int { return n.usage().children })
	if after := n.usage(); !withRace && after.resident > before.resident+64<<20 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// A terminal that is ended gives back all it had, also one that something outside its session holds.
func TestEndedTerminalsLeaveNothing(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	client := n.connect()
	if _, err := client.Processes(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := n.usage()
	many(200, func(i int) {
		script := "echo ready; exec sleep 1000"
		if i%4 == 0 {
			script = "(setsid sleep 1000 </dev/tty &); " + script
		}
		p, err := client.Start(t.Context(), env.Command{Argv: []string{"sh", "-c", script}, Terminal: &env.Size{Rows: 24, Columns: 80}})
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		ended := false
		for _, err := range p.Output(t.Context()) { // to the end, which comes when nobody holds it
			if err == nil && !ended {
				ended = true
				err = client.Terminate(t.Context(), p.ID(), storyPatience)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	n.settles(before)
}

// Output that nobody reads costs a bounded amount of memory and no other command its time.
func TestUnreadOutput(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	client := n.connect()
	before := n.usage().resident
	yes, err := client.Start(t.Context(), env.Command{Argv: []string{"yes"}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 100 {
		p, err := client.Start(t.Context(), env.Command{Argv: []string{"echo", "ok"}})
		if err != nil {
			t.Fatal(err)
		}
		var output []byte
		for chunk, err := range p.Output(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			output = append(output, chunk.Data...)
		}
		if string(output) != "ok\n" {
			t.Errorf("output %q", output)
		}
		p.Close()
	}
	if took := time.Since(began); took > storyPatience {
		t.Errorf("100 commands took %v", took)
	}
	if after := n.usage().resident; !withRace && after > before+200<<20 {
		t.Errorf("the server grew from %d to %d bytes", before, after)
	}
	if err := client.Terminate(t.Context(), yes.ID(), 0); err != nil {
		t.Error(err)
	}
}

// What was dropped is told, to the byte.
func TestLossIsTold(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, "--retain-memory", "1000000", "--retain-spill", "1000000")
	id := strings.TrimSpace(n.output("--detach", "--", "sh", "-c", `head -c 5000000 /dev/zero | tr "\0" x; echo; echo THE_END`))
	attach := n.through("attach", id)
	var stdout, stderr bytes.Buffer
	attach.Stdout, attach.Stderr = &stdout, &stderr
	if err := attach.Run(); err != nil {
		t.Fatalf("attach: %v %s", err, &stderr)
	}
	lost := 0
	for _, told := range regexp.MustCompile(`(?m)^app-server: lost (\d+) bytes at offset \d+$`).FindAllStringSubmatch(stderr.String(), -1) {
		bytes, err := strconv.Atoi(told[1])
		if err != nil {
			t.Fatal(err)
		}
		lost += bytes
	}
	if lost == 0 || lost+stdout.Len() != 5000000+len("\nTHE_END\n") || !strings.HasSuffix(stdout.String(), "x\nTHE_END\n") {
		t.Errorf("%d bytes that end in %q, and lost %d: %s", stdout.Len(), stdout.Bytes()[max(0, stdout.Len()-20):], lost, &stderr)
	}
	// How it ended is told as often as somebody asks.
	id = strings.TrimSpace(n.output("--detach", "--", "sh", "-c", "exit 9"))
	for range 2 {
		again := n.through("attach", id)
		again.Run() //nolint:errcheck // the code tells
		if code := again.ProcessState.ExitCode(); code != 9 {
			t.Errorf("exit code %d", code)
		}
	}
}

// A path is the other machine's: what it means here is never asked.
func TestPathsBelongToTheirMachine(t *testing.T) {
	t.Parallel()
	argv := []string{"unshare", "-m", "--propagation", "private"}
	unshared(t, argv...)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "elsewhere"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", filepath.Join(dir, "w")); err != nil { // here a link, there a directory
		t.Fatal(err)
	}
	n := newNetworkUnder(t, append(argv, "sh", "-c", `mount -t tmpfs none "$0" && mkdir "$0/w" && exec "$@"`, dir))
	for _, args := range [][]string{{"-C", filepath.Join(dir, "w")}, {"-C", dir + "//w/../w/."}} {
		command := n.through(append(append([]string{"run"}, args...), "--", "sh", "-c", "pwd -P; echo $PWD; test ! -L . && touch made")...)
		command.Dir = filepath.Join(dir, "w")
		out, err := command.Output()
		if want := strings.Repeat(filepath.Join(dir, "w")+"\n", 2); err != nil || string(out) != want {
			t.Errorf("%q: %q, %v, want %q", args, out, err, want)
		}
	}
	for _, here := range []string{"w/made", "elsewhere/made"} {
		if _, err := os.Lstat(filepath.Join(dir, here)); err == nil {
			t.Errorf("%s was made here", here)
		}
	}
	command := n.through("run", "-C", filepath.Join(dir, "elsewhere"), "--", "true")
	if out, err := command.CombinedOutput(); err == nil || !strings.Contains(string(out), "does not exist") {
		t.Errorf("a directory that is only here: %v %s", err, out)
	}
}

// The token is in no log, no list of processes, no environment of a command and no error, whoever says it how;
// what control bytes come from outside are in the log only escaped.
func TestTokenAndLog(t *testing.T) {
	t.Parallel()
	const token = "tok-SENTINEL-123"
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			n := &network{rig: &rig{t: t, dir: programs(t), home: t.TempDir()}}
			file := filepath.Join(n.home, "token")
			if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			n.server = n.command("exec-server", "--token-file", file, "--log-level", "debug", "--log-format", format, "--listen", "tcp://127.0.0.1:0")
			n.attachServer()
			log := n.server.Stderr.(*lockedBuffer)
			n.token = file

			seen := n.output("--", "sh", "-c", `env; tr '\0' '\n' </proc/$PPID/environ; tr '\0' '\n' </proc/$PPID/cmdline; ps -ef 2>/dev/null || true`)
			for _, message := range []string{
				"GET /?token=" + token + " HTTP/1.1\r\nHost: " + n.proxy.Addr() + "\r\n\r\n",
				"GET /mux HTTP/1.1\r\nHost: evil." + token + "\r\nOrigin: http://" + token + "\r\nAuthorization: Bearer " + token + "x\r\n\r\n",
				"GET /metrics HTTP/1.1\r\nHost: " + n.proxy.Addr() + "\r\nAuthorization: Bearer " + token + "x\r\nX: \x1b[31m\r\n\r\n",
				token + "\r\n\r\n", `{"token":"` + token + "\"}\n", "\x00" + token + strings.Repeat("\x1b]0;x\x07", 10), "\x16" + token,
			} {
				conn, err := net.Dial("tcp", n.proxy.Addr())
				if err != nil {
					t.Fatal(err)
				}
				conn.SetDeadline(time.Now().Add(storyPatience)) //nolint:errcheck // a TCP connection has deadlines
				io.WriteString(conn, message)                   //nolint:errcheck // it may be cut early
				answer, _ := io.ReadAll(conn)                   // a cut is an answer too
				seen += string(answer)
				conn.Close()
			}
			wrong, err := rpc.Dial(t.Context(), rpc.ClientOptions{Token: token + "-wrong", Dial: func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", n.proxy.Addr())
			}})
			if err == nil {
				err = wrong.Ready(t.Context())
				wrong.Close()
			}
			seen += fmt.Sprintln(err)

			client := n.connect()
			name := "\x1b]0;x\x07\x1b[2J\n\u0090"
			_, err = client.Start(t.Context(), env.Command{Argv: []string{name}, Env: []string{"SECRET=" + token}})
			seen += fmt.Sprintln(err)
			p, err := client.Start(t.Context(), env.Command{ID: name, Argv: []string{"printf", `\033]52;c;eA==\007%.0s`, name}, Env: []string{"SECRET=" + token}})
			if err != nil {
				t.Fatal(err)
			}
			var output []byte
			for chunk, err := range p.Output(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				output = append(output, chunk.Data...)
			}
			if string(output) != "\x1b]52;c;eA==\x07" {
				t.Errorf("output %q", output)
			}
			list, err := client.Processes(t.Context())
			seen += fmt.Sprintf("%+v %v", list, err)
			seen += fmt.Sprintln(client.Signal(t.Context(), name+"no", "TERM"), client.Signal(t.Context(), name, env.Signal(name)))

			n.stop(syscall.SIGQUIT) // and what it says when it crashes
			for what, text := range map[string]string{"the log": log.String(), "what others see": seen} {
				if strings.Contains(text, "SENTINEL") {
					t.Errorf("the token is in %s:\n%s", what, text)
				}
			}
			if !strings.Contains(log.String(), "method=process.start") && !strings.Contains(log.String(), `"method":"process.start"`) {
				t.Errorf("nothing was logged:\n%s", log)
			}
			records, _, _ := strings.Cut(log.String(), "SIGQUIT: quit")
			for line := range strings.Lines(records) {
				line = strings.TrimSuffix(line, "\n")
				if i := strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }); i >= 0 {
					t.Errorf("raw control characters in %q", line)
				}
				if !strings.HasPrefix(line, "time=") && !strings.HasPrefix(line, "{") {
					t.Errorf("no record: %q", line)
				}
			}
		})
	}
}
