package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// rig is a server and a home for clients of it.
type rig struct {
	t      *testing.T
	dir    string // of the programs
	home   string
	socket string
	server *exec.Cmd
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, dir: programs(t), home: t.TempDir()}
	r.socket = filepath.Join(r.home, "s.sock")
	r.serve()
	t.Cleanup(func() { r.stop(syscall.SIGTERM) })
	return r
}

// serve starts the server and waits until it listens.
func (r *rig) serve() {
	r.t.Helper()
	r.server = r.command("exec-server", "--listen", "unix://"+r.socket)
	stdout, err := r.server.StdoutPipe()
	if err == nil {
		err = r.server.Start()
	}
	if err == nil {
		_, err = stdout.Read(make([]byte, 1))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) stop(s os.Signal) {
	r.server.Process.Signal(s) //nolint:errcheck // it may have ended
	r.server.Wait()            //nolint:errcheck // the signal
}

func (r *rig) command(program string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(r.dir, program), args...)
	c.Dir = r.home
	c.Env = []string{"HOME=" + r.home, "WALDO_HOME=" + r.home, "PATH=" + r.dir + ":" + os.Getenv("PATH"), "TERM=xterm", "SHELL=/bin/sh", "PS1=$ ", "HISTFILE="}
	return c
}

// client is the output of app-server with the server as its environment.
func (r *rig) client(args ...string) string {
	r.t.Helper()
	out, err := r.command("app-server", append([]string{args[0], "-e", "unix://" + r.socket}, args[1:]...)...).Output()
	if err != nil {
		r.t.Fatalf("app-server %q: %v", args, err)
	}
	return string(out)
}

// await waits until the client's output matches, or does not.
func (r *rig) await(pattern string, want bool, args ...string) {
	r.t.Helper()
	match := regexp.MustCompile(pattern)
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(storyPatience); ; {
		out := r.client(args...)
		if match.MatchString(out) == want {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			r.t.Fatalf("app-server %q: match for %q should be %v in\n%s", args, pattern, want, out)
		}
	}
}

// window is a terminal in which app-server runs.
type window struct {
	t       *testing.T
	master  *os.File
	command *exec.Cmd
	before  unix.Termios
	ended   chan struct{} // the output has

	mu   sync.Mutex
	all  []byte
	seen int // of all, by expect
	more chan struct{}
}

// open starts app-server with the server as its environment in a window.
func (r *rig) open(rows, columns uint16, args ...string) *window {
	r.t.Helper()
	w := &window{t: r.t, ended: make(chan struct{}), more: make(chan struct{}, 1)}
	master, slave, err := pty.Open()
	if err != nil {
		r.t.Fatal(err)
	}
	w.master = pollable(r.t, master)
	defer slave.Close()
	w.resize(rows, columns)
	w.before = w.mode()
	w.command = r.command("app-server", append([]string{args[0], "-e", "unix://" + r.socket}, args[1:]...)...)
	w.command.Stdin, w.command.Stdout, w.command.Stderr = slave, slave, slave
	w.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := w.command.Start(); err != nil {
		r.t.Fatal(err)
	}
	go w.read()
	r.t.Cleanup(func() {
		w.command.Process.Kill() //nolint:errcheck // it may have ended
		w.command.Wait()         //nolint:errcheck // as above
		w.master.Close()
		<-w.ended
	})
	return w
}

// pollable makes a terminal's master one whose Close wakes who reads it.
func pollable(t *testing.T, master *os.File) *os.File {
	t.Helper()
	defer master.Close()
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), master.Name())
}

