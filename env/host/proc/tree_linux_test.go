package proc

import (
	"os"
	"testing"
)

// Somebody else may remove a cgroup that is kept empty for the next process, which then starts without one.
func TestCgroupRemovedByOthers(t *testing.T) {
	table := open(t, Options{})
	exit(t, run(t, table, sh("true")))
	table.cgroups.mu.Lock()
	var kept []string
	for _, c := range table.cgroups.free {
		kept = append(kept, c.dir)
	}
	table.cgroups.mu.Unlock()
	if len(kept) == 0 {
		t.Skip("no cgroups are kept here")
	}
	for _, dir := range kept {
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
	p := run(t, table, sh("echo started"))
	if out, _ := all(t, p); out != "started\n" {
		t.Errorf("output %q", out)
	}
	if got := exit(t, p); got.Code != 0 {
		t.Errorf("exit %+v", got)
	}
}
