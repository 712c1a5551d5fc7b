package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
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
)

// role names what this test binary is to do when it is started again by a test.
const roleName = "PROC_TEST_ROLE"

func init() {
	switch os.Getenv(roleName) {
	case "signals":
		roleSignals()
	case "reaper":
		roleReaper()
	default:
		return
	}
	os.Exit(0)
}

// zombies counts the children of this program that have ended and that nobody has waited for.
func zombies(t testing.TB) (n int) {
	t.Helper()
	for _, stat := range theProcesses.now() {
		if stat.state == 'Z' && stat.parent == os.Getpid() {
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
	check1(CloseInherited())
	check1(DefaultSignals())
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

// roleReaper is a server as process 1, or as subreaper. Its children leave orphans, and so do plain ones of os/exec.
func roleReaper() {
	stop, err := StartReaper(slog.Default())
	check1(err)
	defer stop()
	table := New(Options{Environment: []string{"PATH=/usr/bin:/bin"}})
	var group sync.WaitGroup
	var mu sync.Mutex
	wrong := 0
	note := func(ok bool, what ...any) {
		if !ok {
			mu.Lock()
			defer mu.Unlock()
			if wrong++; wrong < 10 {
				fmt.Println(what...)
			}
		}
	}
	const each = 15
	for range 16 {
		group.Go(func() {
			for range each {
				c := sh("(sleep 0.2 &); (setsid sleep 0.1 >/dev/null 2>&1 &); exit 3")
				p, err := table.Start(tctx(), c)
				if err != nil {
					note(false, err)
					continue
				}
				<-p.Exited()
				e, err := p.Exit()
				note(err == nil && e.Code == 3, "table:", e, err)
				p.Close()
			}
		})
		group.Go(func() {
			for range each {
				err := exec.Command("/bin/sh", "-c", "(setsid sleep 0.1 >/dev/null 2>&1 &); exit 4").Run()
				exit, _ := err.(*exec.ExitError)
				note(exit != nil && exit.ExitCode() == 4, "os/exec:", err)
			}
		})
	}
	group.Wait()
	left := -1
	for range 400 {
		left = 0
		for _, stat := range theProcesses.now() {
			if stat.parent == os.Getpid() {
				left++
			}
		}
		if left == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	note(left == 0, left, "children are left")
	check1(table.Close(tctx()))
	if wrong == 0 {
		fmt.Println("all right")
	}
}

func TestReaper(t *testing.T) {
	self := exec.Command(os.Args[0])
	first := exec.Command("unshare", "-pf", "--mount-proc", os.Args[0])
	for name, cmd := range map[string]*exec.Cmd{"subreaper": self, "process 1": first} {
		t.Run(name, func(t *testing.T) {
			if cmd == first {
				if out, err := exec.Command("unshare", "-pf", "--mount-proc", "true").CombinedOutput(); err != nil {
					t.Skipf("no pid namespaces here: %v: %s", err, out)
				}
			}
			cmd.Env = append(os.Environ(), roleName+"=reaper")
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "all right\n" {
				t.Errorf("%v:\n%s", err, out)
			}
		})
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

func TestParseStat(t *testing.T) {
	const text = "12 (a) b (c)) S 3 4 5 0 -1 4194560 1 2 3 4 70 30 8 9 20 0 1 0 9876 1000 25 18446744073709551615"
	s, err := parseStat(text)
	want := procStat{state: 'S', parent: 3, group: 4, session: 5, cpu: time.Second, resident: 25 * int64(os.Getpagesize()), start: 9876}
	if s != want || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	for n := range len(text) - 25 {
		parseStat(text[:n]) //nolint:errcheck // it must not panic
	}
}

// A server that was killed leaves empty cgroups, which the next one removes.
func TestCgroupsAreRemoved(t *testing.T) {
	own := ownCgroup()
	base := makeBase()
	if base == "" {
		t.Skip("no cgroups may be made here")
	}
	stale := filepath.Join(own, basePrefix+"999999999-x")
	for _, dir := range []string{stale, filepath.Join(stale, "1"), filepath.Join(stale, "1", "inner")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	other := makeBase()
	for _, dir := range []string{base, other} {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(stale); err == nil {
		t.Error("what a dead server left is still there")
	}
	table := open(t, Options{})
	p := run(t, table, sh("exit 0"))
	all(t, p)
	dir := table.cgroups.dir
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("its cgroup: %v", err)
	}
	if err := table.Close(tctx()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("its cgroup outlives the table")
	}
}

// The control files of a cgroup, in a directory of our own, since few machines let the limits be tried.
func TestCgroupLimits(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"memory.max": "", "pids.max": "", "memory.events": "low 0\noom_kill 2\n", "cgroup.events": "populated 1\nfrozen 0\n", "cpu.stat": "usage_usec 1500000\nuser_usec 1\n"}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := &cgroup{dir: dir, fd: -1, base: time.Second}
	if err := c.limit(env.Limits{Memory: 1 << 20, Processes: 7}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.max": "1048576", "pids.max": "7"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); string(b) != want || err != nil {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	cpu, ok := c.cpu()
	if !c.outOfMemory() || !c.populated() || cpu != 500*time.Millisecond || !ok {
		t.Errorf("out of memory %v, populated %v, cpu %v", c.outOfMemory(), c.populated(), cpu)
	}
	if err := os.Remove(filepath.Join(dir, "memory.max")); err != nil {
		t.Fatal(err)
	}
	if err := c.limit(env.Limits{Memory: 1}); err == nil {
		t.Error("a limit that was not set is no error")
	}
}
