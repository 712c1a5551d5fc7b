//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"waldo/pathuri"
)

// codexFiles is how many small files Codex's client here has under way.
const codexFiles = 64

// measureTree measures a source tree of small files that goes up and down over a network of 50 ms round trip, beside
// tar through the same server and proxy, and without the network beside scp and tar over ssh.
func measureTree(ctx context.Context, b *bench) ([]line, error) {
	count := b.sized(10_000, 1000)
	tree, err := b.sourceTree("tree", count)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tree.path) //nolint:errcheck // its directory goes too
	server, err := b.startWaldo(ctx, "tcp://127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer server.stop()
	address, err := url.Parse(server.url)
	if err != nil {
		return nil, err
	}
	slowed, stop, err := b.slow(ctx, address.Host)
	if err != nil {
		return nil, err
	}
	defer stop()
	near, err := b.newTreeSides(ctx, server, server.url, tree)
	if err != nil {
		return nil, err
	}
	far, err := b.newTreeSides(ctx, server, "tcp://"+slowed, tree)
	if err != nil {
		return nil, err
	}
	farUp, farDown := far.both()
	if peer := b.startCodex(ctx); peer != nil {
		defer peer.stop()
		farUp.codex, farDown.codex, stop, err = b.codexTree(ctx, peer, tree)
		if err != nil {
			b.leaveOut(ctx, err)
		} else {
			defer stop()
		}
	}
	nearUp, nearDown := near.both()
	what := fmt.Sprintf("%d files, %d MB", count, tree.bytes/1e6)
	lines, err := b.treeLines(ctx, what+", 50 ms", "tar | app-server run tar", "app-server run tar | tar", farUp, farDown)
	if err != nil {
		return nil, err
	}
	for i := range lines { // the raw side is the yardstick here
		lines[i].Must = bound{ofRaw, 2}
	}
	more, err := b.treeLines(ctx, what+", loopback", "tar | app-server run tar", "app-server run tar | tar", nearUp, nearDown)
	if err != nil {
		return nil, err
	}
	lines = append(lines, more...)
	more, err = b.sshTree(ctx, what, tree, nearUp, nearDown)
	return append(lines, more...), err
}

func (b *bench) treeLines(ctx context.Context, what, rawUp, rawDown string, up, down sides) (lines []line, err error) {
	for _, way := range []struct {
		what, raw string
		sides
	}{{what + ", up", rawUp, up}, {what + ", down", rawDown, down}} {
		got, err := b.compare(ctx, 1, way.sides) // a round takes long
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way.what, err)
		}
		lines = append(lines, line{
			What: way.what, Unit: seconds,
			Waldo: median(got.waldo), Raw: median(got.raw), RawIs: way.raw, Codex: median(got.codex),
		})
	}
	return lines, nil
}

// tree is a tree of files.
type tree struct {
	path  string
	files int
	bytes int64
}

// sourceTree makes a tree as source code has it: files of a few kilobytes, some dozen in a directory.
func (b *bench) sourceTree(name string, count int) (t tree, err error) {
	t = tree{path: filepath.Join(b.dir, name), files: count}
	random, err := b.randomFile(1 << 20)
	if err != nil {
		return t, err
	}
	content, err := os.ReadFile(random)
	if err != nil {
		return t, err
	}
	for i := range count {
		below := filepath.Join(t.path, fmt.Sprintf("package%d", i/400), fmt.Sprintf("part%d", i/20%20))
		if err := os.MkdirAll(below, 0o755); err != nil {
			return t, err
		}
		size := 200 + (i*7919)%16_000
		if err := os.WriteFile(filepath.Join(below, fmt.Sprintf("file%d.go", i)), content[i:i+size], 0o644); err != nil {
			return t, err
		}
		t.bytes += int64(size)
	}
	return t, nil
}

// timed makes a measurement of something that makes a copy of the tree, which is judged and removed.
func (t tree) timed(target string, copies func(context.Context) error) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		began := time.Now()
		if err := copies(ctx); err != nil {
			return nil, err
		}
		took := time.Since(began).Seconds()
		files, bytes := 0, int64(0)
		err := filepath.WalkDir(target, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err == nil {
				files, bytes = files+1, bytes+info.Size()
			}
			return err
		})
		if err == nil && (files != t.files || bytes != t.bytes) {
			err = fmt.Errorf("%d files of %d bytes came instead of %d of %d", files, bytes, t.files, t.bytes)
		}
		return []float64{took}, errors.Join(err, os.RemoveAll(target))
	}
}

