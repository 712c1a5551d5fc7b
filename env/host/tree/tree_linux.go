package tree

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// A Tree is everything that descends from a leader. The group is reached by its number. What has left the group is
// found in the cgroup, if there is one; else by session, by parents, and by a cookie in the environment.
type Tree struct {
	leader int
	waiter leaderWaiter
	cookie string
	born   int64       // nothing of the tree began before; in the kernel's ticks
	gone   atomic.Bool // the leader was reaped, so that its number may be used again

	mu     sync.Mutex
	pool   *Cgroups
	cgroup *cgroup // nil without one, or when it was given back
	empty  bool    // it was given back empty, so that nothing is left of the tree
}

const cookieName = "WALDO_PROCESS"

// New prepares attr so that what it starts can be found again, and sets the limits. clean says that nothing may be added
// to the environment for that. The tree has to be closed.
func New(cgroups *Cgroups, limits env.Limits, clean bool, attr *syscall.ProcAttr) (*Tree, error) {
	t := &Tree{pool: cgroups, born: ticks()}
	cgroup, err := t.pool.get(limits)
	if err != nil {
		return nil, err
	}
	if cgroup != nil {
		t.cgroup = cgroup
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, cgroup.fd
		return t, nil
	}
	if !clean { // a clean environment stays clean
		t.setCookie(attr)
	}
	return t, nil
}

func (t *Tree) setCookie(attr *syscall.ProcAttr) {
	t.cookie = cookieName + "=" + rand.Text()
	attr.Env = append(attr.Env[:len(attr.Env):len(attr.Env)], t.cookie)
}

// leaveCgroup gives up the cgroup if err, of a start, may come from it, and tells whether to start again.
func (t *Tree) leaveCgroup(err error, attr *syscall.ProcAttr) bool {
	if t.cgroup == nil || t.cgroup.limited {
		return false
	}
	switch err {
	case unix.ENOSYS, unix.EBUSY, unix.EOPNOTSUPP, unix.ENODEV, unix.EINVAL, unix.EBADF:
	case unix.ENOENT: // of a program that is not there, or of a cgroup that somebody has removed
		if unix.Access(t.cgroup.dir, unix.F_OK) != unix.ENOENT {
			return false
		}
	default:
		return false
	}
	t.pool.disable()
	t.Close()
	attr.Sys.UseCgroupFD = false
	t.setCookie(attr)
	return true
}

// ours tells that the leader's number still names its group, and nobody else's.
func (t *Tree) ours() bool {
	return !t.gone.Load() || unix.Kill(t.leader, 0) == unix.ESRCH
}

// Signal signals the leader's group.
func (t *Tree) Signal(sig syscall.Signal) error {
	if !t.ours() {
		return unix.ESRCH
	}
	return unix.Kill(-t.leader, sig)
}

// Terminate asks everything in the tree to end, and tells whether there was anything.
func (t *Tree) Terminate(terminal bool) bool {
	signals := []syscall.Signal{unix.SIGTERM, unix.SIGCONT} // one that is stopped has to hear it
	if terminal {
		signals = []syscall.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGCONT} // shells at a terminal mind only HUP
	}
	some := false
	stragglers := t.members(true)
	for _, sig := range signals {
		if t.Signal(sig) == nil {
			some = true
		}
		for _, m := range stragglers {
			if m.signal(sig) {
				some = true
			}
		}
	}
	return some
}

