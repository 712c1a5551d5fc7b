package files

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"waldo/env"
	"waldo/pathuri"
)

func mustURI(native string) pathuri.URI {
	u, err := pathuri.FromNative(native, convention)
	if err != nil {
		panic(err)
	}
	return u
}

func init() {
	roles["write"] = func() int {
		w, err := New().Write(context.Background(), mustURI(os.Getenv("FILES_TEST_PATH")), env.WriteOptions{})
		if err == nil {
			_, err = w.Write([]byte("half of it"))
		}
		fmt.Println(err)
		os.Stdin.Read(make([]byte, 1)) //nolint:errcheck // it is killed meanwhile
		return 0
	}
}

// A writer that is killed leaves the old file and nothing else.
func TestWriteKilled(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	p, err := w.find(w.uri("file"), w.native("file"), hold)
	w.ok(err)
	defer p.close()
	probe, err := p.unnamed(0o600)
	w.ok(err)
	if probe == nil {
		t.Skip("no files without a name on this file system")
	}
	w.ok(probe.Close())
	self, err := os.Executable()
	w.ok(err)
	for _, path := range []string{"file", "new"} {
		w.unchanged(func() {
			cmd := exec.CommandContext(t.Context(), self)
			cmd.Env = append(os.Environ(), "FILES_TEST_ROLE=write", "FILES_TEST_PATH="+w.native(path))
			stdin, err := cmd.StdinPipe()
			w.ok(err)
			defer stdin.Close() //nolint:errcheck // a test
			stdout, err := cmd.StdoutPipe()
			w.ok(err)
			w.ok(cmd.Start())
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil || line != "<nil>\n" {
				t.Errorf("the writer says %q (%v)", line, err)
			}
			w.ok(cmd.Process.Kill())
			cmd.Wait() //nolint:errcheck // it was killed
		})
	}
}

// Sizes of zero mean nothing in /proc.
func TestReadProc(t *testing.T) {
	if !hasProc() {
		t.Skip("no /proc here")
	}
	for _, path := range []string{"/proc/self/mounts", "/proc/sys/kernel/hostname", "/proc/version", "/proc/kallsyms", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Logf("%s: %v", path, err)
			continue
		}
		got, err := readAll(New(), t.Context(), uri(t, path), env.ReadOptions{Holes: true})
		if err != nil || got != string(want) || len(want) == 0 {
			t.Errorf("%s: %d bytes (%v), want %d", path, len(got), err, len(want))
		}
	}
	w := newWorld(t)
	is(t, w.Copy(t.Context(), uri(t, "/proc/version"), w.uri("copy"), env.CopyOptions{}), nil)
	if want, err := os.ReadFile("/proc/version"); err == nil {
		w.has("copy", string(want))
	}
	got, err := readAll(New(), t.Context(), uri(t, "/proc/self/status"), env.ReadOptions{})
	if err != nil || !strings.Contains(got, "\nnonvoluntary_ctxt_switches:") || !strings.HasPrefix(got, "Name:") {
		t.Errorf("status: %q (%v)", got, err)
	}
}

// What sets something in the kernel is written as it is, since there is no file that could take its place.
func TestWriteProc(t *testing.T) {
	const path = "/proc/self/coredump_filter"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("nothing to set here: %v", err)
	}
	defer os.WriteFile(path, []byte("0x"+string(before)), 0) //nolint:errcheck // as it was
	for _, o := range []env.WriteOptions{{}, {Mode: env.Append}, {Mode: env.Patch}} {
		if err := os.WriteFile(path, []byte("0x7f"), 0); err != nil {
			t.Skipf("it cannot be set here: %v", err)
		}
		_, err := write(New(), t.Context(), uri(t, path), "0x23", o)
		is(t, err, nil)
		if now, err := os.ReadFile(path); err != nil || string(now) != "00000023\n" {
			t.Errorf("%s: it is %q now (%v)", o.Mode, now, err)
		}
	}
}

