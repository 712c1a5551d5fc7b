package tree

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// Cgroups makes the cgroups (v2) of the trees of one table, below the one that this program is in, where that is
// allowed. Making one takes longer than using it, so that empty ones are kept.
type Cgroups struct {
	mu     sync.Mutex
	tried  bool
	dir    string   // "" where there are none
	alive  *os.File // dir, locked as a sign that it is in use
	made   int
	free   []*cgroup
	strays []*cgroup // given back with something still in them
	limits bool      // memory and process counts can be bounded
}

const keepFree = 64

type cgroup struct {
	dir     string
	fd      int
	base    time.Duration // what earlier users had used
	limited bool
	killed  bool // Linux 6.15 and later kill what is cloned into it ever after
	memory  int64
}

// NewCgroups returns a maker of cgroups; with none it makes none.
func NewCgroups(none bool) *Cgroups { return &Cgroups{tried: none} }

// get returns a cgroup, or nil where there are none and no limit needs one.
func (g *Cgroups) get(limits env.Limits) (*cgroup, error) {
	limited := limits.Memory > 0 || limits.Processes > 0
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin()
	if limited {
		if err := g.enableLimits(); err != nil {
			return nil, fmt.Errorf("limits on memory and process count: %w: %w", errors.ErrUnsupported, err)
		}
	} else if n := len(g.free); n > 0 {
		c := g.free[n-1]
		g.free = g.free[:n-1]
		return c, nil
	}
	if g.dir == "" {
		return nil, nil
	}
	g.made++
	dir := filepath.Join(g.dir, strconv.Itoa(g.made))
	err := os.Mkdir(dir, 0o755)
	if err == nil {
		var fd int
		if fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			c := &cgroup{dir: dir, fd: fd, limited: limited, memory: limits.Memory}
			if err = c.limit(limits); err == nil {
				return c, nil
			}
			c.remove() //nolint:errcheck // the error before is told
		}
	}
	if limited {
		return nil, fmt.Errorf("limits on memory and process count: %w: %w", errors.ErrUnsupported, err)
	}
	return nil, nil
}

// begin makes the cgroup above them at the first use.
func (g *Cgroups) begin() {
	if !g.tried {
		g.tried = true
		if g.dir = makeBase(); g.dir != "" {
			g.alive, _ = lockBase(g.dir) //nolint:errcheck // without, it goes by the number
		}
	}
}

// settle takes a cgroup back if it is empty, and tells whether it was.
func (g *Cgroups) settle(c *cgroup) bool {
	if c.populated() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keep(c)
	return true
}

// put takes a cgroup back.
func (g *Cgroups) put(c *cgroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tidy()
	if c.populated() {
		g.strays = append(g.strays, c)
	} else {
		g.keep(c)
	}
}

func (g *Cgroups) keep(c *cgroup) {
	used, ok := c.cpu()
	if ok && !c.limited && !c.killed && g.dir != "" && len(g.free) < keepFree {
		c.base += used
		g.free = append(g.free, c)
		return
	}
	if c.remove() != nil {
		g.strays = append(g.strays, c)
	}
}

// tidy looks after those that were not empty when they came back.
func (g *Cgroups) tidy() {
	strays := g.strays
	g.strays = nil
	for _, c := range strays {
		if c.populated() {
			g.strays = append(g.strays, c)
		} else {
			g.keep(c)
		}
	}
}

// disable makes no more: this machine forbids them after all.
func (g *Cgroups) disable() {
	g.mu.Lock()
	defer g.mu.Unlock()
	free := g.free
	g.free = nil
	for _, c := range free {
		c.remove() //nolint:errcheck // empty
	}
	if g.alive != nil {
		g.alive.Close() //nolint:errcheck // only a lock
	}
	g.dir, g.alive = "", nil
}

// Close ends whatever is left in them, and removes them.
func (g *Cgroups) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	dir, alive := g.dir, g.alive
	g.tried, g.dir, g.alive = true, "", nil
	if dir == "" {
		return
	}
	if alive != nil {
		defer alive.Close() //nolint:errcheck // only a lock
	}
	writeControl(dir, "cgroup.kill", "1") //nolint:errcheck // the removal tells
	for deadline := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
		left := append(g.free, g.strays...)
		g.free, g.strays = nil, nil
		for _, c := range left {
			if c.remove() != nil {
				g.strays = append(g.strays, c)
			}
		}
		if len(g.strays) == 0 || time.Now().After(deadline) {
			break
		}
	}
	os.Remove(dir) //nolint:errcheck // a stray in it lives on in the kernel
}

// enableLimits makes the controllers available.
func (g *Cgroups) enableLimits() error {
	if g.limits {
		return nil
	}
	if g.dir == "" {
		return errors.New("this machine lets the server make no cgroups (v2); start it as root or with a delegated cgroup")
	}
	for _, dir := range []string{filepath.Dir(g.dir), g.dir} {
		if err := writeControl(dir, "cgroup.subtree_control", "+memory +pids"); err != nil && dir == g.dir {
			return fmt.Errorf("the server's cgroup has no memory and pids controllers: %w", err)
		}
	}
	g.limits = true
	return nil
}

