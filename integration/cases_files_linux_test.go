package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
	"waldo/env/rpc"
	"waldo/pathuri"
)

// newNetworkAsAnother is newNetwork with a server of another user, for whom modes mean something; where tests may not
// start one, it is this user's, for whom they do as well.
func newNetworkAsAnother(t *testing.T) *network {
	t.Helper()
	n := &network{rig: &rig{t: t, dir: programs(t), home: t.TempDir()}}
	n.server = n.command("exec-server", "--listen", "tcp://127.0.0.1:0")
	if os.Geteuid() == 0 {
		const nobody = 65534
		for _, dir := range []string{n.dir, filepath.Dir(n.home)} {
			must(t, os.Chmod(dir, 0o755))
		}
		must(t, os.Chown(n.home, nobody, nobody))
		n.server.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	n.attachServer()
	token, err := os.ReadFile(n.token)
	must(t, err)
	n.token = filepath.Join(t.TempDir(), "token") // a client takes no other user's
	must(t, os.WriteFile(n.token, token, 0o600))
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func uriOf(t *testing.T, path string) pathuri.URI {
	t.Helper()
	u, err := pathuri.FromNative(path, pathuri.Posix)
	must(t, err)
	return u
}

// put makes a file, and what is missing above it.
func put(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// sum tells a tree's names, types and contents.
func sum(t *testing.T, root string) string {
	t.Helper()
	hash := sha256.New()
	must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		fmt.Fprintf(hash, "%q %v\n", path, entry.Type())
		if err == nil && entry.Type().IsRegular() {
			var data []byte
			data, err = os.ReadFile(path)
			hash.Write(data)
		}
		return err
	}))
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// copies runs cp, with REMOTE: for the server's environment, and returns its exit code and what it said.
func (n *network) copies(args ...string) (code int, said string) {
	n.t.Helper()
	for i, arg := range args {
		if rest, ok := strings.CutPrefix(arg, "REMOTE:"); ok {
			args[i] = ":" + rest
		}
	}
	command := n.through(append([]string{"cp"}, args...)...)
	out, _ := command.CombinedOutput() // the code tells
	return command.ProcessState.ExitCode(), string(out)
}

// newPair is a network whose clients have a local environment, too.
func newPair(t *testing.T) *network {
	n := newNetwork(t)
	t.Cleanup(func() { must(t, endDaemon(filepath.Join(n.home, "exec-server"))) })
	return n
}

// What cp refuses it says in one line, whose sense is plain, and nothing has changed.
func TestCopyRefusals(t *testing.T) {
	t.Parallel()
	n := newPair(t)
	here, there := filepath.Join(n.home, "here"), filepath.Join(n.home, "there")
	for _, dir := range []string{here, there} {
		put(t, dir+"/f", "f")
		put(t, dir+"/d/sub/x", "x")
		put(t, dir+"/taken/f/x", "")
		put(t, dir+"/flat/sub", "no directory")
		must(t, unix.Mkfifo(dir+"/fifo", 0o666))
		must(t, os.Symlink("d", dir+"/to-d"))
		must(t, os.Link(dir+"/f", dir+"/hard"))
		must(t, os.Symlink("f", dir+"/soft"))
	}
	odd := "a\x1b]0;x\x07\n\u0090"
	before := sum(t, n.home+"/here") + sum(t, n.home+"/there")
	for _, test := range []struct {
		args string // H: is here, T: there
		want string
	}{
		{"H:missing T:", "no such file or directory"},
		{"T:missing H:", "no such file or directory"},
		{"H:d T:new", "copy it recursively (-r)"},
		{"T:d H:new", "copy it recursively (-r)"},
		{"T:d T:new", "copy it recursively (-r)"},
		{"H:f T:taken", "is a directory"},
		{"H:f T:f/", "not a directory"},
		{"H:f/ T:new", "not a directory"},
		{"H:f T:f/new", "not a directory"},
		{"H:f T:no/new", "no such file or directory"},
		{"H:f T:no/", "no such file or directory"},
		{"H:f H:d T:f", "not a directory"},
		{"H:f H:d T:no", "no such file or directory"},
		{"-r H:d T:f", "not a directory"},
		{"-r T:d T:f", "not a directory"},
		{"-r H:d T:no/new", "no such file or directory"},
		{"-r T:d T:no/new", "no such file or directory"},
		{"-r T:flat/. T:d", "is a directory"},
		{"H:fifo T:new", "not a regular file"},
		{"-r H:fifo T:new", "not a regular file"},
		{"T:fifo H:new", "not a regular file"},
		{"T:/dev/zero H:new", "not a regular file"},
		{"H:" + odd + " T:", `a\x1b]0;x\a\n\u0090`},
		{"T:" + odd + " H:", `a\x1b]0;x\a\n\u0090`},
		// A tree does not go into itself, by whatever name, nor a file onto itself.
		{"-r T:d T:d/new", "into itself"}, {"-r T:d T:d", "into itself"}, {"-r T:d T:to-d/new", "into itself"},
		{"-r T:d T:d/../d/new", "into itself"}, {"-r T:d/. T:d", "same file"}, {"-r T:d/. T:d/sub", "into itself"},
		{"T:f T:f", "same file"}, {"T:f T:hard", "same file"}, {"T:f T:soft", "same file"}, {"T:soft T:f", "same file"},
		{"-r t:d T:d/new", "into itself"}, {"-r t:d T:d", "into itself"}, {"-r T:d t:to-d/sub", "into itself"}, {"-r t:d/. T:d", "into itself"},
	} {
		var args []string
		for _, arg := range strings.Split(test.args, " ") {
			place, path, _ := strings.Cut(arg, ":")
			switch {
			case place == "H", place == "t": // t: there, by its name here
				arg = map[string]string{"H": here, "t": there}[place] + "/" + path
			case place == "T" && strings.HasPrefix(path, "/"):
				arg = "REMOTE:" + path
			case place == "T":
				arg = "REMOTE:" + there + "/" + path
			}
			args = append(args, arg)
		}
		code, said := n.copies(args...)
		lines := strings.Count(said, "\n")
		if code != 1 || lines != 1 || !strings.Contains(said, test.want) || strings.Contains(said, "write \""+there+"/taken/f\": write") {
			t.Errorf("cp %q: exit code %d, %q; want %q", test.args, code, said, test.want)
		}
		if after := sum(t, n.home+"/here") + sum(t, n.home+"/there"); after != before {
			t.Fatalf("cp %q has changed something", test.args)
		}
	}
}

// A disk that is full is told, and what was there is still there.
func TestCopyToFullDisk(t *testing.T) {
	t.Parallel()
	argv := []string{"unshare", "-m", "--propagation", "private"}
	unshared(t, argv...)
	disk := t.TempDir()
	n := newNetworkUnder(t, append(argv, "sh", "-c", `mount -t tmpfs -o size=64k none "$0" && echo old >"$0/old" && exec "$@"`, disk))
	t.Cleanup(func() { must(t, endDaemon(filepath.Join(n.home, "exec-server"))) })
	big := filepath.Join(n.home, "big")
	must(t, os.WriteFile(big, bytes.Repeat([]byte("x"), 1<<20), 0o644))
	for _, name := range []string{"new", "old"} {
		code, said := n.copies(big, "REMOTE:"+filepath.Join(disk, name))
		if code != 1 || strings.Count(said, "no space left on device") != 1 || strings.Count(said, "write") != 1 {
			t.Errorf("%s: exit code %d, %q", name, code, said)
		}
	}
	if got := n.output("--", "sh", "-c", `cd "$0" && ls -A && cat old`, disk); got != "old\nold\n" {
		t.Errorf("there is left %q", got)
	}
}

// A copy that a signal ends is ended at once, and leaves nothing of the file on either side.
func TestCopyInterrupted(t *testing.T) {
	t.Parallel()
	n := newPair(t)
	here, there := filepath.Join(n.home, "here"), filepath.Join(n.home, "there")
	must(t, os.Mkdir(there, 0o755))
	must(t, os.Mkdir(here, 0o755))
	source := filepath.Join(n.home, "source")
	must(t, os.WriteFile(source, nil, 0o644))
	must(t, os.Truncate(source, 1<<40)) // with no content it would be copied in no time
	f, err := os.OpenFile(source, os.O_WRONLY, 0)
	must(t, err)
	for range 64 {
		_, err := f.Write(bytes.Repeat([]byte("x"), 1<<20))
		must(t, err)
	}
	must(t, f.Close())
	n.proxy.SetRate(4 << 20)
	before := n.usage()
	for _, test := range []struct {
		name     string
		signal   syscall.Signal
		from, to string
		stalled  bool
	}{
		{"up", syscall.SIGINT, source, "REMOTE:" + there + "/f", false},
		{"down", syscall.SIGINT, "REMOTE:" + source, here + "/f", false},
		{"up, with TERM", syscall.SIGTERM, source, "REMOTE:" + there + "/f", false},
		{"up, on a network that stands still", syscall.SIGINT, source, "REMOTE:" + there + "/f", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := []string{test.from, test.to}
			for i := range args {
				args[i] = strings.Replace(args[i], "REMOTE:", ":", 1)
			}
			command := n.through(append([]string{"cp"}, args...)...)
			said := &lockedBuffer{}
			command.Stderr = said
			must(t, command.Start())
			watched := source
			if strings.HasPrefix(test.to, "REMOTE:") {
				watched = there
			}
			n.awaitNone("copies that have not begun", func() int { return 1 - min(1, n.holds(watched)) })
			n.proxy.Stall(test.stalled)
			began := time.Now()
			must(t, command.Process.Signal(test.signal))
			command.Wait() //nolint:errcheck // the code tells
			took := time.Since(began)
			n.proxy.Stall(false)
			if code := command.ProcessState.ExitCode(); code != 128+int(test.signal) {
				t.Errorf("exit code %d: %s", code, said)
			}
			if took > 4*time.Second {
				t.Errorf("it took %v", took)
			}
			n.settles(before)
			for _, dir := range []string{here, there} {
				if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
					t.Errorf("%s holds %v, %v", dir, entries, err)
				}
			}
		})
	}
}