// The links in /proc lead to open files, whatever they say.
func TestMagicLinks(t *testing.T) {
	if !hasProc() {
		t.Skip("no /proc here")
	}
	w := newWorld(t)
	r, pipe, err := os.Pipe()
	w.ok(err)
	defer r.Close()    //nolint:errcheck // a test
	defer pipe.Close() //nolint:errcheck // a test
	w.symlink(procPath(int(pipe.Fd())), "pipe")
	w.put("file", "content")
	file, err := os.OpenFile(w.native("file"), os.O_RDWR, 0)
	w.ok(err)
	defer file.Close() //nolint:errcheck // a test
	w.symlink(procPath(int(file.Fd())), "removed")
	w.ok(os.Remove(w.native("file")))
	_, err = w.Write(t.Context(), w.uri("pipe"), env.WriteOptions{})
	is(t, err, env.ErrNotRegular)
	_, err = w.Read(t.Context(), w.uri("pipe"), env.ReadOptions{})
	is(t, err, env.ErrNotRegular)
	w.put("source", "copied")
	is(t, w.Copy(t.Context(), w.uri("source"), w.uri("pipe"), env.CopyOptions{}), env.ErrNotRegular)
	written, err := write(w.Files, t.Context(), w.uri("removed"), "new", env.WriteOptions{})
	if err != nil || !written.InPlace {
		t.Errorf("written %+v (%v), want in place", written, err)
	}
	got, err := readAll(w.Files, t.Context(), w.uri("removed"), env.ReadOptions{})
	if err != nil || got != "new" {
		t.Errorf("read %q (%v)", got, err)
	}
	is(t, w.Copy(t.Context(), w.uri("source"), w.uri("removed"), env.CopyOptions{}), nil)
	b := make([]byte, 10)
	if n, _ := file.ReadAt(b, 0); string(b[:n]) != "copied" {
		t.Errorf("the file has %q", b[:n])
	}
	_, err = w.Confined(w.uri(".")).Read(t.Context(), w.uri("removed"), env.ReadOptions{})
	is(t, err, fs.ErrPermission)
	w.noTemporaries()
}

// Some regular files of /proc wait for what is to come; a reader of them can still be ended.
func TestReadThatWaits(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	r, err := New().Read(ctx, uri(t, "/proc/kmsg"), env.ReadOptions{})
	if err != nil {
		t.Skipf("the kernel's messages cannot be read here: %v", err)
	}
	defer r.Close() //nolint:errcheck // a test
	if !r.(*reader).waits {
		t.Skip("the kernel's messages cannot be waited for here")
	}
	reason := errors.New("the reason")
	go cancel(reason)
	for _, err = range r.Chunks() {
	}
	is(t, err, reason)
}

func TestWriteKeepsExtendedAttributes(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	if err := unix.Setxattr(w.native("file"), "user.note", []byte("kept"), 0); err != nil {
		t.Skipf("no extended attributes here: %v", err)
	}
	// Read and write for the owner, read for user 1234.
	acl := []byte{2, 0, 0, 0,
		1, 0, 6, 0, 255, 255, 255, 255,
		2, 0, 4, 0, 0xd2, 4, 0, 0,
		4, 0, 4, 0, 255, 255, 255, 255,
		16, 0, 4, 0, 255, 255, 255, 255,
		32, 0, 0, 0, 255, 255, 255, 255}
	aclErr := unix.Setxattr(w.native("file"), "system.posix_acl_access", acl, 0)
	written, err := write(w.Files, t.Context(), w.uri("file"), "new", env.WriteOptions{})
	w.ok(err)
	b := make([]byte, 100)
	n, err := unix.Getxattr(w.native("file"), "user.note", b)
	if err != nil || string(b[:n]) != "kept" || written.InPlace {
		t.Errorf("attribute %q (%v), in place %v", b[:max(n, 0)], err, written.InPlace)
	}
	if aclErr != nil {
		t.Skipf("no access control lists here: %v", aclErr)
	}
	n, err = unix.Getxattr(w.native("file"), "system.posix_acl_access", b)
	if err != nil || string(b[:n]) != string(acl) {
		t.Errorf("access control list %x (%v), want %x", b[:max(n, 0)], err, acl)
	}
	if info, err := os.Stat(w.native("file")); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
}

// A program that runs can be replaced, and goes on.
func TestWriteRunningProgram(t *testing.T) {
	w := newWorld(t)
	sleep, err := exec.LookPath("cat")
	if err != nil {
		t.Skip("no cat here")
	}
	content, err := os.ReadFile(sleep)
	w.ok(err)
	w.put("program", string(content))
	w.ok(os.Chmod(w.native("program"), 0o755))
	w.put("second", "")
	cmd := exec.CommandContext(t.Context(), w.native("program"))
	stdin, err := cmd.StdinPipe()
	w.ok(err)
	stdout, err := cmd.StdoutPipe()
	w.ok(err)
	if err := cmd.Start(); err != nil {
		t.Skipf("a copy of cat does not run here: %v", err)
	}
	fmt.Fprintln(stdin, "runs") //nolint:errcheck // the answer is looked at
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "runs\n" {
		t.Fatalf("%q, %v", line, err)
	}
	written, err := write(w.Files, t.Context(), w.uri("program"), "new", env.WriteOptions{})
	if err != nil || written.InPlace {
		t.Errorf("replacing it: %v, in place %v", err, written.InPlace)
	}
	w.ok(stdin.Close())
	w.ok(cmd.Wait())
	w.has("program", "new")
	if info, err := os.Stat(w.native("program")); err != nil || info.Mode() != 0o755 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
}

