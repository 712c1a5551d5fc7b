//go:build unix

package listen

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestUnix(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, addr := start(t, "unix://"+path, Options{StateDir: dir}, allDoors)
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket %v, %v", info.Mode(), err)
	}
	if l.URL() != "unix://"+path {
		t.Error(l.URL())
	}
	// The same user needs no token, and what it sends is not looked at.
	for _, token := range []string{"", "anything"} {
		if answer, _ := hello(t, dialed(t, addr, DialOptions{}), token); answer != "ok trusted=true" {
			t.Error(answer)
		}
	}
	client, err := Client(addr, DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]int{"http://localhost/x": 200, "http://localhost/healthz": 200, "http://evil.test/x": 403} {
		response, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", url, response.Status)
		}
	}
	c := plain(t, l)
	if _, err := io.WriteString(c, "{}\n{...}\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for _, want := range []string{"2\n", "5\n"} {
		if line, err := in.ReadString('\n'); line != want || err != nil {
			t.Errorf("%q, %v", line, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "token")); err == nil {
		t.Error("a token was made that nobody needs")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket stays")
	}
}

// A process of another user gets no further than a stranger on TCP, even if the file's mode lets it connect.
func TestUnixOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be two users")
	}
	dir, err := os.MkdirTemp("", "listen") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	start(t, "unix://"+path, Options{}, allDoors)
	for file, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	exe := filepath.Join(dir, "test")
	content, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	write(t, exe, string(content), 0o755)
	cmd := exec.Command(exe, "-test.run=^TestUnixHelper$")
	cmd.Dir = dir
	cmd.Env = []string{"LISTEN_TEST_SOCKET=" + path}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "refused: not authenticated") {
		t.Errorf("%q, %v", out, err)
	}
}

// TestUnixHelper is the other process of TestUnixOfAnotherUser.
func TestUnixHelper(t *testing.T) {
	path := os.Getenv("LISTEN_TEST_SOCKET")
	if path == "" {
		return // not called by that test
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		fmt.Fprintf(c, "\x00\n")
		var line string
		line, err = bufio.NewReader(c).ReadString('\n')
		fmt.Print(line)
		c.Close()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func TestUnixInTheWay(t *testing.T) {
	dir := t.TempDir()
	listen := func(path string) error {
		l, err := Listen(t.Context(), Address{Scheme: "unix", Path: path}, Options{})
		if err == nil {
			return l.Close()
		}
		return err
	}

	// A socket that nobody listens on any more goes.
	dead := filepath.Join(dir, "dead")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	if err := listen(dead); err != nil {
		t.Errorf("a dead socket: %v", err)
	}

	// A living one stays, and lives on.
	alive := filepath.Join(dir, "alive")
	_, addr := start(t, "unix://"+alive, Options{}, allDoors)
	wantErr(t, listen(alive), "already")
	if answer, _ := hello(t, dialed(t, addr, DialOptions{}), ""); answer != "ok trusted=true" {
		t.Error(answer)
	}

	// What is no socket stays.
	file := write(t, filepath.Join(dir, "file"), "precious", 0o600)
	wantErr(t, listen(file), "is not a socket")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	wantErr(t, listen(link), "is not a socket")
	if content, err := os.ReadFile(file); string(content) != "precious" || err != nil {
		t.Errorf("%q, %v", content, err)
	}

	wantErr(t, listen(filepath.Join(dir, strings.Repeat("x", 120))), "is the most that the system takes")
	wantErr(t, listen(filepath.Join(dir, "none", "s")), "no such file")

	// The name has been taken over by another server: it is not ours to remove.
	l, err := Listen(t.Context(), Address{Scheme: "unix", Path: dead}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dead); err != nil {
		t.Fatal(err)
	}
	write(t, dead, "another's", 0o600)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dead); err != nil {
		t.Error(err)
	}
}

// Of many servers that start over a dead socket, one gets it, and it keeps it.
func TestUnixRace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	for range 20 {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
		type result struct {
			l   *Listener
			err error
		}
		results := make(chan result)
		for range 8 {
			go func() {
				l, err := Listen(context.Background(), Address{Scheme: "unix", Path: path}, Options{})
				results <- result{l, err}
			}()
		}
		var winners []*Listener
		for range 8 {
			if r := <-results; r.err == nil {
				winners = append(winners, r.l)
			} else {
				wantErr(t, r.err, "already")
			}
		}
		if len(winners) != 1 {
			t.Fatalf("%d servers have the socket", len(winners))
		}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- winners[0].Serve(ctx, Doors{HTTP: http.NotFoundHandler()}) }()
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(c, "GET /readyz HTTP/1.0\r\n\r\n")
		if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 200") {
			t.Errorf("%q, %v", answer, err)
		}
		c.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Fatal("the socket stays")
		}
	}
}