// treeSides copies with the app-server's commands.
type treeSides struct {
	tree   tree
	app    string
	flags  []string
	home   string
	target string
}

func (b *bench) newTreeSides(ctx context.Context, server *waldoServer, address string, t tree) (*treeSides, error) {
	app, err := b.build(ctx, "cmd/app-server")
	if err != nil {
		return nil, err
	}
	return &treeSides{
		tree: t, app: app, home: server.home, target: filepath.Join(b.dir, "copy"),
		flags: []string{"-e", address, "--token-file", server.tokenFile()},
	}, nil
}

func (t *treeSides) command(ctx context.Context, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), "WALDO_HOME="+t.home)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// both are the sides up and down, without Codex's.
func (t *treeSides) both() (up, down sides) {
	flags := strings.Join(t.flags, " ")
	timed := func(copies func(context.Context) error) func(context.Context) ([]float64, error) {
		return t.tree.timed(t.target, copies)
	}
	up = sides{
		waldo: timed(func(ctx context.Context) error {
			return t.command(ctx, t.app, append([]string{"cp", "-r", t.tree.path + "/.", ":" + t.target}, t.flags...)...)
		}),
		raw: timed(func(ctx context.Context) error {
			return t.command(ctx, "sh", "-c", fmt.Sprintf(
				"tar -C %s -cf - . | %s run %s -- sh -c 'mkdir %s && tar -C %s -xf -'", t.tree.path, t.app, flags, t.target, t.target))
		}),
	}
	down = sides{
		waldo: timed(func(ctx context.Context) error {
			return t.command(ctx, t.app, append([]string{"cp", "-r", ":" + t.tree.path + "/.", t.target}, t.flags...)...)
		}),
		raw: timed(func(ctx context.Context) error {
			return t.command(ctx, "sh", "-c", fmt.Sprintf(
				"mkdir %s && %s run %s -- tar -C %s -cf - . | tar -C %s -xf -", t.target, t.app, flags, t.tree.path, t.target))
		}),
	}
	return up, down
}

