package proc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
	"waldo/env/host/tree"
)

// role names what this test binary is to do when it is started again by a test.
const roleName = "PROC_TEST_ROLE"

func init() {
	switch os.Getenv(roleName) {
	case "signals":
		roleSignals()
	default:
		return
	}
	os.Exit(0)
}

// zombies counts the children of this program that have ended and that nobody has waited for.
func zombies(t testing.TB) (n int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		b, _ := os.ReadFile(name) // it may be gone
		_, rest, _ := strings.Cut(string(b), ") ")
		if strings.HasPrefix(rest, fmt.Sprintf("Z %d ", os.Getpid())) {
			n++
		}
	}
	return n
}

func check1(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// roleSignals is a server that was started in a bad state: it prints what its child finds.
func roleSignals() {
	check1(tree.CloseInherited())
	check1(tree.DefaultSignals())
	table := New(Options{Environment: []string{"PATH=/usr/bin:/bin"}})
	p, err := table.Start(tctx(), sh("grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l"))
	check1(err)
	for chunk, err := range p.Output(tctx()) {
		check1(err)
		os.Stdout.Write(chunk.Data)
	}
	check1(table.Close(tctx()))
}

// TestInherited: a server that was started with signals ignored and blocked and with descriptors open hands none of
// it on.
func TestInherited(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is needed to block signals")
	}
	const setUp = `
import os, signal, struct, sys
for s in (signal.SIGINT, signal.SIGTSTP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGTTOU): signal.signal(s, signal.SIG_IGN)
# Those that C libraries keep for themselves can be ignored only past the library.
import ctypes
for s in (32, 33): ctypes.CDLL(None).syscall({"x86_64": 13}.get(os.uname().machine, 134), s, struct.pack("QQQQ", 1, 0, 0, 0), None, 8)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR2])
for fd in (7, 20): os.dup2(0, fd, inheritable=True)
os.execv(sys.argv[1], [sys.argv[1]])`
	cmd := exec.Command("python3", "-c", setUp, os.Args[0])
	cmd.Env = append(os.Environ(), roleName+"=signals")
	out, err := cmd.CombinedOutput()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) != 5 || strings.Trim(fields[1]+fields[3], "0") != "" || fields[4] != "4" {
		t.Errorf("%v:\n%s", err, out)
	}
}

// Five hundred terminals are there at once, and cost little.
func TestManyTerminals(t *testing.T) {
	if testing.Short() {
		t.Skip("starts 500 processes")
	}
	const many = 500
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 4*many {
		t.Skipf("%d descriptors are too few", limit.Cur)
	}
	table := open(t, Options{Environment: os.Environ()})
	warm := run(t, table, sh("true"))
	all(t, warm)
	before := resident(t)
	begun := time.Now()
	var processes [many]env.Process
	var group sync.WaitGroup
	for w := range 8 {
		group.Go(func() {
			for i := w; i < many; i += 8 {
				p, err := table.Start(t.Context(), env.Command{Argv: []string{"cat"}, Terminal: &env.Size{Rows: 24, Columns: 80}})
				if err != nil {
					t.Error(err)
					return
				}
				processes[i] = p
			}
		})
	}
	group.Wait()
	started := time.Since(begun)
	for _, p := range processes {
		if _, err := p.Write(t.Context(), []byte("hello\n")); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range processes {
		seen := 0
		for chunk, err := range p.Output(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if seen += len(chunk.Data); seen == 2*len("hello\r\n") {
				break
			}
		}
	}
	took := time.Since(begun)
	threads := count(t, "/proc/self/task")
	cost := (resident(t) - before) / many
	t.Logf("500 terminals: started in %v, all echoed in %v, %d threads, %d KiB resident each", started, took, threads, cost>>10)
	if threads >= 30 {
		t.Errorf("%d threads", threads)
	}
	if !raceEnabled && cost > 64<<10 {
		t.Errorf("%d bytes resident each", cost)
	}
	for _, p := range processes {
		p.Close()
	}
}

func count(t testing.TB, dir string) int {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func resident(t testing.TB) int64 {
	t.Helper()
	runtime.GC()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

func tctx() context.Context { return context.Background() }
