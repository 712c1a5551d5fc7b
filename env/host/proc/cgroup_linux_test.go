package proc

import (
	"os"
	"path/filepath"
	"testing"
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

	table := open(t, Options{})
	exit(t, run(t, table, sh("true")))
	if alive, err := lockBase(table.cgroups.dir); err == nil {
		alive.Close()
		t.Error("a table that is open does not lock its cgroup")
	}
}