// codexTree makes Codex's sides: whole files, many under way.
func (b *bench) codexTree(ctx context.Context, peer *codexServer, t tree) (up, down func(context.Context) ([]float64, error), stop func(), err error) {
	address, err := url.Parse(peer.url)
	if err != nil {
		return nil, nil, nil, err
	}
	slowed, stopProxy, err := b.slow(ctx, address.Host)
	if err != nil {
		return nil, nil, nil, err
	}
	client, err := dialCodex(ctx, "ws://"+slowed)
	if err == nil {
		err = client.ready(ctx)
	}
	if err != nil {
		stopProxy()
		return nil, nil, nil, err
	}
	var files, directories []string
	err = filepath.WalkDir(t.path, func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() {
			directories = append(directories, path)
		} else {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		client.close()
		stopProxy()
		return nil, nil, nil, err
	}
	target := filepath.Join(b.dir, "copy")
	there := func(path string) any { return mustURI(target + strings.TrimPrefix(path, t.path)) }
	// inLine does a call for each of paths, several under way.
	inLine := func(paths []string, begin func(path string) (codexAnswer, error), end func(path string, answer codexAnswer) error) error {
		type under struct {
			path   string
			answer codexAnswer
		}
		var line []under
		for next := 0; next < len(paths) || len(line) > 0; {
			if next < len(paths) && len(line) < codexFiles {
				answer, err := begin(paths[next])
				if err != nil {
					return err
				}
				line = append(line, under{paths[next], answer})
				next++
				continue
			}
			if err := end(line[0].path, line[0].answer); err != nil {
				return err
			}
			line = line[1:]
		}
		return nil
	}
	up = t.timed(target, func(ctx context.Context) error {
		done := func(_ string, answer codexAnswer) error { return client.wait(ctx, answer, nil) }
		err := inLine(directories, func(path string) (codexAnswer, error) {
			return client.send(ctx, "fs/createDirectory", map[string]any{"path": there(path)})
		}, done)
		if err != nil {
			return err
		}
		return inLine(files, func(path string) (codexAnswer, error) {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			return client.send(ctx, "fs/writeFile", map[string]any{"path": there(path), "dataBase64": content})
		}, done)
	})
	down = t.timed(target, func(ctx context.Context) error {
		for _, path := range directories {
			if err := os.MkdirAll(target+strings.TrimPrefix(path, t.path), 0o755); err != nil {
				return err
			}
		}
		return inLine(files, func(path string) (codexAnswer, error) {
			return client.send(ctx, "fs/readFile", map[string]any{"path": mustURI(path)})
		}, func(path string, answer codexAnswer) error {
			var read struct {
				DataBase64 []byte `json:"dataBase64"`
			}
			if err := client.wait(ctx, answer, &read); err != nil {
				return err
			}
			return os.WriteFile(target+strings.TrimPrefix(path, t.path), read.DataBase64, 0o644)
		})
	})
	return up, down, func() { client.close(); stopProxy() }, nil
}

// mustURI is for absolute paths that this program made.
func mustURI(path string) pathuri.URI {
	uri, err := pathuri.FromNative(path, pathuri.Posix)
	if err != nil {
		panic(err)
	}
	return uri
}

// sshTree compares with what people use now: scp and tar over ssh, to a server of our own on loopback. Without sshd
// there are no such lines.
func (b *bench) sshTree(ctx context.Context, what string, t tree, up, down sides) ([]line, error) {
	box, err := b.startSSH(ctx)
	if err != nil {
		fmt.Fprintf(b.progress, "ssh is left out: %v\n", err)
		return nil, nil
	}
	defer box.stop()
	target := filepath.Join(b.dir, "copy")
	shell := func(format string, args ...any) func(context.Context) ([]float64, error) {
		return t.timed(target, func(ctx context.Context) error {
			out, err := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf(format, args...)).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	up.raw = shell("scp -q -r %s %s box:%s", box.options, t.path, target)
	down.raw = shell("scp -q -r %s box:%s %s", box.options, t.path, target)
	lines, err := b.treeLines(ctx, what+", loopback", "scp -r", "scp -r", up, down)
	if err != nil {
		return nil, err
	}
	up.raw = shell("tar -C %s -cf - . | ssh %s box 'mkdir %s && tar -C %s -xf -'", t.path, box.options, target, target)
	down.raw = shell("mkdir %s && ssh %s box tar -C %s -cf - . | tar -C %s -xf -", target, box.options, t.path, target)
	more, err := b.treeLines(ctx, what+", loopback", "tar | ssh tar", "ssh tar | tar", up, down)
	return append(lines, more...), err
}

// sshBox is an sshd of our own; options are for ssh and scp, which call it box.
type sshBox struct {
	*program
	options string
}

func (b *bench) startSSH(ctx context.Context) (*sshBox, error) {
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		if sshd, err = exec.LookPath("/usr/sbin/sshd"); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp(b.dir, "ssh-")
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"host", "user"} {
		out, err := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	os.Mkdir("/run/sshd", 0o755) //nolint:errcheck // sshd of root wants it, and says so
	config := fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nStrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n", port, dir, dir)
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	// It says nothing on standard output; echo stands for the first line.
	p, err := b.start(ctx, exec.Command("sh", "-c", "echo started; exec "+sshd+" -D -e -f "+filepath.Join(dir, "config")))
	if err != nil {
		return nil, err
	}
	box := &sshBox{program: p, options: fmt.Sprintf("-F /dev/null -o HostName=127.0.0.1 -o Port=%d -o IdentityFile=%s/user -o IdentitiesOnly=yes "+
		"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes", port, dir)}
	// Until it accepts.
	for deadline := time.Now().Add(10 * time.Second); ; {
		out, err := exec.CommandContext(ctx, "sh", "-c", "ssh "+box.options+" box true").CombinedOutput()
		if err == nil {
			return box, nil
		}
		if time.Now().After(deadline) {
			box.stop()
			return nil, fmt.Errorf("sshd does not accept: %w: %s", err, out)
		}
	}
}
