package rpc

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"waldo/env"
	"waldo/env/host"
	"waldo/env/host/proc"
	"waldo/env/host/tree"
	"waldo/wire/wiretest"
)

func TestMain(m *testing.M) {
	if err := errors.Join(tree.CloseInherited(), tree.DefaultSignals()); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// rig is a server on this machine, reached through a proxy.
type rig struct {
	server  *Server
	address string
	proxy   *wiretest.Proxy
	token   string
}

func newRig(tb testing.TB, options ServerOptions) *rig {
	tb.Helper()
	realTime.Store(true)
	machine, err := host.New(host.Options{Environ: os.Environ(), Directory: tb.TempDir(), Processes: proc.Options{Grace: time.Second}})
	if err != nil {
		tb.Fatal(err)
	}
	server, err := NewServer(tb.Context(), machine, options)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				server.Serve(context.Background(), c, Origin{}, func(token string) error { //nolint:errcheck // a cut is the tests' doing
					if token != "right" {
						return errors.New("wrong token")
					}
					return nil
				})
			})
		}
	})
	tb.Cleanup(func() {
		l.Close()
		server.Close()
		serving.Wait()
		if err := machine.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &rig{server: server, address: l.Addr().String(), proxy: wiretest.NewProxy(tb, l.Addr().String()), token: "right"}
}

func (r *rig) dial(tb testing.TB, options ClientOptions) *Client {
	tb.Helper()
	options.Token = r.token
	options.Dial = func(ctx context.Context) (net.Conn, error) {
		address := r.proxy.Addr()
		if options.Session == "direct" {
			address = r.address
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	client, err := Dial(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { client.Close() })
	return client
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

// collect reads all output, by channel, and reports losses.
func collect(tb testing.TB, p env.Process) map[env.Channel]string {
	tb.Helper()
	output := make(map[env.Channel]*strings.Builder)
	next := int64(0)
	for chunk, err := range p.Output(tb.Context()) {
		if err != nil {
			tb.Fatal(err)
		}
		if chunk.Offset != next || chunk.Lost != 0 {
			tb.Fatalf("chunk at %d (lost %d), want %d", chunk.Offset, chunk.Lost, next)
		}
		next += int64(len(chunk.Data))
		if output[chunk.Channel] == nil {
			output[chunk.Channel] = new(strings.Builder)
		}
		output[chunk.Channel].Write(chunk.Data)
	}
	result := make(map[env.Channel]string)
	for channel, text := range output {
		result[channel] = text.String()
	}
	return result
}

func TestRun(t *testing.T) {
	client := newRig(t, ServerOptions{}).dial(t, ClientOptions{})
	p, err := client.Start(t.Context(), env.Command{Argv: sh("echo out; echo err >&2; exit 3")})
	if err != nil {
		t.Fatal(err)
	}
	output := collect(t, p)
	if output[env.Stdout] != "out\n" || output[env.Stderr] != "err\n" {
		t.Errorf("output %q", output)
	}
	exit, err := p.Exit()
	if err != nil || exit.Code != 3 {
		t.Errorf("exit %+v, %v", exit, err)
	}
}

func TestErrorsKeepTheirIdentity(t *testing.T) {
	client := newRig(t, ServerOptions{}).dial(t, ClientOptions{})
	_, err := client.Start(t.Context(), env.Command{Argv: []string{"no-such-program"}})
	if !errors.Is(err, env.ErrStart) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("start: %v", err)
	}
	if _, err := client.Attach(t.Context(), "nope", env.Attach{}); !errors.Is(err, env.ErrUnknownProcess) {
		t.Errorf("attach: %v", err)
	}
	if err := client.Signal(t.Context(), "nope", "TERM"); !errors.Is(err, env.ErrUnknownProcess) {
		t.Errorf("signal: %v", err)
	}
}

func TestWrongToken(t *testing.T) {
	r := newRig(t, ServerOptions{})
	r.token = "wrong"
	client := r.dial(t, ClientOptions{})
	if err := client.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "wrong token") {
		t.Errorf("ready: %v", err)
	}
	if _, err := client.Start(t.Context(), env.Command{Argv: sh("true")}); err == nil {
		t.Error("started with a wrong token")
	}
}

// random makes a file of bytes that do not repeat.
func random(tb testing.TB, n int64) (path string, sum string) {
	tb.Helper()
	data := make([]byte, n)
	rand.Read(data)
	path = filepath.Join(tb.TempDir(), "random")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	digest := sha256.Sum256(data)
	return path, hex.EncodeToString(digest[:])
}

// cutting cuts the rig's connections again and again until done.
func (r *rig) cutting(every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var cutter sync.WaitGroup
	cutter.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				r.proxy.Cut()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); cutter.Wait() }
}

