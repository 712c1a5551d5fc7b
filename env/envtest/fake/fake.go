// Package fake is a machine that exists in memory only, for tests: its files, watches and description, with paths
// of either convention, and with faults and delays as a test wants them.
//
// Permission bits are kept and not enforced. Everything else is as env promises it, which the suite in env/envtest
// holds.
package fake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// Call is one call of [env.Files] or [env.Watcher], as a hook sees it before it does anything.
type Call struct {
	Op   string // "stat", "read", "write", "list", "walk", …
	Path pathuri.URI
}

// Machine is a machine in memory. It is an [env.Files], an [env.Watcher] and an [env.Describer].
type Machine struct {
	files
	convention pathuri.Convention

	mu      sync.Mutex // of all below, and of all nodes
	roots   map[pathuri.URI]*node
	lastID  uint64
	watches map[*watch]struct{}
	faults  map[pathuri.URI]error
	hook    func(ctx context.Context, call Call) error
}

// New makes a machine with these path rules. It has a home, a directory for temporary files, and nothing else.
func New(convention pathuri.Convention) *Machine {
	m := &Machine{
		convention: convention, roots: map[pathuri.URI]*node{}, watches: map[*watch]struct{}{}, faults: map[pathuri.URI]error{},
	}
	m.files.machine = m
	info := m.info()
	for dir := range info.Home.Ancestors() {
		if _, more := dir.Parent(); !more {
			m.roots[dir] = m.newNode(dirMode | 0o755)
		}
	}
	for _, dir := range []pathuri.URI{info.Home, info.Temp} {
		if err := m.Mkdir(context.Background(), dir, env.MkdirOptions{Parents: true}); err != nil {
			panic(fmt.Sprintf("a new machine: %v", err)) // it is empty
		}
	}
	return m
}

// path is for paths that are written in this package.
func (m *Machine) path(native string) pathuri.URI {
	uri, err := pathuri.FromNative(native, m.convention)
	if err != nil {
		panic(err.Error())
	}
	return uri
}

// Fail has every call on path fail with err; with nil they work again.
func (m *Machine) Fail(path pathuri.URI, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.faults, path)
		return
	}
	m.faults[path] = err
}

// Hook has hook called at the beginning of each call, on the caller's goroutine and with no lock held, so that it may
// count, wait, or fail the call by an error. Reading and writing a file are one call each.
func (m *Machine) Hook(hook func(ctx context.Context, call Call) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

// Describe implements env.Describer.
func (m *Machine) Describe(ctx context.Context) (env.Info, error) {
	if err := context.Cause(ctx); err != nil {
		return env.Info{}, fmt.Errorf("describe: %w", err)
	}
	return m.info(), nil
}

func (m *Machine) info() env.Info {
	info := env.Info{OS: "linux", Arch: "amd64", Paths: m.convention, Hostname: "fake", User: "user", Shell: "/bin/sh"}
	home, temp := "/home/user", "/tmp"
	if m.convention == pathuri.Windows {
		info.OS, info.Shell = "windows", `C:\Windows\System32\cmd.exe`
		home, temp = `C:\Users\user`, `C:\Temp`
	}
	info.Home, info.Temp = m.path(home), m.path(temp)
	info.Directory = info.Home
	return info
}

// files is the machine's files, or those within a directory of it.
type files struct {
	machine *Machine
	roots   []pathuri.URI // of Within, the widest first
}

// Within implements env.Files.
func (f files) Within(root pathuri.URI) env.Files {
	return files{machine: f.machine, roots: append(f.roots[:len(f.roots):len(f.roots)], root)}
}

// begin is what every call does first.
func (f files) begin(ctx context.Context, op string, paths ...pathuri.URI) error {
	f.machine.mu.Lock()
	hook := f.machine.hook
	f.machine.mu.Unlock()
	for i, path := range paths {
		err := context.Cause(ctx)
		if err == nil && i == 0 && hook != nil {
			err = hook(ctx, Call{Op: op, Path: path})
		}
		if err == nil {
			err = f.check(path)
		}
		if err != nil {
			return wrap(op, path, err)
		}
	}
	return nil
}

// check refuses what can never be, what lies outside and what is to fail.
func (f files) check(path pathuri.URI) error {
	if path.IsZero() {
		return fmt.Errorf("%w: no path", env.ErrInvalid)
	}
	if _, err := path.NativeFor(f.machine.convention); err != nil {
		return fmt.Errorf("%w: %w", env.ErrInvalid, err)
	}
	for _, root := range f.roots {
		if !root.Contains(path) {
			return outside(root)
		}
	}
	f.machine.mu.Lock()
	defer f.machine.mu.Unlock()
	return f.machine.faults[path]
}

func wrap(op string, path pathuri.URI, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", op, path.Display(), err)
}

// now is the time as a file system keeps it.
func now() time.Time { return time.Now().Round(0) }
