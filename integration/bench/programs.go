//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bench is one run of the program.
type bench struct {
	quick    bool
	progress io.Writer
	root     string // of the module
	dir      string // temporary, removed in the end
	codex    string // path of the binary, "" if Codex is not measured

	mu      sync.Mutex
	running map[*program]struct{}
}

// sized picks a size by -quick.
func (b *bench) sized(full, quick int) int {
	if b.quick {
		return quick
	}
	return full
}

// prepare finds what is needed. codex is the flag.
func (b *bench) prepare(ctx context.Context, codex string) error {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	b.root = filepath.Dir(strings.TrimSpace(string(mod)))
	if _, err := os.Stat(filepath.Join(b.root, "cmd", "exec-server")); err != nil {
		return fmt.Errorf("run it inside the module: %w", err)
	}
	b.running = make(map[*program]struct{})
	if codex == "" {
		codex = os.Getenv("CODEX")
	}
	switch codex {
	case "off":
	case "":
		if b.codex, err = b.installedCodex(ctx); err != nil {
			b.leaveOut(ctx, err)
		}
	default:
		if b.codex, err = exec.LookPath(codex); err != nil {
			return fmt.Errorf("codex: %w", err)
		}
	}
	b.dir, err = os.MkdirTemp("", "waldo-bench-")
	return err
}

func (b *bench) installedCodex(ctx context.Context) (string, error) {
	c := exec.CommandContext(ctx, filepath.Join(b.root, "integration", "peer.sh"))
	c.Stderr = b.progress
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("integration/peer.sh: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// leaveOut tells why Codex's column is, from here on in a row, empty.
func (b *bench) leaveOut(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the whole run ends
	}
	fmt.Fprintf(b.progress, "Codex is left out: %v\n", err)
}

// close stops what runs and removes what was made.
func (b *bench) close() {
	b.mu.Lock()
	var left []*program
	for p := range b.running {
		left = append(left, p)
	}
	b.mu.Unlock()
	for _, p := range left {
		p.stop()
	}
	os.RemoveAll(b.dir) //nolint:errcheck // a temporary directory
}

// build builds one of the module's programs as a release is built, once, and returns its path.
func (b *bench) build(ctx context.Context, pkg string) (string, error) {
	path := filepath.Join(b.dir, filepath.Base(pkg))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./"+pkg)
	c.Dir = b.root
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// program is a running child. It ends with stop, with the bench, or, should the bench be killed, by the kernel.
type program struct {
	bench  *bench
	cmd    *exec.Cmd
	first  string // line of its standard output
	stderr tail
	ended  chan struct{}
	once   sync.Once
}

// start starts a program and waits for the first line of its standard output, which tells where it listens.
func (b *bench) start(ctx context.Context, c *exec.Cmd) (*program, error) {
	p := &program{bench: b, cmd: c, ended: make(chan struct{})}
	c.Stderr = &p.stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	stdout, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.running[p] = struct{}{}
	b.mu.Unlock()
	lines := make(chan string, 1)
	go func() {
		r := bufio.NewReader(stdout)
		line, _ := r.ReadString('\n')
		lines <- strings.TrimSpace(line)
		io.Copy(io.Discard, r) //nolint:errcheck // it says nothing more that is wanted
		c.Wait()               //nolint:errcheck // it is stopped by a signal
		close(p.ended)
	}()
	select {
	case p.first = <-lines:
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
	}
	if p.first == "" {
		p.stop()
		return nil, fmt.Errorf("%s did not say where it listens: %s", filepath.Base(c.Path), p.stderr.String())
	}
	return p, nil
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// stop ends the program and waits for it. It is idempotent.
func (p *program) stop() {
	p.once.Do(func() {
		for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			p.cmd.Process.Signal(sig) //nolint:errcheck // it may have ended
			select {
			case <-p.ended:
			case <-time.After(10 * time.Second):
				continue
			}
			break
		}
		p.bench.mu.Lock()
		delete(p.bench.running, p)
		p.bench.mu.Unlock()
	})
}

// tail keeps the end of what a program says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-4096):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}

// drain reads r to its end as a fast consumer does.
func drain(r io.Reader) (int64, error) {
	buffer := make([]byte, 256<<10)
	var total int64
	for {
		n, err := r.Read(buffer)
		total += int64(n)
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// output runs a program, reads what it writes to a pipe and drops that, and returns how much it was.
func output(c *exec.Cmd) (int64, error) {
	var stderr tail
	c.Stderr = &stderr
	stdout, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	n, err := drain(stdout)
	if failed := c.Wait(); failed != nil {
		return n, fmt.Errorf("%s: %w: %s", filepath.Base(c.Path), failed, stderr.String())
	}
	return n, err
}