func TestOutputSurvivesCuts(t *testing.T) {
	r := newRig(t, ServerOptions{})
	r.proxy.SetRate(40 << 20)
	client := r.dial(t, ClientOptions{})
	const size = 60 << 20
	path, want := random(t, size)
	marker := filepath.Join(t.TempDir(), "started")
	stop := r.cutting(200 * time.Millisecond)
	defer stop()
	p, err := client.Start(t.Context(), env.Command{Argv: sh(fmt.Sprintf("echo once >> %s; exec cat %s", marker, path))})
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	var n int64
	for chunk, err := range p.Output(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Offset != n || chunk.Lost != 0 {
			t.Fatalf("chunk at %d, lost %d, want %d", chunk.Offset, chunk.Lost, n)
		}
		n += int64(len(chunk.Data))
		hash.Write(chunk.Data)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != want || n != size {
		t.Errorf("%d bytes with sum %s, want %d with %s", n, got, size, want)
	}
	if exit, err := p.Exit(); err != nil || exit.Code != 0 {
		t.Errorf("exit %+v, %v", exit, err)
	}
	if started, _ := os.ReadFile(marker); string(started) != "once\n" {
		t.Errorf("started: %q", started)
	}
}

func TestInputSurvivesCuts(t *testing.T) {
	r := newRig(t, ServerOptions{})
	r.proxy.SetRate(40 << 20)
	client := r.dial(t, ClientOptions{})
	path, want := random(t, 60<<20)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	stop := r.cutting(200 * time.Millisecond)
	defer stop()
	p, err := client.Start(t.Context(), env.Command{Argv: []string{"sha256sum"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(data, 100_000) {
		if _, err := p.Write(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.CloseStdin(t.Context()); err != nil {
		t.Fatal(err)
	}
	output := collect(t, p)[env.Stdout]
	if got, _, _ := strings.Cut(output, " "); got != want {
		t.Errorf("sum %q, want %s", output, want)
	}
}

// A slow link that is busy is no dead link.
func TestSlowLink(t *testing.T) {
	const rate = 128 << 10 // 1 Mbit/s
	t.Run("down", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, ServerOptions{})
		r.proxy.SetRate(rate)
		client := r.dial(t, ClientOptions{})
		const size = 6 * rate
		path, want := random(t, size)
		p, err := client.Start(t.Context(), env.Command{Argv: []string{"cat", path}})
		if err != nil {
			t.Fatal(err)
		}
		digest := sha256.Sum256([]byte(collect(t, p)[env.Stdout]))
		if got := hex.EncodeToString(digest[:]); got != want {
			t.Errorf("sum %s, want %s", got, want)
		}
		if n := r.proxy.Accepted(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
	t.Run("up", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, ServerOptions{})
		r.proxy.SetRate(rate)
		client := r.dial(t, ClientOptions{})
		data := slices.Repeat([]byte("0123456789abcdef"), 10*rate/16)
		p, err := client.Start(t.Context(), env.Command{Argv: []string{"wc", "-c"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Write(t.Context(), data); err != nil {
			t.Fatal(err)
		}
		if err := p.CloseStdin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(collect(t, p)[env.Stdout]); got != "1310720" {
			t.Errorf("counted %s", got)
		}
		if n := r.proxy.Accepted(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}
