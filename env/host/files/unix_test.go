//go:build unix

package files

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// What is no regular file answers at once, whatever is asked of it.
func TestSpecialFiles(t *testing.T) {
	w := newWorld(t)
	w.ok(unix.Mkfifo(w.native("fifo"), 0o666))
	w.symlink("fifo", "to-fifo")
	t.Chdir(w.dir) // a socket's path is short
	listener, err := net.Listen("unix", "socket")
	w.ok(err)
	defer listener.Close() //nolint:errcheck // a test
	paths := []string{w.native("fifo"), w.native("to-fifo"), w.native("socket"), "/dev/null", "/dev/zero", "/dev/tty", "/dev/stdin"}
	w.ok(os.Mkdir(w.native("made"), 0o755))
	for _, path := range paths {
		for call, do := range map[string]func(f *Files) error{
			"read":    func(f *Files) error { _, err := f.Read(t.Context(), uri(t, path), env.ReadOptions{}); return err },
			"replace": func(f *Files) error { _, err := f.Write(t.Context(), uri(t, path), env.WriteOptions{}); return err },
			"append": func(f *Files) error {
				_, err := f.Write(t.Context(), uri(t, path), env.WriteOptions{Mode: env.Append})
				return err
			},
			"patch": func(f *Files) error {
				_, err := f.Write(t.Context(), uri(t, path), env.WriteOptions{Mode: env.Patch})
				return err
			},
			"truncate": func(f *Files) error {
				size := int64(0)
				return f.SetAttributes(t.Context(), uri(t, path), env.Attributes{Size: &size})
			},
			"copy": func(f *Files) error {
				if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
					return env.ErrNotRegular // a link is copied as a link
				}
				return f.Copy(t.Context(), uri(t, path), w.uri("made/copy"), env.CopyOptions{Recursive: true})
			},
		} {
			done := make(chan error, 1)
			go func() { done <- do(w.Files) }()
			select {
			case err := <-done:
				if _, statErr := os.Stat(path); errors.Is(statErr, fs.ErrNotExist) {
					continue // this machine has no such thing
				}
				if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
					continue // standard input is a file
				}
				is(t, err, env.ErrNotRegular)
			case <-time.After(30 * time.Second):
				t.Fatalf("%s of %s hangs", call, path)
			}
		}
		if _, err := w.Stat(t.Context(), uri(t, path), false); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stat of %s: %v", path, err)
		}
	}
	// In a tree they are left out and told, and the rest is there.
	w.put("tree/a", "a")
	w.ok(unix.Mkfifo(w.native("tree/fifo"), 0o666))
	w.put("tree/z", "z")
	err = w.Copy(t.Context(), w.uri("tree"), w.uri("copy"), env.CopyOptions{Recursive: true})
	if !errors.Is(err, env.ErrNotRegular) || !strings.Contains(err.Error(), "fifo") {
		t.Errorf("copy of a tree with a FIFO: %v", err)
	}
	w.has("copy/a", "a")
	w.has("copy/z", "z")
	is(t, w.Remove(t.Context(), w.uri("tree"), env.RemoveOptions{Recursive: true}), nil)
}