func (c *cgroup) limit(limits env.Limits) error {
	if limits.Memory > 0 {
		if err := writeControl(c.dir, "memory.max", strconv.FormatInt(limits.Memory, 10)); err != nil {
			return err
		}
		writeControl(c.dir, "memory.swap.max", "0")  //nolint:errcheck // where there is swap
		writeControl(c.dir, "memory.oom.group", "1") //nolint:errcheck // newer kernels
	}
	if limits.Processes > 0 {
		return writeControl(c.dir, "pids.max", strconv.Itoa(limits.Processes))
	}
	return nil
}

func writeControl(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (c *cgroup) kill() error {
	c.killed = true
	return writeControl(c.dir, "cgroup.kill", "1")
}

// value finds one "name value" line of a control file.
func (c *cgroup) value(file, name string) (int64, bool) {
	b, err := os.ReadFile(filepath.Join(c.dir, file))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if n, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && n == name {
			number, err := strconv.ParseInt(value, 10, 64)
			return number, err == nil
		}
	}
	return 0, false
}

func (c *cgroup) populated() bool {
	n, ok := c.value("cgroup.events", "populated")
	return ok && n != 0
}

func (c *cgroup) outOfMemory() bool {
	n, ok := c.value("memory.events", "oom_kill")
	return ok && n != 0
}

func (c *cgroup) cpu() (time.Duration, bool) {
	n, ok := c.value("cpu.stat", "usage_usec")
	return time.Duration(n)*time.Microsecond - c.base, ok
}

// processes lists what is in it and below it.
func (c *cgroup) processes() []int {
	var pids []int
	filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error { //nolint:errcheck // what can be read counts
		if err == nil && d.Name() == "cgroup.procs" {
			if b, err := os.ReadFile(path); err == nil {
				for line := range strings.Lines(string(b)) {
					if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
						pids = append(pids, pid)
					}
				}
			}
		}
		return nil
	})
	return pids
}

// remove removes it, with what its processes made below it.
func (c *cgroup) remove() error {
	var dirs []string
	filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error { //nolint:errcheck // the removal tells
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	var err error
	for i := len(dirs) - 1; i >= 0; i-- {
		err = unix.Rmdir(dirs[i])
	}
	if (err == nil || errors.Is(err, fs.ErrNotExist)) && c.fd >= 0 {
		unix.Close(c.fd) //nolint:errcheck // a path
		c.fd = -1
		return nil
	}
	return err
}

const basePrefix = "waldo-"

// makeBase makes the cgroup above those of this table, "" if that is not allowed.
func makeBase() string {
	own := ownCgroup()
	if own == "" || unix.Access(filepath.Join(own, "cgroup.procs"), unix.W_OK) != nil {
		return ""
	}
	removeStale(own)
	dir := filepath.Join(own, fmt.Sprintf("%s%d-%s", basePrefix, os.Getpid(), rand.Text()[:8]))
	if os.Mkdir(dir, 0o755) != nil {
		return ""
	}
	if unix.Access(filepath.Join(dir, "cgroup.kill"), unix.W_OK) != nil { // before Linux 5.14
		os.Remove(dir) //nolint:errcheck // just made
		return ""
	}
	return dir
}

// lockBase takes the lock that the server holds for as long as it lives.
func lockBase(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close() //nolint:errcheck // the error before is told
		return nil, err
	}
	return f, nil
}

// removeStale removes what servers left behind that were killed. That nobody has the number in its name tells little:
// a server in another container, or in this one's parent, counts its processes apart.
func removeStale(own string) {
	stale, _ := filepath.Glob(filepath.Join(own, basePrefix+"*")) //nolint:errcheck // a good pattern
	for _, dir := range stale {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), basePrefix), "-")
		if pid, err := strconv.Atoi(text); err != nil || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		if alive, err := lockBase(dir); err == nil {
			(&cgroup{dir: dir, fd: -1}).remove() //nolint:errcheck // what still runs in it is not ours to end
			alive.Close()                        //nolint:errcheck // only a lock
		}
	}
}

// ownCgroup is the directory of the cgroup (v2) that this program is in, "" if it cannot be told.
func ownCgroup() string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	own, found := "", false
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own, found = path, true
		}
	}
	if !found || strings.HasPrefix(own, "/..") {
		return ""
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if ok && len(fields) > 4 && strings.HasPrefix(after, "cgroup2 ") && fields[3] == "/" {
			return filepath.Join(fields[4], own)
		}
	}
	return ""
}

// CanLimit tells whether memory and process counts can be bounded.
func (g *Cgroups) CanLimit() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begin()
	return g.enableLimits() == nil
}
