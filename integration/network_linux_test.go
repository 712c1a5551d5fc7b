package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"waldo/env"
	"waldo/env/rpc"
	"waldo/wire/listen"
	"waldo/wire/wiretest"
)

// network is a server on TCP, and a bad network between it and its clients.
type network struct {
	*rig
	proxy *wiretest.Proxy
	token string // its file
}

func newNetwork(t *testing.T, flags ...string) *network {
	n := &network{rig: &rig{t: t, dir: programs(t), home: t.TempDir()}}
	n.server = n.command("exec-server", append(flags, "--listen", "tcp://127.0.0.1:0")...)
	n.attachServer()
	return n
}

// attachServer starts n.server and puts the network before it.
func (n *network) attachServer() {
	n.t.Helper()
	stdout, err := n.server.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	stderr := &lockedBuffer{}
	n.server.Stderr = stderr
	if err := n.server.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		n.stop(syscall.SIGTERM)
		if said := stderr.String(); strings.Contains(said, "DATA RACE") {
			n.t.Error(said)
		}
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		n.t.Fatalf("exec-server does not listen: %v %s", err, stderr)
	}
	address, err := listen.ParseAddress(strings.TrimSpace(url))
	if err != nil {
		n.t.Fatal(err)
	}
	n.proxy = wiretest.NewProxy(n.t, net.JoinHostPort(address.Host, strconv.Itoa(int(address.Port))))
	n.token = filepath.Join(n.home, "exec-server", "token")
}

// through is a client's command that comes to the server through the network.
func (n *network) through(args ...string) *exec.Cmd {
	return n.command("app-server", append([]string{args[0], "-e", "tcp://" + n.proxy.Addr(), "--token-file", n.token}, args[1:]...)...)
}

// connect is a client in this process that comes through the network.
func (n *network) connect() *rpc.Client {
	n.t.Helper()
	token, err := os.ReadFile(n.token)
	if err != nil {
		n.t.Fatal(err)
	}
	client, err := rpc.Dial(n.t.Context(), rpc.ClientOptions{
		Token: strings.TrimSpace(string(token)),
		Dial: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", n.proxy.Addr())
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { client.Close() })
	return client
}

// cutting ends every connection again and again until stop.
func (n *network) cutting(every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var cutter sync.WaitGroup
	cutter.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				n.proxy.Cut()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); cutter.Wait() }
}

// noise is a file of bytes that do not repeat, and their sum.
func noise(t *testing.T, size int64) (path, sum string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "noise")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, hash), rand.NewChaCha8(sha256.Sum256([]byte(t.Name()))), size); err != nil {
		t.Fatal(err)
	}
	return path, hex.EncodeToString(hash.Sum(nil))
}

const cutSize = 200 << 20

func TestOutputSurvivesTheNetwork(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	path, want := noise(t, cutSize)
	marker := filepath.Join(n.home, "started")
	n.proxy.SetRate(60 << 20)
	defer n.cutting(200 * time.Millisecond)()
	command := n.through("run", "--", "sh", "-c", fmt.Sprintf("echo once >> %s; exec cat %s", marker, path))
	hash := sha256.New()
	command.Stdout, command.Stderr = hash, &lockedBuffer{}
	if err := command.Run(); err != nil {
		t.Fatalf("%v %s", err, command.Stderr)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		t.Errorf("sum %s, want %s", got, want)
	}
	if started, _ := os.ReadFile(marker); string(started) != "once\n" {
		t.Errorf("started: %q", started)
	}
	if n.proxy.Accepted() < 5 {
		t.Errorf("only %d connections: nothing was survived", n.proxy.Accepted())
	}
}

func TestInputSurvivesTheNetwork(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	path, want := noise(t, cutSize)
	n.proxy.SetRate(60 << 20)
	defer n.cutting(200 * time.Millisecond)()
	command := n.through("run", "--", "sha256sum")
	input, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	command.Stdin, command.Stderr = input, &lockedBuffer{}
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v %s", err, command.Stderr)
	}
	if got, _, _ := strings.Cut(string(out), " "); got != want {
		t.Errorf("sum %s, want %s", got, want)
	}
	if n.proxy.Accepted() < 5 {
		t.Errorf("only %d connections: nothing was survived", n.proxy.Accepted())
	}
}

