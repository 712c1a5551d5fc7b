package tree

import (
	"os"
	"syscall"
	"testing"
	"time"

	"waldo/env"
)

// run runs a shell to its end as the leader of a tree, and returns its exit code.
func run(cgroups *Cgroups, script string) (int, error) {
	attr := &syscall.ProcAttr{Env: []string{"PATH=/usr/bin:/bin"}, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
	tree, err := New(cgroups, env.Limits{}, false, attr)
	if err != nil {
		return 0, err
	}
	defer tree.Close()
	if _, err := tree.Start("/bin/sh", []string{"sh", "-c", script}, attr); err != nil {
		return 0, err
	}
	status, _ := tree.Wait()
	tree.Settle()
	return status.ExitStatus(), nil
}

// runOK runs what ends well.
func runOK(t *testing.T, cgroups *Cgroups) {
	t.Helper()
	if code, err := run(cgroups, "exit 0"); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v", code, err)
	}
}

// Somebody else may remove a cgroup that is kept empty for the next process, which then starts without one.
func TestCgroupRemovedByOthers(t *testing.T) {
	cgroups := NewCgroups(false)
	defer cgroups.Close()
	runOK(t, cgroups)
	if cgroups.dir == "" {
		t.Skip("no cgroups may be made here")
	}
	if len(cgroups.free) == 0 {
		t.Fatal("none is kept")
	}
	for _, c := range cgroups.free {
		if err := os.Remove(c.dir); err != nil {
			t.Fatal(err)
		}
	}
	if code, err := run(cgroups, "exit 7"); code != 7 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
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
