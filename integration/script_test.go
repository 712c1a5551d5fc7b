package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// storyPatience bounds whatever a story waits for.
const storyPatience = 30 * time.Second

// TestStories runs the stories of testdata/script with the real programs: see the commands below for what they
// can say beyond testscript's own.
func TestStories(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the stories are written for a POSIX machine")
	}
	dir := programs(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			for _, home := range []string{"home", "waldo"} {
				if err := os.Mkdir(filepath.Join(e.WorkDir, home), 0o700); err != nil {
					return err
				}
			}
			state := filepath.Join(e.WorkDir, "waldo")
			e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
			e.Setenv("WALDO_HOME", state)
			e.Setenv("XDG_RUNTIME_DIR", "")
			e.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
			e.Defer(func() {
				if err := endDaemon(filepath.Join(state, "exec-server")); err != nil {
					t.Error(err)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server":    startServer,
			"code":      wantCode,
			"within":    within,
			"random":    random,
			"same":      same,
			"signalled": signalled,
			"closed":    closedOutput,
			"awaits":    awaits,
			"echoes":    echoes,
			"captured":  captured,
			"forwards":  forwards,
		},
	})
}

// server [FLAG]... --listen URL...
// starts an exec-server that ends with the story, and sets URL, URL2 … to where it listens, PIN to its pin.
func startServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: server [FLAG]... --listen URL...")
	}
	ctx, cancel := context.WithCancel(context.Background())
	command := storyCommand(ctx, ts, append([]string{"exec-server"}, args...))
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = storyPatience
	stdout, err := command.StdoutPipe()
	ts.Check(err)
	stderr := command.Stderr.(*lockedBuffer)
	ts.Check(command.Start())
	ts.Defer(func() {
		cancel()
		command.Wait() //nolint:errcheck // the signal
		if said := stderr.String(); said != "" {
			ts.Logf("exec-server: %s", said)
		}
		if strings.Contains(stderr.String(), "DATA RACE") {
			ts.Fatalf("the race detector has found something in exec-server")
		}
	})
	lines := bufio.NewScanner(stdout)
	for i := range slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s != "--listen" }) {
		if !lines.Scan() {
			cancel()
			command.Wait() //nolint:errcheck // what it said tells
			ts.Fatalf("exec-server does not listen: %s", stderr.String())
		}
		name := "URL"
		if i > 0 {
			name += strconv.Itoa(i + 1)
		}
		ts.Setenv(name, lines.Text())
	}
	if !strings.Contains(strings.Join(args, " "), "tls://") {
		return
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for pin := ""; pin == ""; <-again.C { // it was said before the URL, but may have to be read yet
		pin = regexp.MustCompile(`sha256:\S+`).FindString(stderr.String())
		ts.Setenv("PIN", pin)
	}
}

// code N PROGRAM [ARG]...
// runs a program that has to end with exit code N.
func wantCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM [ARG]...")
	}
	got := codeOf(ts, ts.Exec(args[1], args[2:]...))
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}

func codeOf(ts *testscript.TestScript, err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	ts.Fatalf("%v", err)
	return 0
}

// within D code N PROGRAM [ARG]...
// does the same, and wants it done within D (five times that under the race detector, which is slow).
func within(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 || args[1] != "code" {
		ts.Fatalf("usage: within D code N PROGRAM [ARG]...")
	}
	bound, err := time.ParseDuration(args[0])
	ts.Check(err)
	if withRace {
		bound *= 5
	}
	began := time.Now()
	wantCode(ts, false, args[2:])
	if took := time.Since(began); took > bound {
		ts.Fatalf("it took %v, more than %v", took, bound)
	}
}

// random FILE SIZE
// writes a file of bytes that do not repeat, the same each time.
func random(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: random FILE SIZE")
	}
	size, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	_, err = io.CopyN(f, rand.NewChaCha8(sha256.Sum256([]byte(args[0]))), size)
	ts.Check(err)
}

// same FILE FILE
// compares binary files; "stdout" is the last one.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: same FILE FILE")
	}
	a, b := ts.ReadFile(args[0]), ts.ReadFile(args[1])
	if a != b {
		ts.Fatalf("%s (%d bytes) and %s (%d bytes) differ", args[0], len(a), args[1], len(b))
	}
}

// signalled SIGNAL[,SIGNAL]... CODE REGEXP PROGRAM [ARG]...
// runs a program, sends the signals one after another, each when the standard output matches once more, and wants
// the exit code.
func signalled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: signalled SIGNAL[,SIGNAL]... CODE REGEXP PROGRAM [ARG]...")
	}
	match, err := regexp.Compile(args[2])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), storyPatience)
	defer cancel()
	command := storyCommand(ctx, ts, args[3:])
	output, err := command.StdoutPipe()
	ts.Check(err)
	ts.Check(command.Start())
	lines := bufio.NewScanner(output)
	for _, name := range strings.Split(args[0], ",") {
		for found := false; !found; found = match.Match(lines.Bytes()) {
			if !lines.Scan() {
				ts.Fatalf("the output ended without a match for %s: %v %s", match, command.Wait(), command.Stderr)
			}
		}
		ts.Check(command.Process.Signal(signals[name]))
	}
	for lines.Scan() { // to the end
	}
	if got := codeOf(ts, command.Wait()); strconv.Itoa(got) != args[1] {
		ts.Fatalf("exit code %d, want %s; %s", got, args[1], command.Stderr)
	}
}

