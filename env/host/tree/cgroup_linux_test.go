package tree

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"waldo/env"
)

// A server in another container shares the cgroups and counts its processes apart: its number tells nothing.
func TestCgroupsOfOtherContainersStay(t *testing.T) {
	base := makeBase()
	if base == "" {
		t.Skip("no cgroups may be made here")
	}
	defer os.Remove(base)
	living := filepath.Join(filepath.Dir(base), basePrefix+"999999998-x")
	if err := os.Mkdir(living, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(living)
	alive, err := lockBase(living)
	if err != nil {
		t.Fatal(err)
	}
	removeStale(filepath.Dir(base))
	if _, err := os.Stat(living); err != nil {
		t.Errorf("the cgroup of a server that lives: %v", err)
	}
	if err := alive.Close(); err != nil {
		t.Fatal(err)
	}
	removeStale(filepath.Dir(base))
	if _, err := os.Stat(living); err == nil {
		t.Error("the cgroup of a server that was killed is still there")
	}

	cgroups := NewCgroups(false)
	defer cgroups.Close()
	runOK(t, cgroups)
	if alive, err := lockBase(cgroups.dir); err == nil {
		alive.Close()
		t.Error("what is in use is not locked")
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
	cgroups := NewCgroups(false)
	runOK(t, cgroups)
	dir := cgroups.dir
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("its cgroup: %v", err)
	}
	cgroups.Close()
	if _, err := os.Stat(dir); err == nil {
		t.Error("its cgroup outlives its maker")
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