// control runs f on the terminal's descriptor.
func (w *window) control(f func(fd int) error) {
	w.t.Helper()
	connection, err := w.master.SyscallConn()
	if err == nil {
		controlErr := connection.Control(func(fd uintptr) { err = f(int(fd)) })
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *window) read() {
	defer close(w.ended)
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.master.Read(buffer)
		w.mu.Lock()
		w.all = append(w.all, buffer[:n]...)
		w.mu.Unlock()
		select {
		case w.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// mode is how the terminal is set.
func (w *window) mode() unix.Termios {
	w.t.Helper()
	var mode *unix.Termios
	w.control(func(fd int) (err error) {
		mode, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return *mode
}

func (w *window) resize(rows, columns uint16) {
	w.t.Helper()
	w.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}

// send types.
func (w *window) send(text string) {
	w.t.Helper()
	if _, err := w.master.WriteString(text); err != nil {
		w.t.Fatal(err)
	}
}

// expect waits for output that matches, behind what was expected before, and returns the match.
func (w *window) expect(pattern string) []string {
	w.t.Helper()
	match := regexp.MustCompile(pattern)
	for deadline, over := time.After(storyPatience), false; ; {
		w.mu.Lock()
		rest := w.all[w.seen:]
		if at := match.FindSubmatchIndex(rest); at != nil {
			var found []string
			for _, group := range match.FindSubmatch(rest) {
				found = append(found, string(group))
			}
			w.seen += at[1]
			w.mu.Unlock()
			return found
		}
		text := string(rest)
		w.mu.Unlock()
		if over {
			w.t.Fatalf("no match for %q in %q", pattern, text)
		}
		select {
		case <-w.more:
		case <-w.ended:
			over = true
		case <-deadline:
			over = true
		}
	}
}

// exits waits for the end of the program, and wants the exit code and the terminal as it was before.
func (w *window) exits(code int) {
	w.t.Helper()
	done := make(chan struct{})
	go func() {
		w.command.Wait() //nolint:errcheck // ProcessState tells
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(storyPatience):
		w.t.Fatalf("app-server does not end; it said %q", w.text())
	}
	if got := w.command.ProcessState.ExitCode(); got != code {
		w.t.Errorf("exit code %d, want %d; it said %q", got, code, w.text())
	}
	if after := w.mode(); after != w.before {
		w.t.Errorf("the terminal is set to %+v, was %+v", after, w.before)
	}
}

func (w *window) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.all)
}

// shell opens a shell, with a prompt that nothing else looks like.
func (r *rig) shell(rows, columns uint16) *window {
	r.t.Helper()
	w := r.open(rows, columns, "shell")
	w.send("PS1='PRO''MPT> '\r")
	w.expect("PROMPT> ")
	return w
}

func TestShell(t *testing.T) {
	r := newRig(t)
	w := r.shell(41, 123)
	w.send("stty size; echo $TERM $0\r")
	w.expect(`\r41 123\r\nxterm -\w+\r\n`)
	w.resize(30, 90)
	w.send("until [ \"$(stty size)\" = '30 90' ]; do :; done; echo resized\r")
	w.expect(`\rresized\r\n`)

	// Keys are the shell's: an interrupt is for what runs there.
	w.send("sleep 600\r")
	r.await(`shell .*\n`, true, "ps")
	w.expect("sleep 600\r\n")
	w.send("\x03")
	w.expect("PROMPT> ")
	w.send("~~?\r~?")
	w.expect(`~. detaches`)
	w.send("\rexit 7\r")
	w.exits(7)
	r.await("shell", false, "ps")
}

// TestTerminalSizeAtOnce: the size is right before the first byte.
func TestTerminalSizeAtOnce(t *testing.T) {
	r := newRig(t)
	for range 20 {
		w := r.open(41, 123, "run", "-t", "--", "stty", "size")
		w.expect(`^41 123\r\n`)
		w.exits(0)
	}
}

func TestShellDetach(t *testing.T) {
	r := newRig(t)
	w := r.shell(24, 80)
	w.send("MARK=kept; printf '\\033[?1049h\\033[?25lfull'; printf ' %s\\n' screen\r")
	w.expect("full screen")
	w.expect("PROMPT> ")
	w.send("~.")
	id := w.expect(`\r\napp-server: detached from (\w+/shell), which lives for 10m without a client; to come back: \S*app-server attach -e unix://\S+ (\w+/shell)`)[1]
	w.exits(0)
	if text := w.text(); !strings.Contains(text, "\x1b[?1049l") || !strings.Contains(text, "\x1b[?25h") {
		t.Errorf("the screen is not given back in %q", text)
	}

	// Attached again by the beginning of its name, in a window of another size.
	w = r.open(30, 100, "attach", id[:4])
	w.expect("full screen")
	w.send("\recho $MARK; until [ \"$(stty size)\" = '30 100' ]; do :; done; echo resized\r")
	w.expect(`\rkept\r\n`)
	w.expect(`resized\r\n`)

	// Somebody else watches, and then takes it over.
	watcher := r.open(24, 80, "attach", "--watch", id)
	watcher.expect("kept")
	w.send("echo see''n\r")
	watcher.expect("seen")
	watcher.send("\x03")
	watcher.expect(`\r\napp-server: detached from .*; to come back: .* --watch ` + id + `\r\n`)
	watcher.exits(0)

	taker := r.open(24, 80, "attach", "--take", id)
	w.expect(`\r\napp-server: ` + id + ` was taken over by somebody else; to take it back: \S*app-server attach -e unix://\S+ --take ` + id + `\r\n`)
	w.exits(125)
	taker.send("\rexit 5\r")
	taker.exits(5)
}

// TestShellHangUp: the shell ends with its window.
func TestShellHangUp(t *testing.T) {
	r := newRig(t)
	w := r.shell(24, 80)
	w.master.Close()
	r.await("shell", false, "ps")
}

// TestShellTerminated: whatever ends the client, the terminal is as it was and the shell lives.
func TestShellTerminated(t *testing.T) {
	r := newRig(t)
	w := r.shell(24, 80)
	if err := w.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.expect("ended by SIGTERM")
	w.exits(143)
	r.await(" running .*detached", true, "ps")
}

// TestShellServerGone: while there is no server the shell says so, ~. leads out, and a new server is no old one.
func TestShellServerGone(t *testing.T) {
	r := newRig(t)
	w, other := r.shell(24, 80), r.shell(24, 80)
	r.stop(syscall.SIGKILL)
	w.expect(`\r\napp-server: connection lost.*; trying to connect again \(Enter ~\. leaves\)\r\n`)
	other.expect(`trying to connect again`)
	other.send("\r~.")
	other.exits(0)
	r.serve()
	w.expect(`app-server: environment unix://\S+: server restarted, its processes are gone\r\n`)
	w.exits(125)
}

// TestPaste: a paste whose echo fills the other direction comes through whole.
func TestPaste(t *testing.T) {
	r := newRig(t)
	w := r.open(24, 80, "run", "-t", "--", "sh", "-c", "echo ready; exec cat")
	w.expect("ready\r\n")
	line := strings.Repeat("x", 59) + "\r"
	const lines = 200 << 10 / 60
	sent := make(chan error, 1)
	go func() {
		_, err := w.master.WriteString(strings.Repeat(line, lines) + "end\r")
		sent <- err
	}()
	// The echo and what cat writes may lie inside one another's lines, but there is no byte too few or too many.
	w.expect(`(?s)d.*d`)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	w.send("\x04")
	w.exits(0)
	for _, part := range []struct {
		text string
		want int
	}{{"x", 2 * 59 * lines}, {"\r", 2*(lines+1) + 1}, {"\n", 2*(lines+1) + 1}} {
		if got := strings.Count(w.text(), part.text); got != part.want {
			t.Errorf("%q is there %d times, want %d", part.text, got, part.want)
		}
	}
}

// TestBackgroundJob: a run in the background is not stopped for a terminal that it does not read.
func TestBackgroundJob(t *testing.T) {
	r := newRig(t)
	run := fmt.Sprintf("app-server run -e unix://%s -- sh -c 'echo beg''un; sleep 0.3; echo do''ne' & wait; fg >/dev/null 2>&1; echo st''ate: $?", r.socket)
	w := r.open(24, 80, "run", "-t", "--", "bash", "-i", "-c", run)
	w.expect("begun")
	w.expect("done")
	w.exits(0)
}

// TestFullScreen runs a full-screen program under tmux: it is drawn, follows a resize, and is drawn again after attach.
func TestFullScreen(t *testing.T) {
	for _, tool := range []string{"tmux", "vim"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	r := newRig(t)
	name := fmt.Sprintf("waldo-test-%d", os.Getpid())
	tmux := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), storyPatience)
		defer cancel()
		c := exec.CommandContext(ctx, "tmux", append([]string{"-L", name, "-f", "/dev/null"}, args...)...)
		c.Env = append(r.command("app-server").Env, "LANG=C.UTF-8", "TMPDIR="+r.home)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v %s", args, err, out)
		}
		return string(bytes.TrimRight(out, "\n"))
	}
	shows := func(pattern string) {
		t.Helper()
		match := regexp.MustCompile(pattern)
		again := time.NewTicker(50 * time.Millisecond)
		defer again.Stop()
		for deadline := time.After(storyPatience); ; {
			screen := tmux("capture-pane", "-p")
			if match.MatchString(screen) {
				return
			}
			select {
			case <-again.C:
			case <-deadline:
				t.Fatalf("no match for %q on\n%s", pattern, screen)
			}
		}
	}
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "line %d\n", i+1)
	}
	if err := os.WriteFile(filepath.Join(r.home, "text"), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	tmux("new-session", "-d", "-x", "80", "-y", "24", "bash --norc")
	defer tmux("kill-server")
	tmux("send-keys", "PS1='HE''RE> '; app-server shell -e unix://"+r.socket, "Enter")
	r.await("shell", true, "ps")
	tmux("send-keys", "PS1='THE''RE> '; clear", "Enter")
	shows(`(?m)^THERE>`)
	tmux("send-keys", "vim -u NONE -N text", "Enter")
	shows(`(?m)^line 1\n(.*\n)*line 23\n`)
	tmux("resize-window", "-x", "90", "-y", "40")
	shows(`(?m)^line 1\n(.*\n)*line 39$`)
	tmux("send-keys", "Escape", ":set nu", "Enter")
	shows(`(?m)^ +1 line 1\n(.*\n)* 39 line 39$`)
	tmux("send-keys", "Enter", "~.")
	shows(`(?m)^HERE>`)
	tmux("send-keys", "clear", "Enter")
	tmux("send-keys", "app-server attach -e unix://"+r.socket+" shell", "Enter")
	shows(`(?m)^ +1 line 1\n(.*\n)* 39 line 39$`)
	tmux("send-keys", ":q", "Enter")
	shows(`(?m)^THERE>`)
	tmux("send-keys", "exit", "Enter")
	shows(`(?m)^HERE>`)
}
