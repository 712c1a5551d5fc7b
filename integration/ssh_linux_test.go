package integration

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// box is a machine that ssh leads to: an sshd of the test's own, as the user who runs it, and that user with
// another home there.
type box struct {
	*rig
	port int
	home string // there
	log  *lockedBuffer
}

// newBox starts an sshd. path is the PATH that it gives to commands. It skips the test where ssh itself does not
// come to it.
func newBox(t *testing.T, path string, keyOptions ...string) *box {
	t.Helper()
	for _, tool := range []string{"ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s here", tool)
		}
	}
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		if sshd, err = exec.LookPath("/usr/sbin/sshd"); err != nil {
			t.Skip("no sshd here")
		}
	}
	if os.Geteuid() == 0 { // sshd wants it, whoever installed it
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	b := &box{
		rig:  &rig{t: t, dir: filepath.Join(dir, "bin"), home: filepath.Join(dir, "here")},
		home: filepath.Join(dir, "there"), port: freePort(t), log: &lockedBuffer{},
	}
	for _, d := range []string{b.dir, b.rig.home, b.home} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"app-server", "exec-server"} { // what is installed is found beside app-server
		if err := os.Link(filepath.Join(programs(t), program), filepath.Join(b.dir, program)); err != nil {
			t.Fatal(err)
		}
	}
	key := func(name string, options ...string) string {
		file := filepath.Join(dir, name)
		options = append([]string{"-q", "-t", "ed25519", "-f", file}, options...)
		if out, err := exec.Command("ssh-keygen", options...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v %s", err, out)
		}
		return file
	}
	if len(keyOptions) == 0 {
		keyOptions = []string{"-N", ""}
	}
	host, user := key("host", "-N", ""), key("user", keyOptions...)
	hostKey, err := os.ReadFile(host + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	known := write("known", fmt.Sprintf("[127.0.0.1]:%d %s", b.port, hostKey), 0o600)
	server := write("sshd_config", fmt.Sprintf(`Port %d
ListenAddress 127.0.0.1
HostKey %s
AuthorizedKeysFile %s.pub
StrictModes no
PidFile none
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
PrintMotd no
PrintLastLog no
SetEnv HOME="%s" PATH="%s"
`, b.port, host, user, b.home, path), 0o600)
	client := write("ssh_config", fmt.Sprintf(`Host box
  HostName 127.0.0.1
  Port %d
  IdentityFile %s
  IdentitiesOnly yes
  UserKnownHostsFile %s
  GlobalKnownHostsFile none
`, b.port, user, known), 0o600)
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	write("bin/ssh", fmt.Sprintf("#!/bin/sh\nexec %s -F %s \"$@\"\n", ssh, client), 0o700)

	daemon := exec.Command(sshd, "-D", "-e", "-f", server)
	daemon.Stderr = b.log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := b.clients(); len(left) > 0 {
			t.Errorf("ssh processes are left: %v", left)
		}
		if err := endDaemon(filepath.Join(b.home, ".waldo", "exec-server")); err != nil {
			t.Error(err)
		}
		daemon.Process.Signal(syscall.SIGTERM) //nolint:errcheck // Wait tells
		daemon.Wait()                          //nolint:errcheck // the signal
	})
	b.probe(daemon, len(keyOptions) == 2 && keyOptions[1] != "")
	return b
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// probe waits until sshd listens, and finds out whether it lets this user in at all.
func (b *box) probe(daemon *exec.Cmd, locked bool) {
	b.t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(storyPatience); ; {
		c, err := net.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)))
		if err == nil {
			c.Close()
			break
		}
		select {
		case <-again.C:
		case <-deadline:
			b.t.Fatalf("sshd does not listen: %v %s", err, b.log)
		}
		if daemon.Process.Signal(syscall.Signal(0)) != nil || bytes.Contains([]byte(b.log.String()), []byte("fatal")) {
			b.t.Skipf("sshd does not start here: %s", b.log)
		}
	}
	if locked {
		return
	}
	out, err := b.command("ssh", "-o", "BatchMode=yes", "box", "echo in").CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("in\n")) {
		b.t.Skipf("ssh does not get into an sshd of our own here: %v %s %s", err, out, b.log)
	}
}

// clients are the pids of the ssh processes that lead to the box.
func (b *box) clients() (pids []int) {
	config := "\x00" + filepath.Join(filepath.Dir(b.dir), "ssh_config") + "\x00"
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, file := range lines {
		line, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(line), config) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// withServer is the PATH of a box that has an exec-server.
func withServer(t *testing.T) string { return programs(t) + ":/usr/bin:/bin" }

// TestSSHCut: what a cut ssh was in the middle of goes on through the next one, whole and once.
func TestSSHCut(t *testing.T) {
	t.Parallel()
	b := newBox(t, withServer(t))
	const size, cuts = 48 << 20, 3
	path, want := noise(t, size)
	marker := filepath.Join(b.home, "started")
	c := b.command("app-server", "run", "-e", "ssh://box", "--", "sh", "-c", fmt.Sprintf("echo once >> %s; cat %s; exit 7", marker, path))
	stderr := &lockedBuffer{}
	c.Stderr = stderr
	stdout, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	killed := map[int]bool{}
	for range cuts {
		if _, err := io.CopyN(hash, stdout, size/(cuts+1)); err != nil {
			t.Fatalf("%v %s", err, stderr)
		}
		found := 0
		for _, pid := range b.clients() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
				killed[pid] = true
				found++
			}
		}
		if found == 0 {
			t.Error("there is no ssh to kill")
		}
	}
	if _, err := io.Copy(hash, stdout); err != nil {
		t.Fatal(err)
	}
	if code := exitCodeOf(t, c); code != 7 {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want {
		t.Errorf("other bytes came; %s", stderr)
	}
	if started, err := os.ReadFile(marker); string(started) != "once\n" {
		t.Errorf("started %q, %v", started, err)
	}
	if len(killed) < cuts {
		t.Errorf("only %d ssh were killed", len(killed))
	}
}