func TestNamesThatAreNotText(t *testing.T) {
	w := newWorld(t)
	names := []string{"\xff", "a\xc3", "\xed\xa0\x80", "c:", "back\\slash", "new\nline", "%41", "#?", " "}
	for _, name := range names {
		if err := os.WriteFile(w.native("")+"/"+name, []byte(name), 0o644); err != nil {
			t.Skipf("this file system does not take %q: %v", name, err)
		}
	}
	for _, f := range []*Files{w.Files, w.Confined(w.uri("."))} {
		found := 0
		for entry, err := range f.List(t.Context(), w.uri(".")) {
			w.ok(err)
			w.ok(entry.Err)
			base, _ := entry.Path.Base()
			got, err := readAll(f, t.Context(), entry.Path, env.ReadOptions{})
			if err != nil || got != base {
				t.Errorf("%q holds %q (%v)", base, got, err)
			}
			w.ok(f.Rename(t.Context(), entry.Path, w.uri("other"), env.RenameOptions{}))
			w.ok(f.Copy(t.Context(), w.uri("other"), entry.Path, env.CopyOptions{}))
			w.ok(f.Remove(t.Context(), w.uri("other"), env.RemoveOptions{}))
			w.ok(f.Remove(t.Context(), entry.Path, env.RemoveOptions{}))
			found++
		}
		if found != len(names) {
			t.Errorf("%d names, want %d", found, len(names))
		}
		for _, name := range names {
			u, err := w.uri(".").JoinName(name)
			w.ok(err)
			_, err = write(f, t.Context(), u, name, env.WriteOptions{Unsynced: true})
			w.ok(err)
		}
	}
}