// holds counts the server's open files at or below a path.
func (n *network) holds(path string) (count int) {
	n.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", n.server.Process.Pid)
	entries, err := os.ReadDir(dir)
	must(n.t, err)
	for _, entry := range entries {
		if link, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil && strings.HasPrefix(link, path) {
			count++
		}
	}
	return count
}

// Calls on what is no regular file are refused at once, and hold up no other.
func TestSpecialFilesHoldUpNothing(t *testing.T) {
	t.Parallel()
	n := newNetworkAsAnother(t)
	client := n.connect()
	fifo, socket := filepath.Join(n.home, "fifo"), filepath.Join(n.home, "socket")
	must(t, unix.Mkfifo(fifo, 0o666))
	must(t, os.Chmod(fifo, 0o666))
	listener, err := net.Listen("unix", socket)
	must(t, err)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), storyPatience)
	defer cancel()
	var calls sync.WaitGroup
	for _, path := range []string{fifo, socket, "/dev/null", "/dev/zero", "/dev/full", "/dev/tty"} {
		for _, do := range []func() error{
			func() error { _, _, err := env.ReadFile(ctx, client, uriOf(t, path), 1<<20); return err },
			func() error {
				_, err := env.WriteFile(ctx, client, uriOf(t, path), []byte("x"), env.WriteOptions{})
				return err
			},
			func() error {
				_, err := env.WriteFile(ctx, client, uriOf(t, path), []byte("x"), env.WriteOptions{Mode: env.Append})
				return err
			},
			func() error { return client.Copy(ctx, uriOf(t, path), uriOf(t, n.home+"/new"), env.CopyOptions{}) },
		} {
			calls.Go(func() {
				if err := do(); !errors.Is(err, env.ErrNotRegular) {
					t.Errorf("%s: %v", path, err)
				}
			})
		}
	}
	for range 50 {
		if _, err := client.Stat(ctx, uriOf(t, fifo), false); err != nil {
			t.Error(err)
		}
	}
	calls.Wait()
}

