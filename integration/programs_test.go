package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// buildRoot holds the programs under test, once they have been built.
var buildRoot string

func TestMain(m *testing.M) {
	code := m.Run()
	if buildRoot != "" {
		os.RemoveAll(buildRoot)
	}
	os.Exit(code)
}

// buildPrograms builds both programs, with the race detector if the tests have it, and returns their directory.
var buildPrograms = sync.OnceValues(func() (string, error) {
	var err error
	if buildRoot, err = os.MkdirTemp("", "waldo-programs"); err != nil {
		return "", err
	}
	args := []string{"build", "-o", buildRoot + string(filepath.Separator)}
	if withRace {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "waldo/cmd/app-server", "waldo/cmd/exec-server")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return buildRoot, nil
})

// programs returns the directory of both programs.
func programs(t testing.TB) string {
	t.Helper()
	dir, err := buildPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// endDaemon ends the daemon that a local environment with this state directory has started.
func endDaemon(stateDir string) error {
	if runtime.GOOS != "linux" {
		return nil // it ends by itself when it has been idle
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil || !strings.HasSuffix(string(line), "\x00daemon\x00--state-dir\x00"+stateDir+"\x00") {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		process, err := os.FindProcess(pid)
		if err != nil {
			return err
		}
		if err := process.Kill(); err != nil {
			return err
		}
	}
	return nil
}
