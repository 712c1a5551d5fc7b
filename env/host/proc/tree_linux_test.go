package proc

import (
	"os"
	"testing"
)

// Somebody else may remove a cgroup that is kept empty for the next process, which then starts without one.
func TestCgroupRemovedByOthers(t *testing.T) {
	table := open(t, Options{})
	exit(t, run(t, table, sh("true")))
	var kept []string
	waitFor(t, "its cgroup is kept", func() bool { // which is soon after the exit
		table.cgroups.mu.Lock()
		defer table.cgroups.mu.Unlock()
		for _, c := range table.cgroups.free {
			kept = append(kept, c.dir)
		}
		return len(kept) > 0 || table.cgroups.dir == ""
	})
	if len(kept) == 0 {
		t.Skip("no cgroups may be made here")
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