var signals = map[string]os.Signal{
	"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL,
}

// closed CODE PROGRAM [ARG]...
// runs a program whose standard output is closed after its first line, and wants the exit code.
func closedOutput(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: closed CODE PROGRAM [ARG]...")
	}
	ctx, cancel := context.WithTimeout(context.Background(), storyPatience)
	defer cancel()
	command := storyCommand(ctx, ts, args[1:])
	output, err := command.StdoutPipe()
	ts.Check(err)
	ts.Check(command.Start())
	bufio.NewReaderSize(output, 16).ReadString('\n') //nolint:errcheck // a line or none
	ts.Check(output.Close())
	if got := codeOf(ts, command.Wait()); strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit code %d, want %s; %s", got, args[0], command.Stderr)
	}
}

// awaits REGEXP PROGRAM [ARG]...
// runs a program again and again until its output matches (with !, until it does not).
func awaits(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: [!] awaits REGEXP PROGRAM [ARG]...")
	}
	match, err := regexp.Compile(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), storyPatience)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		command := storyCommand(ctx, ts, args[1:])
		output, err := command.Output()
		if err == nil && match.Match(output) != neg {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			ts.Fatalf("it never came: %v\n%s%s", err, output, command.Stderr)
		}
	}
}

// echoes VARIABLE
// starts a TCP server that sends back what it gets once it has got it all, and then "done"; VARIABLE is its port.
func echoes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: echoes VARIABLE")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer conn.Close()
				all, err := io.ReadAll(conn)
				if err == nil {
					conn.Write(append(all, "done"...)) //nolint:errcheck // the client tells
				}
			})
		}
	})
	ts.Defer(func() {
		l.Close()
		tasks.Wait()
	})
	ts.Setenv(args[0], strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// captured VARIABLE PROGRAM [ARG]...
// runs a program and puts its standard output, less the line's end, into a variable.
func captured(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: captured VARIABLE PROGRAM [ARG]...")
	}
	ts.Check(ts.Exec(args[1], args[2:]...))
	ts.Setenv(args[0], strings.TrimRight(ts.ReadFile("stdout"), "\n"))
}

func storyCommand(ctx context.Context, ts *testscript.TestScript, args []string) *exec.Cmd {
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Path, command.Err = lookIn(ts, args[0]), nil
	command.Dir, command.Env = ts.MkAbs("."), environment(ts)
	command.Stderr = &lockedBuffer{}
	command.WaitDelay = time.Second
	return command
}

// lookIn finds a program on the story's PATH.
func lookIn(ts *testscript.TestScript, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if file := filepath.Join(dir, name); dir != "" {
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				return file
			}
		}
	}
	ts.Fatalf("no program %s", name)
	return ""
}

// environment is the story's, as far as our programs look at it.
func environment(ts *testscript.TestScript) (environ []string) {
	for _, name := range []string{"HOME", "WALDO_HOME", "PATH", "TMPDIR", "WORK", "TERM", "LANG", "GORACE"} {
		if value := ts.Getenv(name); value != "" {
			environ = append(environ, fmt.Sprintf("%s=%s", name, value))
		}
	}
	return environ
}

// lockedBuffer is a buffer that is written by one goroutine and read by another.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// forwards WAY FILE
// runs app-server forward, sends a file through 8 connections at a time, wants it back after the half-close, and
// ends it with an interrupt.
func forwards(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: forwards WAY FILE")
	}
	want := ts.ReadFile(args[1])
	ctx, cancel := context.WithTimeout(context.Background(), storyPatience)
	defer cancel()
	command := storyCommand(ctx, ts, []string{"app-server", "forward", "-e", ts.Getenv("URL"), args[0]})
	output, err := command.StdoutPipe()
	ts.Check(err)
	ts.Check(command.Start())
	lines := bufio.NewScanner(output)
	if !lines.Scan() {
		ts.Fatalf("forward does not listen: %v %s", command.Wait(), command.Stderr)
	}
	var tasks sync.WaitGroup
	outcome := make([]error, 8)
	for i := range outcome {
		tasks.Go(func() { outcome[i] = throughAndBack(lines.Text(), want) })
	}
	tasks.Wait()
	ts.Check(errors.Join(outcome...))
	ts.Check(command.Process.Signal(os.Interrupt))
	if err := command.Wait(); err != nil {
		ts.Fatalf("forward: %v %s", err, command.Stderr)
	}
}

func throughAndBack(address, want string) error {
	conn, err := net.DialTimeout("tcp", address, storyPatience)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(storyPatience)) //nolint:errcheck // a TCP connection has deadlines
	if _, err := io.WriteString(conn, want); err != nil {
		return err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(conn)
	if err == nil && string(got) != want+"done" {
		err = fmt.Errorf("%d bytes came back of %d, or others", len(got), len(want)+4)
	}
	return err
}
