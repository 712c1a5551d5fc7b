package rpc

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire/wiretest"
)

func uri(tb testing.TB, native string) pathuri.URI {
	tb.Helper()
	u, err := pathuri.FromNative(native, pathuri.Posix)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// readAll reads what is left of a reader.
func readAll(r env.FileReader) ([]byte, error) {
	var content bytes.Buffer
	for chunk, err := range r.Chunks() {
		if err != nil {
			return content.Bytes(), err
		}
		if chunk.Offset != int64(content.Len()) {
			return content.Bytes(), fmt.Errorf("a chunk at %d, want %d", chunk.Offset, content.Len())
		}
		content.Write(chunk.Data)
		content.Write(make([]byte, chunk.Hole))
	}
	return content.Bytes(), nil
}

// names are what a directory holds.
func namesIn(tb testing.TB, directory string) (names []string) {
	tb.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		tb.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// dialCut dials so that the first connection is cut by cut once it has been made.
func (r *rig) dialCut(tb testing.TB, cut func(*wiretest.Faulty)) (*Client, error) {
	var dialed atomic.Int32
	return Dial(tb.Context(), ClientOptions{Token: r.token, Dial: func(ctx context.Context) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", r.address)
		if err != nil || dialed.Add(1) > 1 {
			return c, err
		}
		faulty := wiretest.NewFaulty(c)
		cut(faulty)
		return faulty, nil
	}})
}

// TestTransferCutAtEveryPoint: wherever a connection is cut, a file comes through whole, or there is an error and the
// old file is still there.
func TestTransferCutAtEveryPoint(t *testing.T) {
	r := newRig(t, ServerOptions{})
	directory := t.TempDir()
	content := randomBytes(3000)
	source := filepath.Join(directory, "source")
	if err := os.WriteFile(source, content, 0o600); err != nil {
		t.Fatal(err)
	}
	targets := filepath.Join(directory, "targets")
	if err := os.Mkdir(targets, 0o700); err != nil {
		t.Fatal(err)
	}
	download := func(ctx context.Context, client *Client, _ string) error {
		reader, err := client.Read(ctx, uri(t, source), env.ReadOptions{})
		if err != nil {
			return err
		}
		defer reader.Close()
		got, err := readAll(reader)
		if err == nil && !bytes.Equal(got, content) {
			t.Errorf("downloaded %d bytes that are not the file's %d", len(got), len(content))
		}
		return err
	}
	upload := func(mode env.WriteMode) func(context.Context, *Client, string) error {
		return func(ctx context.Context, client *Client, name string) error {
			target := filepath.Join(targets, name)
			writer, err := client.Write(ctx, uri(t, target), env.WriteOptions{Mode: mode, Unsynced: true})
			if err != nil {
				return err
			}
			defer writer.Close()
			for rest := content; len(rest) > 0 && err == nil; rest = rest[1000:] {
				_, err = writer.Write(rest[:1000])
			}
			if err == nil {
				_, err = writer.Commit()
			}
			got, readErr := os.ReadFile(target)
			switch {
			case err == nil && !bytes.Equal(got, content):
				t.Errorf("%s: uploaded %d bytes came to %d others (%v)", name, len(content), len(got), readErr)
			case err != nil && mode != env.Append && readErr == nil:
				t.Errorf("%s: a failed upload left %d bytes: %v", name, len(got), err)
			}
			return err
		}
	}
	const all = 6000 // more than any of them takes either way
	step := int64(61)
	if testing.Short() {
		step = 601
	}
	gate := make(chan struct{}, 32)
	var tasks sync.WaitGroup
	for name, transfer := range map[string]func(context.Context, *Client, string) error{
		"download": download, "replace": upload(env.Replace), "exclusive": upload(env.Exclusive), "append": upload(env.Append),
	} {
		var whole, failed atomic.Int32
		for n := int64(1); n < all; n += step {
			for way, cut := range map[string]func(*wiretest.Faulty){
				"read":    func(f *wiretest.Faulty) { f.CutRead(n) },
				"written": func(f *wiretest.Faulty) { f.CutWrite(n) },
			} {
				gate <- struct{}{}
				tasks.Go(func() {
					defer func() { <-gate }()
					client, err := r.dialCut(t, cut)
					if err != nil {
						return // in the HELLO: the first connection is tried once
					}
					defer client.Close()
					err = transfer(t.Context(), client, fmt.Sprintf("%s-%s-%d", name, way, n))
					if err != nil {
						failed.Add(1)
						if client.Ready(t.Context()) == nil {
							t.Errorf("%s with %d bytes %s: %v", name, n, way, err)
						}
						return
					}
					whole.Add(1)
				})
			}
		}
		tasks.Wait()
		t.Logf("%s: %d came through, %d failed with their connection", name, whole.Load(), failed.Load())
		if whole.Load() == 0 {
			t.Errorf("%s: none came through", name)
		}
	}
	for _, name := range namesIn(t, targets) {
		if strings.HasPrefix(name, ".") {
			t.Errorf("a temporary file is left: %s", name)
		}
	}
}

// TestTransferAcrossCuts: large files come through a network that cuts all the time, once and whole.
func TestTransferAcrossCuts(t *testing.T) {
	r := newRig(t, ServerOptions{})
	client := r.dialAccepted(t, ClientOptions{})
	directory := t.TempDir()
	content := randomBytes(48 << 20)
	source, target := filepath.Join(directory, "source"), filepath.Join(directory, "target")
	if err := os.WriteFile(source, content, 0o600); err != nil {
		t.Fatal(err)
	}
	r.proxy.SetRate(40 << 20)
	defer r.cutting(150 * time.Millisecond)()
	reader, err := client.Read(t.Context(), uri(t, source), env.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	got, err := readAll(reader)
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("downloaded %d bytes of %d, equal: %v; %v", len(got), len(content), bytes.Equal(got, content), err)
	}
	down := r.proxy.Accepted()
	// What is appended twice would show.
	writer, err := client.Write(t.Context(), uri(t, target), env.WriteOptions{Mode: env.Append})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := io.Copy(writer, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	written, err := writer.Commit()
	if err != nil || written.Info.Size != int64(len(content)) || writer.Taken() != int64(len(content)) {
		t.Fatalf("uploaded %d bytes (%d taken) of %d: %v", written.Info.Size, writer.Taken(), len(content), err)
	}
	if got, err := os.ReadFile(target); err != nil || !bytes.Equal(got, content) {
		t.Fatalf("%d bytes arrived, %v", len(got), err)
	}
	if up := r.proxy.Accepted(); down < 4 || up < down+4 {
		t.Errorf("only %d and %d connections: nothing was cut", down, up-down)
	}
}

// TestChangedFileIsTold: a file that is another one after a cut is never spliced.
func TestChangedFileIsTold(t *testing.T) {
	r := newRig(t, ServerOptions{})
	client := r.dialAccepted(t, ClientOptions{})
	source := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(source, make([]byte, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := client.Read(t.Context(), uri(t, source), env.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for chunk, err := range reader.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Offset > 1<<20 {
			break
		}
	}
	if err := os.WriteFile(source, bytes.Repeat([]byte{1}, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r.proxy.Cut()
	// What was under way when the connection was cut is old; after it comes the error.
	for chunk, err := range reader.Chunks() {
		if err != nil {
			if !errors.Is(err, env.ErrChanged) || !strings.Contains(err.Error(), source) {
				t.Errorf("error %v", err)
			}
			return
		}
		if bytes.IndexByte(chunk.Data, 1) >= 0 {
			t.Fatalf("the new content at %d", chunk.Offset)
		}
	}
	t.Error("a changed file was read to its end")
}

// TestUploadGivenUp: an upload that is closed, whose context ends, or whose client is gone leaves the old file and
// nothing else, and the server holds nothing of it.
func TestUploadGivenUp(t *testing.T) {
	r := newRig(t, ServerOptions{})
	for name, giveUp := range map[string]func(client *Client, writer env.FileWriter, cancel context.CancelFunc){
		"closed":    func(_ *Client, writer env.FileWriter, _ context.CancelFunc) { writer.Close() },
		"cancelled": func(_ *Client, writer env.FileWriter, cancel context.CancelFunc) { cancel(); writer.Close() },
		"goodbye": func(client *Client, _ env.FileWriter, _ context.CancelFunc) {
			client.Goodbye(context.Background(), false)
		},
		"cut, and the client goes on": func(client *Client, writer env.FileWriter, cancel context.CancelFunc) {
			r.proxy.Cut()
			cancel()
			writer.Close()
			client.Mkdir(context.Background(), uri(t, t.TempDir()+"/next"), env.MkdirOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := r.dialAccepted(t, ClientOptions{})
			directory := t.TempDir()
			target := filepath.Join(directory, "target")
			if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			writer, err := client.Write(ctx, uri(t, target), env.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for writer.Taken() == 0 {
				if _, err := writer.Write(make([]byte, 1<<20)); err != nil {
					t.Fatal(err)
				}
			}
			if n := r.server.handles.Load(); n != 1 {
				t.Errorf("%d handles while one file is written", n)
			}
			giveUp(client, writer, cancel)
			r.awaitNoHandles(t)
			if names := namesIn(t, directory); len(names) != 1 {
				t.Errorf("left behind: %q", names)
			}
			if content, err := os.ReadFile(target); string(content) != "old" {
				t.Errorf("the file has %d bytes, %v", len(content), err)
			}
			if _, err := writer.Commit(); err == nil {
				t.Error("committed what was given up")
			}
		})
	}
}

// awaitNoHandles waits until the server holds nothing for anybody.
func (r *rig) awaitNoHandles(tb testing.TB) {
	tb.Helper()
	deadline := time.After(30 * time.Second)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for r.server.handles.Load() > 0 {
		select {
		case <-ticker.C:
		case <-deadline:
			tb.Fatalf("%d handles are still held", r.server.handles.Load())
		}
	}
}

// TestSmallUploadIsOneTrip: nothing of a small file waits for an answer but its end.
func TestSmallUploadIsOneTrip(t *testing.T) {
	r := newRig(t, ServerOptions{})
	client := r.dialAccepted(t, ClientOptions{})
	const each = 100 * time.Millisecond
	target := uri(t, filepath.Join(t.TempDir(), "target"))
	if _, err := client.Stat(t.Context(), target, false); !errors.Is(err, fs.ErrNotExist) { // a stream is there now
		t.Fatal(err)
	}
	r.proxy.SetDelay(each)
	began := time.Now()
	writer, err := client.Write(t.Context(), target, env.WriteOptions{Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if _, err := writer.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Commit(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*each || took > 4*each {
		t.Errorf("a small file took %v, a round trip takes %v", took, 2*each)
	}
	r.proxy.SetDelay(0)
}

// TestListAcrossCuts: a list that is cut yields every entry, and none twice.
func TestListAcrossCuts(t *testing.T) {
	r := newRig(t, ServerOptions{})
	client := r.dialAccepted(t, ClientOptions{})
	directory := t.TempDir()
	const count = 3000
	for i := range count {
		if err := os.WriteFile(filepath.Join(directory, fmt.Sprintf("%04d-%s", i, strings.Repeat("x", 100))), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, list := range map[string]func() (int, error){
		"list": func() (n int, err error) { return countEntries(client.List(t.Context(), uri(t, directory)), r) },
		"walk": func() (n int, err error) {
			n, err = countEntries(client.Walk(t.Context(), uri(t, directory), env.WalkOptions{}), r)
			return n - 1, err // the root
		},
	} {
		if n, err := list(); n != count || err != nil {
			t.Errorf("%s: %d entries, %v; want %d", name, n, err, count)
		}
	}
}

// countEntries counts, and cuts now and then.
func countEntries(entries func(func(env.Entry, error) bool), r *rig) (int, error) {
	seen := make(map[pathuri.URI]bool)
	for entry, err := range entries {
		switch {
		case err != nil:
			return len(seen), err
		case entry.Err != nil:
			return len(seen), entry.Err
		case seen[entry.Path]:
			return len(seen), fmt.Errorf("%v came twice", entry.Path)
		}
		seen[entry.Path] = true
		if n := len(seen); n == 10 || n == 1500 {
			r.proxy.Cut()
		}
	}
	return len(seen), nil
}

// TestWatchAcrossCuts: after a cut a watch says that changes may have been missed, and goes on; what has vanished
// meanwhile is gone.
func TestWatchAcrossCuts(t *testing.T) {
	r := newRig(t, ServerOptions{})
	client := r.dialAccepted(t, ClientOptions{})
	directory := filepath.Join(t.TempDir(), "watched")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	watch, err := client.Watch(t.Context(), uri(t, directory), env.WatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	until := func(kind env.ChangeKind, path string) {
		t.Helper()
		for batch, err := range watch.Changes(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, change := range batch {
				if change.Kind == kind && change.Path == uri(t, path) {
					return
				}
			}
		}
		t.Fatalf("the watch ended without %s of %s", kind, path)
	}
	touch := func(name string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	until(env.Created, touch("a"))
	r.proxy.Cut()
	until(env.Rescan, directory)
	until(env.Created, touch("b"))
	r.proxy.Refuse(true)
	r.proxy.Cut()
	if err := os.RemoveAll(directory); err != nil {
		t.Fatal(err)
	}
	r.proxy.Refuse(false)
	until(env.Gone, directory)
	for range watch.Changes(t.Context()) {
		t.Error("a change after the last")
	}
	watch.Close()
	r.awaitNoHandles(t)
}