// Kill ends everything in the tree, also what it starts meanwhile.
func (t *Tree) Kill() {
	t.Signal(unix.SIGKILL) //nolint:errcheck // it may be gone
	t.mu.Lock()
	whole := t.cgroup != nil && t.cgroup.kill() == nil
	t.mu.Unlock()
	if whole {
		return
	}
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
		stragglers := t.members(false)
		if len(stragglers) == 0 {
			return
		}
		for _, m := range stragglers {
			m.signal(unix.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

// Alive tells whether anything of the tree still runs.
func (t *Tree) Alive() bool {
	t.mu.Lock()
	if t.cgroup != nil {
		defer t.mu.Unlock()
		return t.cgroup.populated()
	}
	t.mu.Unlock()
	return len(t.members(false)) > 0
}

// A member is one process of a tree, by its number and by when it began, which tells it from a stranger.
type member struct {
	pid   int
	start int64
}

// signal signals a member that may end at any moment and leave its number to a stranger.
func (m member) signal(sig syscall.Signal) bool {
	fd, err := unix.PidfdOpen(m.pid, 0)
	if err != nil {
		return err != unix.ESRCH && unix.Kill(m.pid, sig) == nil // an older kernel
	}
	defer unix.Close(fd) //nolint:errcheck // a pidfd
	if stat, err := readStat(m.pid); err != nil || stat.start != m.start {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}

// members lists the living members of the tree, or only those outside the leader's group.
func (t *Tree) members(outside bool) (members []member) {
	ours := t.ours()
	t.mu.Lock()
	cgroup, empty := t.cgroup, t.empty
	var pids []int
	if cgroup != nil {
		pids = cgroup.processes()
	}
	t.mu.Unlock()
	if cgroup != nil {
		for _, pid := range pids {
			stat, err := readStat(pid)
			if err == nil && stat.state != 'Z' && !(outside && ours && stat.group == t.leader) {
				members = append(members, member{pid, stat.start})
			}
		}
		return members
	}

	if empty {
		return nil
	}
	stats := theProcesses.now()
	memo := map[int]bool{os.Getpid(): false}
	if !t.gone.Load() {
		memo[t.leader] = true
	}
	var in func(pid, depth int) bool
	in = func(pid, depth int) bool {
		known, ok := memo[pid]
		if !ok && depth < 1000 {
			stat, exists := stats[pid]
			known = exists && (ours && (stat.session == t.leader || stat.group == t.leader) || t.cookie != "" && stat.cookie == t.cookie || in(stat.parent, depth+1))
			memo[pid] = known
		}
		return known
	}
	for pid, stat := range stats {
		if stat.state != 'Z' && stat.start >= t.born && in(pid, 0) && !(outside && ours && stat.group == t.leader) {
			members = append(members, member{pid, stat.start})
		}
	}
	return members
}

// Settle gives the cgroup back when the process is closed and nothing is left in it.
func (t *Tree) Settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cgroup != nil && t.pool.settle(t.cgroup) {
		t.cgroup, t.empty = nil, true
	}
}

// Close gives the cgroup back whatever is in it.
func (t *Tree) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cgroup != nil {
		t.pool.put(t.cgroup)
		t.cgroup = nil
	}
}

// A procStat is what is wanted of /proc/PID/stat.
type procStat struct {
	state                  byte
	parent, group, session int
	cpu                    time.Duration
	resident               int64 // bytes
	start                  int64 // ticks since the machine came up
	cookie                 string
}

var errStat = errors.New("malformed /proc stat")

const clockTick = time.Second / 100 // what user space is told, on every architecture

func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	return parseStat(string(b))
}

func parseStat(text string) (s procStat, err error) {
	i := strings.LastIndexByte(text, ')') // the name before may hold anything
	if i < 0 {
		return s, errStat
	}
	f := strings.Fields(text[i+1:])
	if len(f) < 22 {
		return s, errStat
	}
	number := func(i int) int64 {
		n, e := strconv.ParseInt(f[i], 10, 64)
		if e != nil {
			err = errStat
		}
		return n
	}
	s.state = f[0][0]
	s.parent, s.group, s.session = int(number(1)), int(number(2)), int(number(3))
	s.cpu = time.Duration(number(11)+number(12)) * clockTick
	s.start = number(19)
	s.resident = number(21) * int64(os.Getpagesize())
	return s, err
}

// ticks is the present, as processes' starts are told.
func ticks() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return now.Nano()/int64(clockTick) - 1
}

// A snapshotter reads what all processes say of themselves. Callers that ask at the same time share one reading,
// which begins after each of them asked.
type snapshotter struct {
	mu    sync.Mutex
	begun time.Time
	stats map[int]procStat // never written again
}

var (
	theProcesses snapshotter
	programBegan = ticks() // no child of ours is older
)

func (s *snapshotter) now() map[int]procStat {
	asked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.After(asked) {
		return s.stats
	}
	s.begun = time.Now()
	s.stats = nil
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()                //nolint:errcheck // only read
	names, _ := dir.Readdirnames(-1) //nolint:errcheck // what could be read counts
	s.stats = make(map[int]procStat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if stat, err := readStat(pid); err == nil {
			if stat.start >= programBegan && stat.state != 'Z' {
				stat.cookie = cookieOf(pid)
			}
			s.stats[pid] = stat
		}
	}
	return s.stats
}

// cookieOf finds the cookie in the environment that a process was started with.
func cookieOf(pid int) string {
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.HasPrefix(entry, []byte(cookieName+"=")) {
			return string(entry)
		}
	}
	return ""
}

// UsageOf tells what the trees use at present, in their order. A nil one uses nothing.
func UsageOf(trees []*Tree) []Usage {
	usages := make([]Usage, len(trees))
	var bySession map[int]Usage
	for i, t := range trees {
		if t == nil {
			continue
		}
		cpu, memory, ok := t.cgroupUsage()
		if !ok {
			if bySession == nil {
				bySession = make(map[int]Usage)
				for _, stat := range theProcesses.now() {
					sum := bySession[stat.session]
					sum.CPU += stat.cpu
					sum.Memory += stat.resident
					bySession[stat.session] = sum
				}
			}
			usages[i] = bySession[t.leader]
			continue
		}
		usages[i] = Usage{cpu, memory}
	}
	return usages
}

func (t *Tree) cgroupUsage() (cpu time.Duration, memory int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cgroup == nil {
		return 0, 0, false
	}
	cpu, ok = t.cgroup.cpu()
	if !ok {
		return 0, 0, false
	}
	for _, pid := range t.cgroup.processes() {
		if stat, err := readStat(pid); err == nil {
			memory += stat.resident
		}
	}
	return cpu, memory, true
}

// Broken says which limit the tree ran into, "" if none.
func (t *Tree) Broken() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cgroup == nil || !t.cgroup.limited {
		return ""
	}
	if t.cgroup.outOfMemory() {
		return fmt.Sprintf("memory limit of %d bytes", t.cgroup.memory)
	}
	return ""
}