// silence is how long the network is silent; WALDO_TEST_SILENCE=30s makes it longer than people wait.
func silence(t *testing.T) time.Duration {
	if text := os.Getenv("WALDO_TEST_SILENCE"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return 8 * time.Second
}

// comesBack is how soon after the network's return everything goes on.
const comesBack = 3 * time.Second

func TestSilentNetwork(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)

	run := n.through("run", "--", "sh", "-c", "while echo tick; do sleep 0.05; done")
	ticks, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer run.Wait()         //nolint:errcheck // the kill
	defer run.Process.Kill() //nolint:errcheck // so that Wait returns
	lines := make(chan string, 1)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(ticks); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			default:
			}
		}
	}()

	shell := n.through("shell")
	terminal, err := pty.StartWithSize(shell, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Wait()         //nolint:errcheck // the kill
	defer shell.Process.Kill() //nolint:errcheck // so that Wait returns
	defer terminal.Close()
	screen := &watched{text: make(chan struct{}, 1)}
	go io.Copy(screen, terminal) //nolint:errcheck // it ends with the terminal
	terminal.Write([]byte("echo fir''st\n"))
	screen.await(t, "first", storyPatience)
	<-lines

	n.proxy.Stall(true)
	drained := time.After(time.Second) // what was on its way has come
	for quiet := false; !quiet; {
		select {
		case <-lines:
		case <-drained:
			quiet = true
		}
	}
	terminal.Write([]byte("echo sec''ond\n"))
	<-time.After(silence(t)) // it is the network that is slow, not the test
	n.proxy.Stall(false)
	returned := time.Now()
	select {
	case _, ok := <-lines:
		if !ok {
			t.Fatal("run has ended")
		}
		t.Logf("run went on %v after the network's return", time.Since(returned))
	case <-time.After(comesBack):
		t.Errorf("run does not go on within %v", comesBack)
	}
	screen.await(t, "second", comesBack-time.Since(returned))
	t.Logf("the shell went on %v after the network's return", time.Since(returned))
}

// watched keeps what is written and tells that something was.
type watched struct {
	lockedBuffer
	text chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	defer func() {
		select {
		case w.text <- struct{}{}:
		default:
		}
	}()
	return w.lockedBuffer.Write(p)
}

func (w *watched) await(t *testing.T, want string, within time.Duration) {
	t.Helper()
	timeout := time.After(within)
	for !strings.Contains(w.String(), want) {
		select {
		case <-w.text:
		case <-timeout:
			t.Fatalf("no %q within %v, but %q", want, within, w.String())
		}
	}
}

// usage is what a server holds.
type usage struct {
	descriptors, threads, children int
	resident                       int64 // bytes
}

func (n *network) usage() (u usage) {
	n.t.Helper()
	proc := fmt.Sprintf("/proc/%d", n.server.Process.Pid)
	descriptors, err := os.ReadDir(proc + "/fd")
	if err != nil {
		n.t.Fatal(err)
	}
	u.descriptors = len(descriptors)
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		fmt.Sscanf(line, "Threads: %d", &u.threads)
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &u.resident); err == nil {
			u.resident <<= 10
		}
	}
	tasks, err := os.ReadDir(proc + "/task")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, task := range tasks {
		children, _ := os.ReadFile(fmt.Sprintf("%s/task/%s/children", proc, task.Name())) // a task may have ended
		u.children += len(strings.Fields(string(children)))
	}
	return u
}