// mounted mounts in a mount space of this thread's own, which ends with the test.
func mounted(t *testing.T, mount func() error) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test's goroutine
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("no mounts of our own: %v", err)
	}
	err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = mount()
	}
	if err != nil {
		t.Skipf("mounting does not work here: %v", err)
	}
}

func TestMounts(t *testing.T) {
	w := newWorld(t)
	w.mkdir("tree/tmpfs")
	w.mkdir("tree/bound")
	w.mkdir("other")
	w.put("other/canary", "alive")
	w.put("tree/bound-file", "")
	mounted(t, func() error {
		return errors.Join(
			unix.Mount("tmpfs", w.native("tree/tmpfs"), "tmpfs", 0, "size=64k"),
			unix.Mount(w.native("other"), w.native("tree/bound"), "", unix.MS_BIND, ""),
			unix.Mount(w.native("other/canary"), w.native("tree/bound-file"), "", unix.MS_BIND, ""))
	})
	w.put("tree/tmpfs/canary", "alive")
	defer func() {
		for _, name := range []string{"tree/tmpfs", "tree/bound", "tree/bound-file"} {
			unix.Unmount(w.native(name), unix.MNT_DETACH) //nolint:errcheck // a test
		}
	}()
	confined := w.Confined(w.uri("."))
	w.unchanged(func() {
		for _, f := range []*Files{w.Files, confined} {
			for _, path := range []string{"tree/tmpfs", "tree/bound", "tree/bound-file"} {
				is(t, f.Remove(t.Context(), w.uri(path), env.RemoveOptions{Recursive: true, Force: true}), fs.ErrPermission)
			}
			is(t, f.Remove(t.Context(), w.uri("tree"), env.RemoveOptions{Recursive: true}), fs.ErrPermission)
		}
	})
	// A bound file is written in place, since it cannot be renamed over.
	written, err := write(w.Files, t.Context(), w.uri("tree/bound-file"), "alive", env.WriteOptions{})
	if err != nil || !written.InPlace {
		t.Errorf("written %+v (%v), want in place", written, err)
	}
	// What is full says so, and keeps what it has.
	w.put("tree/tmpfs/file", "content")
	w.unchanged(func() {
		_, err := write(w.Files, t.Context(), w.uri("tree/tmpfs/file"), strings.Repeat("x", 128<<10), env.WriteOptions{})
		is(t, err, env.ErrLimit)
		is(t, err, unix.ENOSPC)
	})
	w.noTemporaries()
	w.put("big", strings.Repeat("x", 128<<10))
	is(t, w.Copy(t.Context(), w.uri("big"), w.uri("tree/tmpfs/big"), env.CopyOptions{}), env.ErrLimit)
	// From one to the other.
	err = w.Rename(t.Context(), w.uri("tree/tmpfs/file"), w.uri("moved"), env.RenameOptions{})
	if !errors.Is(err, unix.EXDEV) || !strings.Contains(err.Error(), "copy and remove") {
		t.Errorf("rename across file systems: %v", err)
	}
	is(t, w.Copy(t.Context(), w.uri("tree/tmpfs/file"), w.uri("moved"), env.CopyOptions{}), nil)
	w.has("moved", "content")
	is(t, w.Sync(t.Context(), w.uri("tree/tmpfs/file")), nil)
	// A directory that is bound into itself is still itself.
	w.mkdir("self/inner")
	if err := unix.Mount(w.native("self"), w.native("self/inner"), "", unix.MS_BIND, ""); err == nil {
		defer unix.Unmount(w.native("self/inner"), unix.MNT_DETACH) //nolint:errcheck // a test
		w.unchanged(func() {
			is(t, w.Copy(t.Context(), w.uri("self"), w.uri("self/inner/x"), env.CopyOptions{Recursive: true}), env.ErrInvalid)
		})
	}
	// On a file system that may only be read, that is said.
	w.mkdir("readonly")
	if err := errors.Join(
		unix.Mount("tmpfs", w.native("readonly"), "tmpfs", unix.MS_RDONLY, "size=64k"),
	); err == nil {
		defer unix.Unmount(w.native("readonly"), unix.MNT_DETACH) //nolint:errcheck // a test
		_, err := w.Write(t.Context(), w.uri("readonly/x"), env.WriteOptions{})
		is(t, err, fs.ErrPermission)
		is(t, w.Mkdir(t.Context(), w.uri("readonly/x"), env.MkdirOptions{}), fs.ErrPermission)
		is(t, w.Mkdir(t.Context(), w.uri("readonly"), env.MkdirOptions{Parents: true}), nil)
	}
	if w.content("other/canary") != "alive" {
		t.Error("the canary is dead")
	}
}

// The root of /proc is a mount, and is not removed.
func TestRemoveProc(t *testing.T) {
	if !hasProc() {
		t.Skip("no /proc here")
	}
	is(t, New().Remove(t.Context(), uri(t, "/proc"), env.RemoveOptions{}), fs.ErrPermission)
}
