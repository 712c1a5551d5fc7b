package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// away is how long every byte takes to the environment, and back.
const away = 25 * time.Millisecond

// sumOf is the sum of a file's content.
func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// sumOfTree is the sum of a tree's names, kinds, modes and contents.
func sumOfTree(t *testing.T, root string) (sum string, files int) {
	t.Helper()
	hash := sha256.New()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, content := strings.TrimPrefix(path, root), ""
		switch info.Mode().Type() {
		case 0:
			content = sumOf(t, path)
			files++
		case fs.ModeSymlink:
			content, err = os.Readlink(path)
		}
		fmt.Fprintf(hash, "%q %v %q\n", name, info.Mode(), content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(hash.Sum(nil)), files
}

// sources makes a tree as source code has it.
func sources(t *testing.T, count int) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "tree")
	for i := range count {
		below := filepath.Join(root, fmt.Sprintf("package%d", i/400), fmt.Sprintf("part%d", i/20%20))
		mode := fs.FileMode(0o644)
		if i%20 == 0 {
			mode = 0o755
			if err := os.MkdirAll(below, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(fmt.Sprintf("file%d.go", i+1), filepath.Join(below, "link.go")); err != nil {
				t.Fatal(err)
			}
		}
		line := fmt.Sprintf("// line of file %d\n", i)
		if err := os.WriteFile(filepath.Join(below, fmt.Sprintf("file%d.go", i)), []byte(strings.Repeat(line, i%500)), mode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCopyOfTreeFarAway(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.proxy.SetDelay(away)
	const count = 2000
	root := sources(t, count)
	want, _ := sumOfTree(t, root)
	there, back := filepath.Join(n.home, "there"), filepath.Join(n.home, "back")
	for _, way := range []struct{ from, to, copy string }{{root + "/.", ":" + there, there}, {":" + there + "/.", back, back}} {
		began := time.Now()
		command := n.through("cp", "-r", way.from, way.to)
		command.Stderr = &lockedBuffer{}
		if err := command.Run(); err != nil {
			t.Fatalf("%s: %v %s", way.to, err, command.Stderr)
		}
		t.Logf("%d files to %s in %v", count, way.to, time.Since(began))
		if got, files := sumOfTree(t, way.copy); got != want || files != count {
			t.Errorf("%s: %d files of %d, or others", way.to, files, count)
		}
		// One after another they would take a round trip each.
		if took := time.Since(began); took > count*2*away/2 {
			t.Errorf("it took %v", took)
		}
	}
}

// TestCopySurvivesTheNetwork: a large file comes through whole, and goes on after each cut instead of beginning anew.
func TestCopySurvivesTheNetwork(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	n.proxy.SetDelay(away)
	size := int64(256 << 20)
	if withRace {
		size = 64 << 20
	}
	path, want := noise(t, size)
	there, back := filepath.Join(n.home, "there"), filepath.Join(n.home, "back")
	for _, way := range []struct{ from, to, copy string }{{path, ":" + there, there}, {":" + there, back, back}} {
		command := n.through("cp", way.from, way.to)
		command.Stderr = &lockedBuffer{}
		before := n.proxy.Carried()
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- command.Wait() }()
		const cuts = 10
		cut, accepted := 0, n.proxy.Accepted()
		again := time.NewTicker(time.Millisecond)
		for running := true; running; {
			// The next cut when its part has come, by a connection that was made after the last one.
			if cut < cuts && n.proxy.Accepted() > accepted && n.proxy.Carried()-before > size*int64(cut+1)/(cuts+2) {
				accepted = n.proxy.Accepted()
				n.proxy.Cut()
				cut++
			}
			select {
			case <-again.C:
			case err := <-ended:
				if running = false; err != nil {
					t.Fatalf("%s: %v %s", way.to, err, command.Stderr)
				}
			}
		}
		again.Stop()
		if cut < cuts {
			t.Errorf("%s: only %d cuts: nothing was survived", way.to, cut)
		}
		carried := n.proxy.Carried() - before
		t.Logf("%s: %d connections, %.2f times the size", way.to, n.proxy.Accepted(), float64(carried)/float64(size))
		if carried > size*3/2 {
			t.Errorf("%s: %d bytes were carried for %d", way.to, carried, size)
		}
		if got := sumOf(t, way.copy); got != want {
			t.Errorf("%s: sum %s, want %s", way.to, got, want)
		}
	}
	entries, err := os.ReadDir(n.home)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".waldo-") {
			t.Errorf("left behind: %s", entry.Name())
		}
	}
}

// TestCopyProgress: a terminal shows how far a copy is, and nothing of that when it is done.
func TestCopyProgress(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	path, _ := noise(t, 4<<20)
	bar := regexp.MustCompile(`\r *[0-9]+% \[=* *\] [^\r]* of 4\.0M  0 of 1 files  [^\r(]*\x1b\[K`)
	line := regexp.MustCompile(`\r[^\r[]* of 4\.0M [^\r]*\x1b\[K`)
	for name, test := range map[string]struct {
		columns uint16
		flags   []string
		want    *regexp.Regexp
		shown   bool
	}{
		"wide":   {columns: 100, want: bar, shown: true},
		"narrow": {columns: 30, want: line, shown: true},
		"quiet":  {columns: 100, flags: []string{"-q"}},
	} {
		n.proxy.SetRate(4 << 20)
		command := n.through(slices.Concat([]string{"cp"}, test.flags, []string{path, ":" + name})...)
		terminal, err := pty.StartWithSize(command, &pty.Winsize{Rows: 24, Cols: test.columns})
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(terminal) // it ends with the command, by an error
		terminal.Close()
		if err := command.Wait(); err != nil {
			t.Fatalf("%s: %v %q", name, err, said)
		}
		if !test.shown {
			if len(said) != 0 {
				t.Errorf("%s: it says %q", name, said)
			}
			continue
		}
		if !test.want.Match(said) || !strings.HasSuffix(string(said), "\r\x1b[K") {
			t.Errorf("%s: it says %q", name, said)
		}
		for _, line := range strings.FieldsFunc(strings.ReplaceAll(string(said), "\x1b[K", ""), func(r rune) bool { return r == '\r' }) {
			if len(line) >= int(test.columns) {
				t.Errorf("%s: a line of %d columns: %q", name, len(line), line)
			}
		}
	}
}