// settles waits until the server holds no more than before.
func (n *network) settles(before usage) {
	n.t.Helper()
	deadline := time.After(storyPatience)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		now := n.usage()
		// The runtime keeps threads once made, and the server a few control groups for the next processes.
		if now.descriptors <= before.descriptors+70 && now.children <= before.children && now.threads < before.threads+30 {
			n.t.Logf("before %+v, after %+v", before, now)
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			n.t.Fatalf("the server held %+v, and now holds %+v", before, now)
		}
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	warm := n.connect()
	if _, err := warm.Processes(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := n.usage()

	t.Run("500 quick tails", func(t *testing.T) {
		client := n.connect()
		var tasks sync.WaitGroup
		turns := make(chan struct{}, 32)
		for i := range 500 {
			turns <- struct{}{}
			tasks.Go(func() {
				defer func() { <-turns }()
				p, err := client.Start(t.Context(), env.Command{Argv: []string{"printf", "tail"}})
				if err != nil {
					t.Error(err)
					return
				}
				defer p.Close()
				var output []byte
				for chunk, err := range p.Output(t.Context()) {
					if err != nil {
						t.Error(err)
					}
					output = append(output, chunk.Data...)
				}
				if exit, err := p.Exit(); string(output) != "tail" || err != nil || exit.Code != 0 {
					t.Errorf("%d: output %q, exit %+v, %v", i, output, exit, err)
				}
			})
		}
		tasks.Wait()
		client.Close()
	})
	n.settles(before)

	t.Run("500 terminals", func(t *testing.T) {
		client := n.connect()
		terminals := make([]env.Process, 500)
		var tasks sync.WaitGroup
		turns := make(chan struct{}, 32)
		for i := range terminals {
			turns <- struct{}{}
			tasks.Go(func() {
				defer func() { <-turns }()
				var err error
				terminals[i], err = client.Start(t.Context(), env.Command{Argv: []string{"cat"}, Terminal: &env.Size{Rows: 24, Columns: 80}})
				if err != nil {
					t.Error(err)
				}
			})
		}
		tasks.Wait()
		if t.Failed() {
			return
		}
		held := n.usage()
		t.Logf("with 500 terminals %+v: %d KiB each", held, (held.resident-before.resident)/500>>10)
		if held.threads > before.threads+30 {
			t.Errorf("%d threads", held.threads)
		}
		for _, p := range terminals {
			tasks.Go(func() {
				if _, err := p.Write(t.Context(), []byte("echo\n")); err != nil {
					t.Error(err)
				}
				var output []byte
				for chunk, err := range p.Output(t.Context()) {
					if err != nil {
						t.Error(err)
						return
					}
					if output = append(output, chunk.Data...); bytes.Count(output, []byte("echo")) == 2 {
						break
					}
				}
			})
		}
		tasks.Wait()
		if err := client.Goodbye(t.Context(), false); err != nil {
			t.Error(err)
		}
		client.Close()
	})
	n.settles(before)

	t.Run("200 reconnects", func(t *testing.T) {
		client := n.connect()
		p, err := client.Start(t.Context(), env.Command{Argv: []string{"cat"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		next, stop := pull(t, p)
		defer stop()
		for i := range 200 {
			accepted := n.proxy.Accepted()
			n.proxy.Cut()
			n.proxy.AwaitAccepted(accepted + 2) // this client's, and the one that warmed up
			line := fmt.Sprintf("line %d\n", i)
			if _, err := p.Write(t.Context(), []byte(line)); err != nil {
				t.Fatal(err)
			}
			if got := next(len(line)); got != line {
				t.Fatalf("got %q, want %q", got, line)
			}
		}
		if err := client.Goodbye(t.Context(), false); err != nil {
			t.Error(err)
		}
		client.Close()
	})
	n.settles(before)
}

// pull reads a process's output so many bytes at a time.
func pull(t *testing.T, p env.Process) (next func(n int) string, stop func()) {
	r, w := io.Pipe()
	var reader sync.WaitGroup
	reader.Go(func() {
		for chunk, err := range p.Output(context.Background()) {
			if err != nil {
				w.CloseWithError(err)
				return
			}
			if _, err := w.Write(chunk.Data); err != nil {
				return
			}
		}
		w.Close()
	})
	return func(n int) string {
			b := make([]byte, n)
			if _, err := io.ReadFull(r, b); err != nil {
				t.Fatal(err)
			}
			return string(b)
		}, func() {
			r.Close()
			p.Close()
			reader.Wait()
		}
}

func TestSlowReaderCostsNoMemory(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	size := int64(1 << 30)
	if withRace {
		size = 256 << 20
	}
	command := n.through("run", "--", "head", "-c", strconv.FormatInt(size, 10), "/dev/zero")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	before := n.usage().resident
	var read, peak int64
	buffer := make([]byte, 1<<20)
	for {
		got, err := out.Read(buffer)
		read += int64(got)
		if read%(64<<20) < int64(got) { // a reader that rests now and then
			<-time.After(20 * time.Millisecond)
			peak = max(peak, n.usage().resident)
		}
		if err != nil {
			break
		}
	}
	if err := command.Wait(); err != nil || read != size {
		t.Fatalf("%d bytes, %v", read, err)
	}
	bound := int64(64 << 20)
	if withRace {
		bound *= 4
	}
	t.Logf("resident %d KiB before, %d KiB at the most", before>>10, peak>>10)
	if peak > before+bound {
		t.Errorf("the server grew from %d to %d bytes", before, peak)
	}
}

func TestSignalPassesWaitingInput(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	path, _ := noise(t, 100<<20)
	input, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	command := n.through("run", "--", "sh", "-c", "echo ready; exec sleep 60")
	command.Stdin = input
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	began := time.Now()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	command.Wait() //nolint:errcheck // the code tells
	if code := command.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A server that was started in the background of a script, or by nohup, ignores signals; its children must not.
func TestChildrenGetDefaultSignals(t *testing.T) {
	for name, start := range map[string]string{
		"background": `trap "" INT QUIT; "$@" & wait`,
		"nohup":      `exec nohup "$@"`,
		"all":        `trap "" HUP INT QUIT PIPE TERM USR1 USR2 ALRM CHLD TSTP TTIN TTOU; exec "$@"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &network{rig: &rig{t: t, dir: programs(t), home: t.TempDir()}}
			n.server = n.command("exec-server", "--listen", "tcp://127.0.0.1:0", "--exit-idle", "2s")
			n.server.Path = "/bin/sh"
			n.server.Args = append([]string{"sh", "-c", start, "sh", filepath.Join(n.dir, "exec-server")}, n.server.Args[1:]...)
			n.server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			n.attachServer()
			t.Cleanup(func() { syscall.Kill(-n.server.Process.Pid, syscall.SIGKILL) }) //nolint:errcheck // it may have ended
			out, err := n.through("run", "--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status").Output()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(out)) {
				if _, set, _ := strings.Cut(strings.TrimSpace(line), "\t"); strings.Trim(set, "0") != "" {
					t.Errorf("a child has %s", line)
				}
			}
			out, err = n.through("run", "--", "sh", "-c", `trap "echo caught" INT; kill -INT $$; echo on`).Output()
			if err != nil || string(out) != "caught\non\n" {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}

// A server that is told to end tells its clients how their processes have ended.
func TestServerEndIsTold(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	command := n.through("run", "--", "sh", "-c", "echo ready; sleep 60")
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	if err := n.server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	command.Wait() //nolint:errcheck // the code tells
	if code := command.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d, want 143", code)
	}
}

// A run whose connection is lost ends when it is told to.
func TestTerminatedWhileLost(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	command := n.through("run", "--", "sh", "-c", "echo ready; sleep 60")
	screen := &watched{text: make(chan struct{}, 1)}
	command.Stderr = screen
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	n.proxy.Refuse(true)
	n.proxy.Cut()
	screen.await(t, "trying to connect again", storyPatience)
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	command.Wait() //nolint:errcheck // the code tells
	if code := command.ProcessState.ExitCode(); code != 143 || !strings.Contains(screen.String(), "leaves") {
		t.Errorf("exit code %d, want 143; %q", code, screen)
	}
}

// A forward that nobody uses ends, too, when its environment is gone for good.
func TestIdleForwardEnds(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, "--max-lease", "1s")
	command := n.through("forward", "0:1")
	stderr := &lockedBuffer{}
	command.Stderr = stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v, %s", line, err, stderr)
	}
	n.proxy.Refuse(true)
	n.proxy.Cut()
	command.Wait() //nolint:errcheck // the code tells
	if code := command.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "not connected for") {
		t.Errorf("exit code %d, want 1; %s", code, stderr)
	}
}
