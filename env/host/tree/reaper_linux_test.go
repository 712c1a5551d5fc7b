package tree

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// role names what this test binary is to do when it is started again by a test.
const roleName = "TREE_TEST_ROLE"

func init() {
	if os.Getenv(roleName) == "reaper" {
		roleReaper()
		os.Exit(0)
	}
}

// roleReaper is a server as process 1, or as subreaper. Its children leave orphans, and so do plain ones of os/exec.
func roleReaper() {
	stop, err := StartReaper(slog.Default())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer stop()
	cgroups := NewCgroups(false)
	defer cgroups.Close()
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
				code, err := run(cgroups, "(sleep 0.2 &); (setsid sleep 0.1 >/dev/null 2>&1 &); exit 3")
				note(err == nil && code == 3, "tree:", code, err)
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
