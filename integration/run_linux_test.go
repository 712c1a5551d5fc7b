package integration

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// run begins a client's run command and returns its standard output and, once it has ended, its standard error.
func (r *rig) run(args ...string) (c *exec.Cmd, stdout *bufio.Reader, stderr *bytes.Buffer) {
	r.t.Helper()
	c = r.command("app-server", append([]string{"run", "-e", "unix://" + r.socket}, args...)...)
	stderr = new(bytes.Buffer)
	c.Stderr = stderr
	pipe, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Process.Kill() }) //nolint:errcheck // it may have ended
	return c, bufio.NewReader(pipe), stderr
}

// exitCodeOf waits for a command.
func exitCodeOf(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

// TestRunTellsOfARestart: what ran on a server that is gone is not waited for, and not run again.
func TestRunTellsOfARestart(t *testing.T) {
	r := newRig(t)
	c, stdout, stderr := r.run("--", "sh", "-c", "echo once; exec sleep 600")
	if line, err := stdout.ReadString('\n'); line != "once\n" {
		t.Fatalf("%q, %v", line, err)
	}
	r.stop(syscall.SIGKILL)
	r.serve()
	rest, err := io.ReadAll(stdout)
	if len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if code := exitCodeOf(t, c); code != 125 || !strings.Contains(stderr.String(), "server restarted") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// TestRunTellsOfLostOutput: with delivery latest a command does not wait for a reader, who is told what is missing.
func TestRunTellsOfLostOutput(t *testing.T) {
	const size = 64 << 20
	r := newRig(t)
	c, stdout, stderr := r.run("--delivery", "latest", "--", "head", "-c", strconv.Itoa(size), "/dev/zero")
	r.await(`(exited|closed)\(0\) `, true, "ps", "-a") // while nobody reads
	got, err := io.Copy(io.Discard, stdout)
	if err != nil {
		t.Fatal(err)
	}
	if code := exitCodeOf(t, c); code != 0 {
		t.Errorf("exit code %d", code)
	}
	said := regexp.MustCompile(`(?m)^app-server: lost (\d+) bytes at offset \d+$`).FindAllStringSubmatch(stderr.String(), -1)
	var lost int64
	for _, s := range said {
		n, err := strconv.ParseInt(s[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		lost += n
	}
	if lost == 0 || got+lost != size {
		t.Errorf("%d bytes came and %d were told as lost, of %d; %s", got, lost, size, stderr)
	}
}

// TestRunUnderNohup: a signal that was to be ignored is not forwarded.
func TestRunUnderNohup(t *testing.T) {
	r := newRig(t)
	shell := r.command("sh", "-c", `trap "" HUP; app-server run -e unix://`+r.socket+` -- sh -c "echo ready; read line; echo \$line"`)
	shell.Path, shell.Err = "/bin/sh", nil
	input, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(output)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := syscall.Kill(-shell.Process.Pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	io.WriteString(input, "alive\n") //nolint:errcheck // the output tells
	if line, err := lines.ReadString('\n'); line != "alive\n" {
		t.Errorf("%q, %v", line, err)
	}
	if code := exitCodeOf(t, shell); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