// Names come back as they are, whatever bytes they have, and lead to their own file.
func TestNamesComeBack(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	client := n.connect()
	dir := filepath.Join(n.home, "names")
	must(t, os.Mkdir(dir, 0o755))
	names := []string{"a\xffb", "a\xfeb", "a\xef\xbf\xbdb", "a#b", "a?b", "a b", "a+b", "a;b", "a&b=c", `a"b`, "a<b>", "a\nb", "[x]", "~t",
		"a:b", "c:", "é", "e\u0301", "😀", `a\b`, "%41", "%", "a%2Fb", "-n", " ", ".a", "\x1b[31m", "<&>\xff"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Logf("this file system has no %q: %v", name, err)
		}
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	seen := map[pathuri.URI]bool{}
	for entry, err := range client.List(t.Context(), uriOf(t, dir)) {
		must(t, err)
		seen[entry.Path] = true
		text, err := entry.Path.MarshalText()
		must(t, err)
		again, err := pathuri.Parse(string(text))
		must(t, err)
		name, _ := again.Base()
		data, _, err := env.ReadFile(t.Context(), client, again, 1<<10)
		if err != nil || string(data) != name {
			t.Errorf("%s: %q, %v; want %q", again, data, err, name)
		}
		if _, err := env.WriteFile(t.Context(), client, again, []byte("<&>\xff\x00"+name), env.WriteOptions{}); err != nil {
			t.Error(err)
		}
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != "<&>\xff\x00"+name {
			t.Errorf("%q holds %q, %v", name, data, err)
		}
		if err := client.Remove(t.Context(), again, env.RemoveOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q is still there: %v", name, err)
		}
	}
	if len(seen) != len(entries) {
		t.Errorf("%d paths of %d names", len(seen), len(entries))
	}
}