// TestSSHInstall: a box without a server is told as such, gets one when that is asked for, and keeps it.
func TestSSHInstall(t *testing.T) {
	t.Parallel()
	b := newBox(t, "/usr/bin:/bin")
	run := func(args ...string) (stdout, stderr string, code int) {
		t.Helper()
		c := b.command("app-server", args...)
		var out, said bytes.Buffer
		c.Stdout, c.Stderr = &out, &said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		code = exitCodeOf(t, c)
		return out.String(), said.String(), code
	}
	// Start-up files print what they like, before the script has its word.
	if err := os.WriteFile(filepath.Join(b.home, ".bashrc"), []byte("echo Welcome to the box\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := run("run", "-e", "ssh://box", "--", "true")
	if code != 125 || !strings.HasPrefix(stderr, `app-server: ssh://box ("Linux `) || !strings.Contains(stderr, "has no exec-server") ||
		!strings.Contains(stderr, "--install copies one there") {
		t.Errorf("exit code %d, %s", code, stderr)
	}

	// A client that has none to give says where it looked for one.
	alone := filepath.Join(t.TempDir(), "app-server")
	if err := os.Link(filepath.Join(b.dir, "app-server"), alone); err != nil {
		t.Fatal(err)
	}
	c := b.command("app-server", "run", "--install", "-e", "ssh://box", "--", "true")
	c.Path = alone
	out, err := c.CombinedOutput()
	if c.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), "looked for ") || !strings.Contains(string(out), filepath.Join(filepath.Dir(alone), "exec-server-linux-")) {
		t.Errorf("%v %s", err, out)
	}

	if err := os.Remove(filepath.Join(b.home, ".bashrc")); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := run("run", "--install", "-e", "ssh://box", "--", "sh", "-c", "echo at $HOME")
	if stdout != "at "+b.home+"\n" || code != 0 || !strings.Contains(stderr, "as ~/.waldo/bin/exec-server on ssh://box") {
		t.Fatalf("%q, exit code %d, %s", stdout, code, stderr)
	}
	bin := filepath.Join(b.home, ".waldo", "bin")
	entries, err := os.ReadDir(bin)
	if err != nil || len(entries) != 1 || entries[0].Name() != "exec-server" {
		t.Errorf("%v, %v", entries, err)
	}
	info, err := os.Stat(filepath.Join(bin, "exec-server"))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	// Now it is there: nothing is copied, with or without --install.
	for _, args := range [][]string{{"run", "--install"}, {"run"}} {
		stdout, stderr, code = run(append(args, "-e", fmt.Sprintf("ssh://box:%d", b.port), "--", "echo", "again")...)
		if stdout != "again\n" || stderr != "" || code != 0 {
			t.Errorf("%q: %q, exit code %d, %s", args, stdout, code, stderr)
		}
	}
	after, err := os.Stat(filepath.Join(bin, "exec-server"))
	if err != nil || !os.SameFile(info, after) {
		t.Errorf("it was copied again: %v", err)
	}
}

// TestSSHNoise: what a start-up file prints instead of the protocol is shown, and so is what ssh says when it fails.
func TestSSHNoise(t *testing.T) {
	t.Parallel()
	b := newBox(t, withServer(t))
	fails := func(want string, args ...string) {
		t.Helper()
		c := b.command("app-server", append(args, "--", "true")...)
		out, err := c.CombinedOutput()
		if c.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), want) {
			t.Errorf("%v, want %q in %s", err, want, out)
		}
	}
	fails("Host key verification failed", "run", "-e", fmt.Sprintf("ssh://localhost:%d", b.port))
	if err := os.WriteFile(filepath.Join(b.home, ".bashrc"), []byte("echo Welcome to the box\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := b.command("ssh", "box", "true").Output(); err != nil || len(out) == 0 {
		t.Skip("the login shell here reads no start-up file for a command")
	}
	fails(`ssh box printed "Welcome to the box\n" instead of the protocol`, "run", "-e", "ssh://box")
}

// TestSSHAsks: at a terminal ssh may ask for a passphrase, and the terminal is ours again after that.
func TestSSHAsks(t *testing.T) {
	t.Parallel()
	b := newBox(t, withServer(t), "-N", "open sesame")
	w := b.open(24, 80, "run", "-e", "ssh://box", "--", "sh", "-c", "echo ready; read line; echo got $line")
	w.expect("Enter passphrase for key")
	w.send("open sesame\r")
	w.expect("ready")
	w.send("hello\r") // is for the command
	w.expect("got hello")
	w.exits(0)
	// Ctrl-C is an answer, too.
	other := b.open(24, 80, "run", "-e", "ssh://box", "--", "true")
	other.expect("Enter passphrase for key")
	other.send("\x03")
	other.expect("ssh ended with signal: interrupt")
	other.exits(125)
	// Without a terminal nothing is asked.
	c := b.command("app-server", "run", "-e", "ssh://box", "--", "true")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if code := exitCodeOf(t, c); code != 125 || !strings.Contains(out.String(), "Permission denied") {
		t.Errorf("exit code %d, %s", code, out.String())
	}
}
