package envtest

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

var machineTests = []test{
	{"describe", func(r *rig) {
		info, err := r.env.Describe(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		if info.OS != runtime.GOOS || info.Arch != runtime.GOARCH || info.Paths != pathuri.Posix {
			r.Errorf("it is %s/%s with %s paths", info.OS, info.Arch, info.Paths)
		}
		for name, uri := range map[string]pathuri.URI{"temp": info.Temp, "directory": info.Directory} {
			if stat, err := r.env.Stat(r.ctx, uri, true); err != nil || !stat.Mode.IsDir() {
				r.Errorf("%s %q: %v, %v", name, uri, stat.Mode, err)
			}
		}
		if _, err := os.Stat(info.Shell); err != nil {
			r.Errorf("shell: %v", err)
		}
		kinds := map[string]bool{}
		for i, shell := range info.Shells {
			stat, err := r.env.Stat(r.ctx, r.uri(shell.Path), true)
			if err != nil || !stat.Mode.IsRegular() || stat.Mode&0o111 == 0 || kinds[shell.Kind] || shell.Kind == "" {
				r.Errorf("shell %d is %+v: %v, %v", i, shell, stat.Mode, err)
			}
			kinds[shell.Kind] = true
			if i > 0 && shell.Path == info.Shell {
				r.Errorf("the login shell %q is not the first of %v", info.Shell, info.Shells)
			}
			if shell.Kind == "sh" {
				r.wantOutput(env.Command{Argv: []string{shell.Path, "-c", "echo $((6*7))"}}, "42\n")
			}
		}
		if !kinds["sh"] {
			r.Errorf("no sh among the shells: %v", info.Shells)
		}
		r.wantOutput(env.Command{Argv: []string{"uname", "-r"}}, info.Kernel+"\n")
		if info.Distribution == "" {
			r.Error("the system has no name")
		}
		r.wantOutput(env.Command{Argv: []string{"pwd", "-P"}}, native(r, info.Directory)+"\n")
	}},
	{"stat", func(r *rig) {
		dir := r.tempDir()
		path := r.file(dir, "a b\n\xff", "12345", 0o640)
		link := filepath.Join(dir, "link")
		if err := os.Symlink(path, link); err != nil {
			r.Fatal(err)
		}
		want, err := os.Stat(path)
		if err != nil {
			r.Fatal(err)
		}
		for _, test := range []struct {
			path   string
			follow bool
			mode   fs.FileMode
		}{{path, false, want.Mode()}, {path, true, want.Mode()}, {link, true, want.Mode()}, {link, false, fs.ModeSymlink | 0o777}} {
			info, err := r.env.Stat(r.ctx, r.uri(test.path), test.follow)
			if err != nil || info.Mode != test.mode {
				r.Errorf("stat %q, follow %v: %v, %v", test.path, test.follow, info, err)
			}
			if test.follow && (info.Size != 5 || !info.Modified.Equal(want.ModTime())) {
				r.Errorf("stat %q: %v", test.path, info)
			}
		}
		_, err = r.env.Stat(r.ctx, r.uri(dir+"/\x1b[31mnone"), true)
		r.wantError("stat of none", err, fs.ErrNotExist)
		if err != nil && !strings.Contains(err.Error(), `\x1b[31mnone`) {
			r.Errorf("%q does not name the path", err)
		}
		_, err = r.env.Stat(r.ctx, pathuri.URI{}, true)
		r.wantError("stat of nothing", err, env.ErrInvalid)
		_, err = r.env.Stat(r.ctx, mustParse("file:///C:/x"), true)
		r.wantError("stat of a Windows path", err)
	}},
	{"dial", func(r *rig) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.Fatal(err)
		}
		r.dial(listener, "tcp", listener.Addr().String())
		dir, err := os.MkdirTemp("", "dial") // short enough for a socket
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { os.RemoveAll(dir) })
		path := filepath.Join(dir, "s")
		listener, err = net.Listen("unix", path)
		if err != nil {
			r.Fatal(err)
		}
		r.dial(listener, "unix", path)
		_, err = r.env.Dial(r.ctx, "unix", filepath.Join(dir, "none"))
		r.wantError("dial of no socket", err, fs.ErrNotExist)
		for _, bad := range [][2]string{{"udp", "127.0.0.1:1"}, {"", "x"}, {"tcp", ""}, {"unix", ""}, {"unix", "a\x00b"}} {
			_, err = r.env.Dial(r.ctx, bad[0], bad[1])
			r.wantError("dial "+bad[0], err, env.ErrInvalid)
		}
		_, err = r.env.Dial(r.ctx, "tcp", "127.0.0.1:1")
		r.wantError("dial of a closed port", err)
	}},
}

func native(r *rig, uri pathuri.URI) string {
	text, err := uri.NativeFor(pathuri.Posix)
	if err != nil {
		r.Fatal(err)
	}
	if real, err := filepath.EvalSymlinks(text); err == nil {
		return real
	}
	return text
}

// dial sends one way, closes that, and reads the other way, of what listener accepts.
func (r *rig) dial(listener net.Listener, network, address string) {
	r.Helper()
	defer listener.Close()
	served := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			served <- err
			return
		}
		defer conn.Close()
		got, err := io.ReadAll(conn)
		if err == nil {
			_, err = conn.Write(append([]byte("got "), got...))
		}
		served <- err
	}()
	conn, err := r.env.Dial(r.ctx, network, address)
	if err != nil {
		r.Fatalf("dial %s: %v", network, err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		r.Fatal(err)
	}
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		r.Fatalf("dial %s: no CloseWrite on %T", network, conn)
	}
	if err := half.CloseWrite(); err != nil {
		r.Fatal(err)
	}
	b, err := io.ReadAll(conn)
	if string(b) != "got hello" || err != nil {
		r.Errorf("dial %s: %q, %v", network, b, err)
	}
	if err := errors.Join(<-served, conn.Close()); err != nil {
		r.Error(err)
	}
}