// Files that say they are empty are read to their end.
func TestFilesOfTheKernel(t *testing.T) {
	t.Parallel()
	client := newNetworkAsAnother(t).connect()
	for path, want := range map[string]string{"/proc/self/status": "exec-server", "/proc/sys/kernel/hostname": "\n", "/proc/self/mountinfo": " / "} {
		data, _, err := env.ReadFile(t.Context(), client, uriOf(t, path), 1<<20)
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
}

// Writing keeps a file's mode, minds who may write, and leaves nothing behind when the server is killed in the middle.
func TestWritingAsAnother(t *testing.T) {
	t.Parallel()
	n := newNetworkAsAnother(t)
	client := n.connect()
	script := `umask 022; mkdir w ro; cd w; for m in 755 640 444; do echo old >$m; chmod $m $m; done; echo old >../ro/f; chmod 555 ../ro; pwd`
	dir := strings.TrimSpace(n.output("--", "sh", "-c", script))
	t.Cleanup(func() { os.Chmod(n.home+"/ro", 0o755) }) //nolint:errcheck // so that it can be removed
	for name, want := range map[string]fs.FileMode{"new": 0o644, "755": 0o755, "640": 0o640, "../ro/f": 0o644, "444": 0, "../ro/new": 0, "/etc/passwd": 0} {
		path := filepath.Join(dir, name)
		if filepath.IsAbs(name) {
			path = name
		}
		_, err := env.WriteFile(t.Context(), client, uriOf(t, path), []byte("new\n"), env.WriteOptions{})
		if want == 0 {
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		info, statErr := os.Stat(path)
		data, _ := os.ReadFile(path) // else it differs
		if err != nil || statErr != nil || info.Mode() != want || string(data) != "new\n" {
			t.Errorf("%s: %v, %v, %v, %q", name, err, statErr, info, data)
		}
	}
	w, err := client.Write(t.Context(), uriOf(t, dir+"/755"), env.WriteOptions{})
	must(t, err)
	_, err = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	must(t, err)
	for w.Taken() == 0 { // the server has some of it
		_, err := w.Write([]byte("x"))
		must(t, err)
	}
	n.stop(syscall.SIGKILL)
	client.Close()
	if data, err := os.ReadFile(dir + "/755"); string(data) != "new\n" {
		t.Errorf("the file holds %d bytes, %v", len(data), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

// A program that was just written can be started, whatever else is started at the same time.
func TestWrittenProgramsRun(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	client := n.connect()
	executable := fs.FileMode(0o755)
	many(400, func(i int) {
		program := fmt.Sprintf("%s/program-%d", n.home, i)
		_, err := env.WriteFile(t.Context(), client, uriOf(t, program), []byte("#!/bin/sh\nexit 3\n"), env.WriteOptions{Permissions: &executable, Unsynced: true})
		if err != nil {
			t.Error(err)
			return
		}
		p, err := client.Start(t.Context(), env.Command{Argv: []string{program}})
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Close()
		<-p.Exited()
		if exit, err := p.Exit(); err != nil || exit.Code != 3 {
			t.Errorf("%d: %+v, %v", i, exit, err)
		}
	})
}

// A list has what is there, links that lead nowhere among it, whatever comes and goes meanwhile; no call follows links
// that lead in circles or out.
func TestListsAndLinks(t *testing.T) {
	t.Parallel()
	n := newNetworkAsAnother(t)
	client := n.connect()
	dir := filepath.Join(n.home, "d")
	put(t, dir+"/ok", "")
	for name, target := range map[string]string{"dangling": "x", "loop": "loop", "self": ".", "root": "/", "up": ".."} {
		must(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	must(t, unix.Mkfifo(dir+"/fifo", 0o666))
	want := []string{"dangling", "fifo", "loop", "ok", "root", "self", "up"}
	ctx, cancel := context.WithTimeout(t.Context(), storyPatience)
	defer cancel()
	var walked []string
	for entry, err := range client.Walk(ctx, uriOf(t, dir), env.WalkOptions{}) {
		must(t, err)
		must(t, entry.Err)
		name, _ := entry.Path.Base()
		walked = append(walked, name)
	}
	if !slices.Equal(walked, append([]string{"d"}, want...)) {
		t.Errorf("the walk yields %q", walked)
	}
	done := make(chan struct{})
	var changing sync.WaitGroup
	changing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			name := fmt.Sprintf("%s/passing-%d", dir, i%1000)
			os.WriteFile(name, nil, 0o644) //nolint:errcheck // it is noise
			os.Remove(name)                //nolint:errcheck // it is noise
		}
	})
	for range 50 {
		var names []string
		for entry, err := range client.List(ctx, uriOf(t, dir)) {
			must(t, err)
			must(t, entry.Err)
			if name, _ := entry.Path.Base(); !strings.HasPrefix(name, "passing-") {
				names = append(names, name)
				if kind := entry.Info.Mode&fs.ModeSymlink != 0; kind != (name != "ok" && name != "fifo") {
					t.Errorf("%s is %v", name, entry.Info.Mode)
				}
			}
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("the list has %q", names)
		}
	}
	close(done)
	changing.Wait()
}

// What must not be removed is refused before anything is.
func TestRemoveRefusals(t *testing.T) {
	t.Parallel()
	argv := []string{"unshare", "-m", "--propagation", "private"}
	unshared(t, argv...)
	dir := t.TempDir()
	put(t, dir+"/w/in/mounted/keep", "")
	n := newNetworkUnder(t, append(argv, "sh", "-c", `mount --bind "$(dirname "$0")" "$(dirname "$0")" && mount -t tmpfs none "$0/w/in/mounted" && mount -o remount,ro,bind / && exec "$@"`, dir))
	client := n.connect()
	all := env.RemoveOptions{Recursive: true, Force: true}
	for _, path := range []string{"/", "/.", "/proc/..", dir + "/w/in/mounted", dir + "/w/in/mounted/.", "/proc", "/dev"} {
		if err := client.Remove(t.Context(), uriOf(t, path), all); err == nil {
			t.Errorf("%q was removed", path)
		}
	}
	missing := uriOf(t, dir+"/w/missing")
	if err := client.Remove(t.Context(), missing, env.RemoveOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := client.Remove(t.Context(), missing, env.RemoveOptions{Force: true}); err != nil {
		t.Error(err)
	}
}

// What a file is said to be is exact.
func TestDescriptions(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	client := n.connect()
	dir := filepath.Join(n.home, "d")
	put(t, dir+"/empty", "")
	must(t, os.Symlink("empty", dir+"/link"))
	must(t, os.Symlink("none", dir+"/dangling"))
	past := time.Date(1969, 1, 1, 0, 0, 0, 123456789, time.UTC)
	must(t, os.Chtimes(dir+"/empty", past, past))
	put(t, dir+"/sparse", "")
	const huge = 1<<40 + 1
	if err := os.Truncate(dir+"/sparse", huge); err != nil {
		t.Logf("no sparse files here: %v", err)
		os.Remove(dir + "/sparse") //nolint:errcheck // it is asked for below
	}
	for _, test := range []struct {
		name   string
		follow bool
		mode   fs.FileMode
		size   int64
	}{
		{"empty", false, 0, 0}, {"link", false, fs.ModeSymlink, 5}, {"link", true, 0, 0}, {"dangling", false, fs.ModeSymlink, 4}, {"sparse", true, 0, huge},
	} {
		if _, err := os.Lstat(filepath.Join(dir, test.name)); err != nil {
			continue
		}
		info, err := client.Stat(t.Context(), uriOf(t, filepath.Join(dir, test.name)), test.follow)
		if err != nil || info.Mode.Type() != test.mode || info.Size != test.size {
			t.Errorf("%s: %+v, %v", test.name, info, err)
		}
		if test.name == "empty" && !info.Modified.Equal(past) {
			t.Errorf("changed %v, want %v", info.Modified, past)
		}
	}
	for name, want := range map[string]error{"": fs.ErrExist, "empty": fs.ErrExist, "dangling": fs.ErrExist, "none/x": fs.ErrNotExist, "empty/x": env.ErrNotDirectory} {
		if err := client.Mkdir(t.Context(), uriOf(t, filepath.Join(dir, name)), env.MkdirOptions{}); !errors.Is(err, want) {
			t.Errorf("mkdir %q: %v, want %v", name, err, want)
		}
	}
	if err := client.Mkdir(t.Context(), uriOf(t, dir), env.MkdirOptions{Parents: true}); err != nil {
		t.Error(err)
	}
	if err := client.Mkdir(t.Context(), uriOf(t, dir+"/empty"), env.MkdirOptions{Parents: true}); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if _, err := env.WriteFile(t.Context(), client, uriOf(t, dir+"/empty"), nil, env.WriteOptions{Mode: env.Exclusive}); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
}

// agentsOf runs agents and returns the size and the path of each file that counts, and the exit code.
func (n *network) agentsOf(args ...string) (files []string, code int) {
	n.t.Helper()
	command := n.through(append(append([]string{"agents"}, args...), "--json")...)
	command.Stderr = &lockedBuffer{}
	out, _ := command.Output() // the code tells
	var list []struct {
		Environment, URI, Path string
		SizeBytes, UsedBytes   int64
	}
	if err := json.Unmarshal(out, &list); err != nil {
		n.t.Fatalf("agents %q: %v, %q, %s", args, err, out, command.Stderr)
	}
	for _, f := range list {
		if f.URI != uriOf(n.t, f.Path).String() {
			n.t.Errorf("agents %q: %+v", args, f)
		}
		files = append(files, fmt.Sprintf("%d/%d %s", f.UsedBytes, f.SizeBytes, f.Path))
	}
	return files, command.ProcessState.ExitCode()
}

// Which instructions count is decided by the tree as it is spelled, from the project's root down.
func TestInstructionsThatCount(t *testing.T) {
	t.Parallel()
	n := newNetworkAsAnother(t)
	w := filepath.Join(n.home, "w")
	for path, text := range map[string]string{
		"repo/.git/HEAD": "", "repo/AGENTS.md": "R", "repo/.wt/b/.git": "gitdir: /w/repo/.git/worktrees/b", "repo/.wt/b/AGENTS.md": "WT", "repo/.wt/b/src/x": "",
		"repo/module/.git": "gitdir: ../.git/modules/module", "repo/module/AGENTS.md": "SUB", "repo/module/src/x": "",
		"l/proj/.git/HEAD": "", "l/proj/AGENTS.md": "L", "p/AGENTS.md": "foreign", "p/real/in/x": "",
		"big/.git/HEAD": "", "big/AGENTS.md": strings.Repeat("a", 32767) + strings.Repeat("é…", 20), "big/sub/AGENTS.md": "SUB",
		"a/AGENTS.md": "0", "a/b/.git/HEAD": "", "a/b/AGENTS.md": "1", "a/b/c/AGENTS.override.md": "2o", "a/b/c/AGENTS.md": "2", "a/b/c/d/x": "",
		"bare/AGENTS.md": "0", "bare/c/AGENTS.md": "1", "odd/.git/HEAD": "", "odd/AGENTS.md": "1", "odd/c/x": "",
	} {
		put(t, filepath.Join(w, path), text)
	}
	must(t, os.Symlink("../../p/real", w+"/l/proj/pkg"))
	must(t, os.Mkdir(w+"/huge", 0o755))
	must(t, os.WriteFile(w+"/huge/AGENTS.md", nil, 0o644))
	must(t, unix.Mkfifo(w+"/odd/c/AGENTS.md", 0o644))
	const huge = 1 << 40
	if err := os.Truncate(w+"/huge/AGENTS.md", huge); err != nil {
		t.Logf("no sparse files here: %v", err)
	}
	for directory, want := range map[string][]string{
		"repo/.wt/b/src":  {"2/2 repo/.wt/b/AGENTS.md"},
		"repo/module/src": {"3/3 repo/module/AGENTS.md"},
		"l/proj/pkg/in":   {"1/1 l/proj/AGENTS.md"},
		"big/sub":         {"32767/32867 big/AGENTS.md"},
		"a/b/c/d":         {"1/1 a/b/AGENTS.md", "2/2 a/b/c/AGENTS.override.md"},
		"bare/c":          {"1/1 bare/c/AGENTS.md"},
		"odd/c":           {"1/1 odd/AGENTS.md"},
		"huge":            {fmt.Sprintf("32768/%d huge/AGENTS.md", int64(huge))},
	} {
		if info, err := os.Stat(w + "/huge/AGENTS.md"); directory == "huge" && (err != nil || info.Size() != huge) {
			continue
		}
		got, code := n.agentsOf("-C", filepath.Join(w, directory))
		for i := range got {
			got[i] = strings.Replace(got[i], w+"/", "", 1)
		}
		if code != 0 || !slices.Equal(got, want) {
			t.Errorf("%s: exit code %d, %q, want %q", directory, code, got, want)
		}
	}
	if resident := n.usage().resident; !withRace && resident > 100<<20 {
		t.Errorf("the server takes %d bytes", resident)
	}
}

// Each machine's files are its own, whatever is at the same path on another one.
func TestFilesBelongToTheirMachine(t *testing.T) {
	t.Parallel()
	argv := []string{"unshare", "-m", "--propagation", "private"}
	unshared(t, argv...)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	put(t, dir+"/elsewhere/AGENTS.md", "of this host")
	put(t, dir+"/elsewhere/f", "of this host")
	must(t, os.Symlink("elsewhere", dir+"/w")) // here a link, there a directory
	n := newNetworkUnder(t, append(argv, "sh", "-c", `mount -t tmpfs none "$0" && mkdir -p "$0/w" && printf there >"$0/w/AGENTS.md" && exec "$@"`, dir))
	t.Cleanup(func() { must(t, endDaemon(filepath.Join(n.home, "exec-server"))) })
	before := sum(t, dir)
	w := filepath.Join(dir, "w")
	if got, code := n.agentsOf("-e", "local", "-C", w); code != 0 || !slices.Equal(got, []string{"5/5 " + w + "/AGENTS.md", "12/12 " + w + "/AGENTS.md"}) {
		t.Errorf("agents: exit code %d, %q", code, got)
	}
	client := n.connect()
	watch := observe(t, client, w, true)
	source := filepath.Join(n.home, "f")
	put(t, source, "new")
	if code, said := n.copies(source, "REMOTE:"+w); code != 0 {
		t.Errorf("cp: %s", said)
	}
	watch.await("created f", "modified f")
	real, err := client.Canonicalize(t.Context(), uriOf(t, w+"/../w/f"))
	if err != nil || real != uriOf(t, w+"/f") {
		t.Errorf("%v, %v", real, err)
	}
	data, _, err := env.ReadFile(t.Context(), client, real, 100)
	if err != nil || string(data) != "new" {
		t.Errorf("%q, %v", data, err)
	}
	must(t, client.Remove(t.Context(), uriOf(t, w), env.RemoveOptions{Recursive: true}))
	if after := sum(t, dir); after != before {
		t.Error("files of this host have changed")
	}
}

// observed is a watch, and what it has told.
type observed struct {
	t       *testing.T
	batches chan []env.Change
}

func observe(t *testing.T, client *rpc.Client, path string, recursive bool) *observed {
	t.Helper()
	w, err := client.Watch(t.Context(), uriOf(t, path), env.WatchOptions{Recursive: recursive})
	must(t, err)
	o := &observed{t, make(chan []env.Change, 4096)}
	go func() {
		defer close(o.batches)
		for batch, err := range w.Changes(t.Context()) {
			if err != nil {
				return
			}
			o.batches <- batch
		}
	}()
	t.Cleanup(func() { w.Close() })
	return o
}

// await waits until one of these was told, "kind name", and returns all the batches until then.
func (o *observed) await(wanted ...string) (told [][]string) {
	o.t.Helper()
	deadline := time.After(storyPatience)
	for {
		select {
		case batch, ok := <-o.batches:
			if !ok {
				o.t.Fatalf("the watch has ended without %q; it told %q", wanted, told)
			}
			var texts []string
			for _, change := range batch {
				name, _ := change.Path.Base()
				texts = append(texts, string(change.Kind)+" "+name)
			}
			told = append(told, texts)
			if slices.ContainsFunc(texts, func(text string) bool { return slices.Contains(wanted, text) }) {
				return told
			}
		case <-deadline:
			o.t.Fatalf("no %q, but %q", wanted, told)
		}
	}
}

// Each save of a file that is replaced is told, as is each turn of a link to it, and its removal.
func TestSavesAreTold(t *testing.T) {
	t.Parallel()
	n := newNetworkAsAnother(t)
	client := n.connect()
	file, link := filepath.Join(n.home, "f"), filepath.Join(n.home, "l")
	put(t, file, "0")
	put(t, n.home+"/v0/f", "0")
	must(t, os.Symlink("v0", n.home+"/current"))
	must(t, os.Symlink("current/f", link))
	of, ol := observe(t, client, file, false), observe(t, client, link, false)
	for i := range 3 {
		put(t, n.home+"/.t", fmt.Sprint(i))
		must(t, os.Rename(n.home+"/.t", file))
		of.await("modified f")
		put(t, fmt.Sprintf("%s/v%d/f", n.home, i+1), fmt.Sprint(i))
		must(t, os.Symlink(fmt.Sprintf("v%d", i+1), n.home+"/.l"))
		must(t, os.Rename(n.home+"/.l", n.home+"/current"))
		ol.await("modified l")
	}
	must(t, os.Remove(file))
	of.await("removed f")
	put(t, file, "again")
	of.await("created f")
}

// What the kernel could not keep is told as such, and what comes after it is told.
func TestOverflowIsTold(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	dir := filepath.Join(n.home, "d")
	must(t, os.Mkdir(dir, 0o755))
	o := observe(t, n.connect(), dir, true)
	must(t, n.server.Process.Signal(syscall.SIGSTOP))
	names := [2]string{dir + "/x", dir + "/y"}
	put(t, names[0], "")
	for i := range 12_000 { // two events each
		must(t, os.Rename(names[i%2], names[1-i%2]))
	}
	must(t, n.server.Process.Signal(syscall.SIGCONT))
	o.await("rescan d")
	put(t, dir+"/last", "")
	o.await("created last", "rescan d")
	put(t, dir+"/later", "")
	o.await("created later")
}

// A watched directory that is no longer what it was ends its watch; nothing is told with a path that is wrong.
func TestWatchedDirectoryGoes(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	client := n.connect()
	d, e := filepath.Join(n.home, "d"), filepath.Join(n.home, "e")
	must(t, os.Mkdir(d, 0o755))
	must(t, os.Mkdir(e, 0o755))
	od, oe := observe(t, client, d, true), observe(t, client, e, true)
	must(t, os.Remove(d))
	must(t, os.Mkdir(d, 0o755))
	put(t, d+"/x", "")
	od.await("gone d")
	must(t, os.Rename(e, e+"2"))
	put(t, e+"2/y", "")
	for _, batch := range oe.await("gone e") {
		for _, text := range batch {
			if text != "gone e" {
				t.Errorf("told %q", text)
			}
		}
	}
}

// Bursts cost a few batches each, and the last change of each is told.
func TestBurstsAreBatched(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	dir := filepath.Join(n.home, "d")
	must(t, os.Mkdir(dir, 0o755))
	o := observe(t, n.connect(), dir, true)
	for burst := range 3 {
		for i := range 100 {
			must(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644))
		}
		last := fmt.Sprintf("last%d", burst)
		put(t, filepath.Join(dir, last), "")
		if told := o.await("created " + last); len(told) > 20 {
			t.Errorf("burst %d took %d batches", burst, len(told))
		}
	}
}

// Links that lead nowhere, directories that may not be read, FIFOs and sockets keep nobody from a watch of their tree.
func TestWatchOfOddTree(t *testing.T) {
	t.Parallel()
	n := newNetworkAsAnother(t)
	dir := filepath.Join(n.home, "d")
	put(t, dir+"/sub/x", "")
	must(t, os.Symlink("none", dir+"/dangling"))
	must(t, os.Symlink("loop", dir+"/loop"))
	must(t, os.Symlink("/", dir+"/root"))
	must(t, unix.Mkfifo(dir+"/fifo", 0o666))
	must(t, os.Mkdir(dir+"/closed", 0o000))
	t.Cleanup(func() { os.Chmod(dir+"/closed", 0o700) }) //nolint:errcheck // so that it can be removed
	o := observe(t, n.connect(), dir, true)
	put(t, dir+"/sub/ok", "")
	o.await("created ok")
}

// inotify counts the server's inotify instances, and the watches in them.
func (n *network) inotify() (instances, watches int) {
	n.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fdinfo", n.server.Process.Pid)
	entries, err := os.ReadDir(dir)
	must(n.t, err)
	for _, entry := range entries {
		link, _ := os.Readlink(filepath.Join(filepath.Dir(dir), "fd", entry.Name())) // it may be closed by now
		if link != "anon_inode:inotify" {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(dir, entry.Name())) // as above
		instances++
		watches += strings.Count(string(text), "inotify wd:")
	}
	return instances, watches
}

// A client that is killed leaves no watch behind once its connection is gone.
func TestWatchesOfClientThatVanishes(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	tree := filepath.Join(n.home, "tree")
	for i := range 20 {
		put(t, fmt.Sprintf("%s/%d/f", tree, i), "")
	}
	before, _ := n.inotify()
	client := exec.Command("/proc/self/exe", "-test.run=^TestWatcherRole$")
	client.Env = append(os.Environ(), watcherRole+"="+n.proxy.Addr()+" "+n.token+" "+tree)
	out, err := client.StdoutPipe()
	must(t, err)
	must(t, client.Start())
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Errorf("the client did not begin to watch: %v", err)
	}
	if instances, watches := n.inotify(); instances != before+1 || watches < 20 {
		t.Errorf("the server has %d inotify instances with %d watches", instances, watches)
	}
	must(t, client.Process.Kill())
	client.Wait() //nolint:errcheck // the kill
	n.awaitNone("inotify watches", func() int {
		instances, watches := n.inotify()
		return watches + max(0, instances-before)
	})
}

// Calls on files, good ones, refused ones, given up ones and cut ones, leave no descriptor and no watch behind.
func TestFileCallsLeaveNothing(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	dir := filepath.Join(n.home, "d")
	put(t, dir+"/tree/in/f", "f")
	put(t, dir+"/big", strings.Repeat("x", 4<<20))
	must(t, unix.Mkfifo(dir+"/fifo", 0o666))
	at := func(name string) pathuri.URI { return uriOf(t, filepath.Join(dir, name)) }
	each := func(ctx context.Context, client *rpc.Client, i int) {
		own := at(fmt.Sprintf("own-%d", i%64))
		entries := func(sequence func(func(env.Entry, error) bool), most int) {
			for range sequence {
				if most--; most == 0 {
					return
				}
			}
		}
		// What they return is not the subject, and a cut makes some of them fail.
		switch i % 12 {
		case 0:
			env.ReadFile(ctx, client, at("tree/in/f"), 1<<10) //nolint:errcheck // see above
		case 1:
			if r, err := client.Read(ctx, at("big"), env.ReadOptions{}); err == nil {
				for range r.Chunks() {
					break
				}
				r.Close() //nolint:errcheck // see above
			}
		case 2:
			env.WriteFile(ctx, client, own, []byte("x"), env.WriteOptions{}) //nolint:errcheck // see above
		case 3:
			if w, err := client.Write(ctx, own, env.WriteOptions{}); err == nil {
				w.Write(make([]byte, 100_000)) //nolint:errcheck // see above
				w.Close()                      //nolint:errcheck // see above
			}
		case 4:
			entries(client.List(ctx, at("")), i%3)
		case 5:
			entries(client.Walk(ctx, at(""), env.WalkOptions{}), i%3)
		case 6:
			client.Copy(ctx, at("tree"), at(fmt.Sprintf("copy-%d", i%64)), env.CopyOptions{Recursive: true}) //nolint:errcheck // see above
		case 7:
			env.ReadFile(ctx, client, at("fifo"), 1<<10)                                  //nolint:errcheck // see above
			env.WriteFile(ctx, client, at("no/f"), []byte("x"), env.WriteOptions{})       //nolint:errcheck // see above
			env.WriteFile(ctx, client, at("tree"), []byte("x"), env.WriteOptions{})       //nolint:errcheck // see above
			client.Copy(ctx, at("tree"), at("tree/in"), env.CopyOptions{Recursive: true}) //nolint:errcheck // see above
		case 8:
			if w, err := client.Watch(ctx, at("tree"), env.WatchOptions{Recursive: true}); err == nil {
				w.Close() //nolint:errcheck // see above
			}
			client.Watch(ctx, at("no"), env.WatchOptions{}) //nolint:errcheck // see above
		case 9:
			in := client.Within(at("tree"))
			env.ReadFile(ctx, in, at("tree/in/f"), 1<<10)                  //nolint:errcheck // see above
			env.ReadFile(ctx, in, at("big"), 1<<10)                        //nolint:errcheck // see above
			env.WriteFile(ctx, in, own, []byte("x"), env.WriteOptions{})   //nolint:errcheck // see above
			in.Remove(ctx, at("tree"), env.RemoveOptions{Recursive: true}) //nolint:errcheck // see above
		case 10:
			entries(client.List(ctx, at("big")), 0)
			entries(client.Walk(ctx, at("no"), env.WalkOptions{}), 0)
			client.Remove(ctx, at("no"), env.RemoveOptions{})            //nolint:errcheck // see above
			client.Rename(ctx, at("no"), at("no2"), env.RenameOptions{}) //nolint:errcheck // see above
			client.Canonicalize(ctx, at("tree/in/../in/f"))              //nolint:errcheck // see above
		case 11: // given up in the middle, without a Close
			given, cancel := context.WithCancel(ctx)
			client.Read(given, at("big"), env.ReadOptions{}) //nolint:errcheck // see above
			if w, err := client.Write(given, own, env.WriteOptions{}); err == nil {
				w.Write(make([]byte, 100_000)) //nolint:errcheck // see above
			}
			cancel()
		}
	}
	warm := n.connect()
	for i := range 12 {
		each(t.Context(), warm, i)
	}
	// What was not closed counts until its client says goodbye.
	must(t, warm.Goodbye(t.Context(), false))
	warm.Close()
	other := n.connect()
	if _, err := other.Stat(t.Context(), at(""), true); err != nil {
		t.Fatal(err)
	}
	before := n.usage().descriptors
	for _, cut := range []time.Duration{0, 50 * time.Millisecond} {
		client := n.connect()
		stop := func() {}
		if cut > 0 {
			stop = n.cutting(cut)
		}
		many(1200, func(i int) { each(t.Context(), client, i) })
		stop()
		must(t, client.Goodbye(t.Context(), false))
		client.Close()
		n.awaitNone("descriptors too many", func() int { return max(0, n.usage().descriptors-before) })
		if instances, watches := n.inotify(); watches > 0 || instances > 1 {
			t.Errorf("%d inotify instances with %d watches are left", instances, watches)
		}
	}
}

const watcherRole = "WALDO_TEST_WATCHER"

// TestWatcherRole is the client of TestWatchesOfClientThatVanishes.
func TestWatcherRole(t *testing.T) {
	role := strings.Fields(os.Getenv(watcherRole))
	if len(role) != 3 {
		return // it is no test of its own
	}
	token, err := os.ReadFile(role[1])
	must(t, err)
	client, err := rpc.Dial(t.Context(), rpc.ClientOptions{Token: strings.TrimSpace(string(token)), Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", role[0])
	}})
	must(t, err)
	defer client.Close()
	for range 200 { // more than a user has inotify instances
		_, err := client.Watch(t.Context(), uriOf(t, role[2]), env.WatchOptions{Recursive: true})
		must(t, err)
	}
	fmt.Println("watching")
	<-make(chan struct{}) // until it is killed
}