// asUser runs a test of the same name in a child that is an ordinary user, since root may do everything.
func asUser(t *testing.T) bool {
	t.Helper()
	if os.Getuid() != 0 {
		return true
	}
	if os.Getenv("FILES_TEST_USER") != "" {
		t.Fatal("still root")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "files")
	if err != nil {
		t.Skipf("no place for another user: %v", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a test
	program := filepath.Join(dir, "test")
	content, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(dir, 0o777), os.WriteFile(program, content, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "FILES_TEST_USER=1")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("this root cannot become another user: %v", err)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
	return false
}

func TestWriteKeepsMode(t *testing.T) {
	if !asUser(t) {
		return
	}
	w := newWorld(t)
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	put := func(name string, mode fs.FileMode) {
		w.put(name, "content")
		w.ok(os.Chmod(w.native(name), mode))
	}
	put("executable", 0o755)
	put("private", 0o640)
	put("readonly", 0o444)
	put("setuid", 0o755|fs.ModeSetuid)
	put("closed/open", 0o644)
	w.ok(os.Chmod(w.native("closed"), 0o555))
	defer os.Chmod(w.native("closed"), 0o755) //nolint:errcheck // so that it can be removed
	for _, test := range []struct {
		path    string
		mode    fs.FileMode
		inPlace bool
		err     error
	}{
		{"new", 0o644, false, nil},
		{"executable", 0o755, false, nil},
		{"private", 0o640, false, nil},
		{"setuid", 0o755 | fs.ModeSetuid, false, nil},
		{"readonly", 0o444, false, fs.ErrPermission},
		{"closed/open", 0o644, true, nil},
		{"closed/new", 0, false, fs.ErrPermission},
	} {
		written, err := write(w.Files, t.Context(), w.uri(test.path), "new", env.WriteOptions{})
		is(t, err, test.err)
		if err != nil {
			continue
		}
		info, err := os.Stat(w.native(test.path))
		w.ok(err)
		if info.Mode() != test.mode || written.InPlace != test.inPlace {
			t.Errorf("%s: mode %v, want %v; in place %v, want %v", test.path, info.Mode(), test.mode, written.InPlace, test.inPlace)
		}
		w.has(test.path, "new")
	}
	w.has("readonly", "content")
	w.noTemporaries()

	// Without permission nothing is read, listed or removed.
	put("secret/file", 0)
	_, err := w.Read(t.Context(), w.uri("secret/file"), env.ReadOptions{})
	is(t, err, fs.ErrPermission)
	is(t, w.Remove(t.Context(), w.uri("closed/open"), env.RemoveOptions{}), fs.ErrPermission)
	w.ok(os.Chmod(w.native("secret"), 0o700))
	err = w.Copy(t.Context(), w.uri("secret"), w.uri("copy"), env.CopyOptions{Recursive: true})
	is(t, err, fs.ErrPermission)
	w.ok(os.Chmod(w.native("secret"), 0o300))
	for _, err := range w.List(t.Context(), w.uri("secret")) {
		is(t, err, fs.ErrPermission)
	}
	is(t, w.Remove(t.Context(), w.uri("secret"), env.RemoveOptions{Recursive: true}), fs.ErrPermission)
	w.ok(os.Chmod(w.native("secret"), 0o400)) // its names can be had, and nothing of what is called so
	entries := 0
	for entry, err := range w.List(t.Context(), w.uri("secret")) {
		w.ok(err)
		is(t, entry.Err, fs.ErrPermission)
		entries++
	}
	if entries != 1 {
		t.Errorf("%d entries, want 1", entries)
	}
	w.ok(os.Chmod(w.native("secret"), 0o700))
	// A directory that cannot be written to is copied with what is in it.
	is(t, w.Copy(t.Context(), w.uri("closed"), w.uri("closed2"), env.CopyOptions{Recursive: true}), nil)
	w.has("closed2/open", "new")
	if info, err := os.Stat(w.native("closed2")); err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("the copy is %v (%v)", info, err)
	}
	w.ok(os.Chmod(w.native("closed2"), 0o755))
	// A named directory gets the mode it is to have, whatever the umask.
	mode := fs.FileMode(0o777)
	w.ok(w.Mkdir(t.Context(), w.uri("open"), env.MkdirOptions{Permissions: &mode}))
	w.ok(w.Mkdir(t.Context(), w.uri("usual"), env.MkdirOptions{}))
	for name, want := range map[string]fs.FileMode{"open": 0o777, "usual": 0o755} {
		if info, err := os.Stat(w.native(name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s is %v (%v), want %v", name, info.Mode(), err, want)
		}
	}
}

// A file that is to be private is so from its first moment.
func TestWritePrivate(t *testing.T) {
	private := fs.FileMode(0o600)
	for _, m := range []env.WriteMode{env.Replace, env.Exclusive, env.Append} {
		w := newWorld(t)
		file, err := w.Write(t.Context(), w.uri("new"), env.WriteOptions{Mode: m, Permissions: &private})
		w.ok(err)
		defer file.Close() //nolint:errcheck // a test
		st, err := fileStatus(file.(*writer).file)
		if err != nil || st.mode != 0o600 {
			t.Errorf("%s: mode %v (%v)", m, st.mode, err)
		}
	}
}

// The owner is kept, by whatever way that takes.
func TestWriteKeepsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make files of others")
	}
	w := newWorld(t)
	w.put("file", "content")
	if err := os.Chown(w.native("file"), 1234, 4321); err != nil {
		t.Skipf("this root cannot change owners: %v", err)
	}
	written, err := write(w.Files, t.Context(), w.uri("file"), "new", env.WriteOptions{})
	w.ok(err)
	var st unix.Stat_t
	w.ok(unix.Stat(w.native("file"), &st))
	if st.Uid != 1234 || st.Gid != 4321 || written.InPlace {
		t.Errorf("owner %d:%d, in place %v", st.Uid, st.Gid, written.InPlace)
	}
}

// The size of a file is limited for this process: as on a full disk, the old content stays and nothing is left.
func TestWriteFails(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	var old unix.Rlimit
	w.ok(unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	const limit = 8 << 20 // more than go test keeps of what a test opens, which is limited too
	w.ok(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: old.Max}))
	defer unix.Setrlimit(unix.RLIMIT_FSIZE, &old) //nolint:errcheck // a test
	for _, path := range []string{"file", "new"} {
		w.unchanged(func() {
			writer, err := w.Write(t.Context(), w.uri(path), env.WriteOptions{})
			w.ok(err)
			_, err = writer.Write(make([]byte, limit+1))
			is(t, err, env.ErrTooLarge)
			if writer.Taken() != limit {
				t.Errorf("taken %d", writer.Taken())
			}
			_, again := writer.Commit()
			is(t, again, env.ErrTooLarge)
			w.ok(writer.Close())
		})
	}
	w.noTemporaries()
}
