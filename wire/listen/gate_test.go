package listen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are in memory, so that a test's time can be unreal.
type pipes struct {
	conns chan net.Conn
	errs  chan error
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes {
	return &pipes{conns: make(chan net.Conn), errs: make(chan error), done: make(chan struct{})}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case err := <-p.errs:
		return nil, err
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return stdioAddr{} }

// dial gives the client's end of a new connection.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// inBubble runs a test with a listener in memory and unreal time.
func inBubble(t *testing.T, d Doors, test func(t *testing.T, l *Listener, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := newListener(Address{Scheme: "tcp", Host: "127.0.0.1", Port: 1}, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
		l.ln = p
		l.auth = newTokenAuth("s3cret")
		var err error
		if l.guard, err = newGuard(l.addr, Options{}, nil); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- l.Serve(ctx, d) }()
		test(t, l, p)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// isCut reports whether the server has closed a connection.
func isCut(t *testing.T, c net.Conn) bool {
	t.Helper()
	synctest.Wait()
	c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	defer c.SetReadDeadline(time.Time{})
	_, err := c.Read(make([]byte, 1))
	if err == nil {
		t.Fatal("the server said something")
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe)
}

// Whoever says little, or says it slowly, is cut after ten seconds, whatever the protocol.
func TestSlowPeersAreCut(t *testing.T) {
	tests := []struct {
		name  string
		start string
		drip  string // one byte of it a second
	}{
		{name: "nothing"},
		{name: "native, no hello", start: "\x00"},
		{name: "native, slow hello", start: "\x00", drip: strings.Repeat("s", 100)},
		{name: "HTTP, slow headers", start: "GET / HTTP/1.1\r\nHost: localhost\r\n", drip: "X-Slow: " + strings.Repeat("y", 100)},
		{name: "HTTP, slow request line", drip: strings.Repeat("G", 100)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, allDoors, func(t *testing.T, l *Listener, p *pipes) {
				begin := time.Now()
				c := p.dial()
				defer c.Close()
				if _, err := io.WriteString(c, test.start); err != nil {
					t.Fatal(err)
				}
				for _, b := range []byte(test.drip) {
					if time.Since(begin) > 8*time.Second {
						break
					}
					time.Sleep(time.Second)
					if _, err := c.Write([]byte{b}); err != nil {
						break
					}
				}
				time.Sleep(9900*time.Millisecond - time.Since(begin))
				if isCut(t, c) {
					t.Fatalf("cut after %v already", time.Since(begin))
				}
				time.Sleep(200 * time.Millisecond)
				if !isCut(t, c) {
					t.Error("not cut after ten seconds")
				}
			})
		})
	}
}

// A TLS handshake that does not go on is cut too.
func TestSlowHandshakeIsCut(t *testing.T) {
	state := t.TempDir()
	config, _, err := serverTLS(Options{StateDir: state})
	if err != nil {
		t.Fatal(err)
	}
	inBubble(t, allDoors, func(t *testing.T, l *Listener, p *pipes) {
		l.tls = config
		c := p.dial()
		defer c.Close()
		if _, err := c.Write([]byte{0x16, 3, 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9900 * time.Millisecond)
		if isCut(t, c) {
			t.Fatal("cut too early")
		}
		time.Sleep(200 * time.Millisecond)
		if !isCut(t, c) {
			t.Error("not cut after ten seconds")
		}
	})
}

// Who has authenticated stays, however quiet.
func TestAuthenticatedPeersStay(t *testing.T) {
	inBubble(t, allDoors, func(t *testing.T, l *Listener, p *pipes) {
		c := p.dial()
		defer c.Close()
		answer, in := hello(t, c, "s3cret")
		if answer != "ok trusted=false" {
			t.Fatal(answer)
		}
		c.SetDeadline(time.Time{})
		time.Sleep(time.Hour)
		if _, err := io.WriteString(c, "x"); err != nil {
			t.Fatal(err)
		}
		if b, err := in.ReadByte(); b != 'x' || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// A wrong token gives no more time, and no second place among those that wait.
func TestRefusedPeersAreCut(t *testing.T) {
	stubborn := Doors{Native: func(ctx context.Context, c net.Conn, p *Peer) {
		if err := p.Authenticate("wrong"); err == nil {
			t.Error("a wrong token was taken")
		}
		io.Copy(io.Discard, c) // a door that does not close
	}}
	inBubble(t, stubborn, func(t *testing.T, l *Listener, p *pipes) {
		c := p.dial()
		defer c.Close()
		if _, err := c.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if !isCut(t, c) {
			t.Error("still there")
		}
	})
}

// Sixty-four may wait. One more takes the place of the oldest; those that have authenticated do not count.
func TestCrowd(t *testing.T) {
	inBubble(t, allDoors, func(t *testing.T, l *Listener, p *pipes) {
		inside := p.dial()
		defer inside.Close()
		if answer, _ := hello(t, inside, "s3cret"); answer != "ok trusted=false" {
			t.Fatal(answer)
		}
		var crowd []net.Conn
		for range 70 {
			c := p.dial()
			defer c.Close()
			crowd = append(crowd, c)
			synctest.Wait()
		}
		if l.waiting.Len() != 64 || len(l.places) != 64 {
			t.Errorf("%d and %d wait", l.waiting.Len(), len(l.places))
		}
		for i, c := range crowd {
			if got, want := isCut(t, c), i < 6; got != want {
				t.Errorf("connection %d: cut %v, want %v", i, got, want)
			}
		}
		// The owner gets in beside them.
		owner := p.dial()
		defer owner.Close()
		if answer, _ := hello(t, owner, "s3cret"); answer != "ok trusted=false" {
			t.Error(answer)
		}
		if isCut(t, inside) {
			t.Error("who was inside was cut")
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if l.waiting.Len() != 0 || len(l.places) != 0 || len(l.all()) != 2 {
			t.Errorf("%d, %d, %d remain", l.waiting.Len(), len(l.places), len(l.all()))
		}
	})
}

// At most 256 KiB are taken before authentication; what comes behind waits, and is not lost.
func TestReadLimit(t *testing.T) {
	const extra = 1000
	release := make(chan struct{})
	read := make(chan int, 1)
	total := make(chan int64, 1)
	door := Doors{Native: func(ctx context.Context, c net.Conn, p *Peer) {
		var n int
		go func() {
			<-release
			read <- n
			if err := p.Authenticate("s3cret"); err != nil {
				t.Error(err)
			}
		}()
		buf := make([]byte, 4096)
		for {
			k, err := c.Read(buf)
			n += k
			if err != nil {
				total <- int64(n)
				return
			}
		}
	}}
	synctest.Test(t, func(t *testing.T) {
		release, read, total = make(chan struct{}), make(chan int, 1), make(chan int64, 1)
		client, server := net.Pipe()
		defer client.Close()
		g := newGate(server, defaultLimits, func(*gate) {})
		defer g.Close()
		go door.Native(t.Context(), g, &Peer{auth: newTokenAuth("s3cret"), gate: g})
		written := make(chan error, 1)
		go func() {
			_, err := client.Write(bytes.Repeat([]byte{0}, 256<<10+extra))
			client.Close()
			written <- err
		}()
		synctest.Wait()
		close(release)
		if n := <-read; n != 256<<10 {
			t.Errorf("%d bytes were taken before authentication", n)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		if n := <-total; n != 256<<10+extra {
			t.Errorf("%d bytes came in all", n)
		}
	})
	// Without authentication, the reader learns why.
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		g := newGate(server, defaultLimits, func(*gate) {})
		go client.Write(bytes.Repeat([]byte{0}, 256<<10+extra))
		n, err := io.Copy(io.Discard, g)
		if n != 256<<10 || !errors.Is(err, errTooSlow) {
			t.Errorf("%d bytes, %v", n, err)
		}
		<-g.idle
		if err := g.admit(); !errors.Is(err, errTooSlow) {
			t.Errorf("admitted after the end: %v", err)
		}
	})
}

// Without descriptors the listener waits, ever longer, and goes on when there are some again.
func TestAcceptBacksOff(t *testing.T) {
	inBubble(t, allDoors, func(t *testing.T, l *Listener, p *pipes) {
		begin := time.Now()
		for range 20 {
			p.errs <- fmt.Errorf("accept: %w", syscall.EMFILE)
		}
		if d := time.Since(begin); d < 10*time.Second || d > 20*time.Second {
			t.Errorf("20 errors took %v", d)
		}
		c := p.dial()
		defer c.Close()
		if answer, _ := hello(t, c, "s3cret"); answer != "ok trusted=false" {
			t.Error(answer)
		}
		p.errs <- syscall.EMFILE // and the end does not wait for the pause
	})
}

// At the end a door has two seconds; who has not authenticated has none.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := newListener(Address{Scheme: "tcp", Host: "127.0.0.1", Port: 1}, nil)
		l.ln = p
		l.auth = newTokenAuth("s3cret")
		polite := Doors{Native: func(ctx context.Context, c net.Conn, peer *Peer) {
			if err := peer.Authenticate("s3cret"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			io.WriteString(c, "bye")
			io.Copy(io.Discard, c) // until cut
		}}
		ended := make(chan error, 1)
		go func() { ended <- l.Serve(context.Background(), polite) }()
		inside, waiting := p.dial(), p.dial()
		defer inside.Close()
		defer waiting.Close()
		if _, err := inside.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begin := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		synctest.Wait()
		if !isCut(t, waiting) {
			t.Error("who has not authenticated is kept")
		}
		if said, err := io.ReadAll(inside); string(said) != "bye" || err != nil {
			t.Errorf("%q, %v", said, err)
		}
		if d := time.Since(begin); d != 2*time.Second {
			t.Errorf("cut after %v", d)
		}
		if err := errors.Join(<-ended, <-closed, l.Close()); err != nil {
			t.Error(err)
		}
		if err := l.Serve(context.Background(), polite); err == nil {
			t.Error("Serve can be called twice")
		}
	})
}

// A door that never returns is told of, not waited for.
func TestStuckDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		l := newListener(Address{Scheme: "tcp", Host: "127.0.0.1", Port: 1}, nil)
		l.ln = p
		l.noAuth = true
		release := make(chan struct{})
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			ended <- l.Serve(ctx, Doors{Native: func(_ context.Context, c net.Conn, peer *Peer) {
				if err := peer.Authenticate(""); err != nil || !peer.Trusted {
					t.Error(err, peer.Trusted)
				}
				<-release
			}})
		}()
		c := p.dial()
		defer c.Close()
		if _, err := c.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begin := time.Now()
		cancel()
		wantErr(t, <-ended, "1 connections were cut")
		if d := time.Since(begin); d != 12*time.Second {
			t.Errorf("given up after %v", d)
		}
		close(release)
	})
}
