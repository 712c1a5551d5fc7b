package wiretest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPipe(t *testing.T) {
	a, b := Pipe()
	sent := make([]byte, 5*PipeBuffer+17)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	go func() {
		a.Write(sent)
		a.Close()
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("read %d bytes, %v", len(got), err)
	}
	if _, err := b.Write(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write to a closed peer: %v", err)
	}
	b.Close()
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
	if _, err := b.Write(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after Close: %v", err)
	}
}

func TestPipeDeadlines(t *testing.T) {
	Bubble(t, func(t *testing.T) {
		a, b := Pipe()
		defer a.Close()
		defer b.Close()
		begin := time.Now()
		a.SetReadDeadline(begin.Add(time.Second))
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("read: %v after %v", err, time.Since(begin))
		}
		a.SetReadDeadline(time.Time{})
		done := make(chan error)
		go func() {
			_, err := a.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		a.SetDeadline(time.Unix(1, 0)) // one that has passed wakes who waits already
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		a.SetWriteDeadline(time.Now().Add(time.Second))
		if n, err := a.Write(make([]byte, PipeBuffer+1)); n != PipeBuffer || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write: %d, %v", n, err)
		}
	})
}

func TestFaulty(t *testing.T) {
	pipe := func() (*Faulty, net.Conn) {
		a, b := Pipe()
		t.Cleanup(func() { a.Close(); b.Close() })
		return NewFaulty(a), b
	}
	t.Run("cut write", func(t *testing.T) {
		f, b := pipe()
		f.CutWrite(3)
		if n, err := f.Write([]byte("hello")); n != 3 || err == nil {
			t.Errorf("write: %d, %v", n, err)
		}
		if got, err := io.ReadAll(b); string(got) != "hel" || err != nil {
			t.Errorf("the peer read %q, %v", got, err)
		}
	})
	t.Run("cut read", func(t *testing.T) {
		f, b := pipe()
		f.CutRead(3)
		b.Write([]byte("hello"))
		if got, err := io.ReadAll(f); string(got) != "hel" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := b.Write([]byte("x")); err == nil {
			t.Error("the peer can still write")
		}
	})
	t.Run("one byte", func(t *testing.T) {
		f, b := pipe()
		f.OneByte()
		if n, err := f.Write([]byte("hello")); n != 5 || err != nil {
			t.Errorf("write: %d, %v", n, err)
		}
		b.Write([]byte("hello"))
		if n, err := f.Read(make([]byte, 5)); n != 1 || err != nil {
			t.Errorf("read: %d, %v", n, err)
		}
	})
	t.Run("stall", func(t *testing.T) {
		f, b := pipe()
		f.Stall(true)
		done := make(chan error)
		go func() {
			_, err := f.Write([]byte("x"))
			done <- err
		}()
		f.AwaitStalled(1)
		f.Stall(false)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n, err := b.Read(make([]byte, 2)); n != 1 || err != nil {
			t.Errorf("the peer read %d, %v", n, err)
		}
		f.Stall(true)
		go func() {
			_, err := f.Read(make([]byte, 1))
			done <- err
		}()
		go func() {
			_, err := f.Write(make([]byte, 1))
			done <- err
		}()
		f.AwaitStalled(2)
		f.Close()
		for range 2 {
			if err := <-done; !errors.Is(err, net.ErrClosed) {
				t.Errorf("a stalled call after Close: %v", err)
			}
		}
	})
}

// echoServer returns the address of a server that sends back what it reads.
func echoServer(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	t.Cleanup(tasks.Wait)
	t.Cleanup(func() { l.Close() })
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func echo(t *testing.T, c net.Conn, text string) time.Duration {
	t.Helper()
	begin := time.Now()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("echo of %q: %q, %v", text, got, err)
	}
	return time.Since(begin)
}

func TestProxy(t *testing.T) {
	p := NewProxy(t, echoServer(t))
	c := dial(t, p)
	echo(t, c, "plain")
	p.SetDelay(20 * time.Millisecond)
	if took := echo(t, c, "later"); took < 40*time.Millisecond {
		t.Errorf("an echo with 20 ms each way took %v", took)
	}
	p.SetDelay(0)

	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		c.Write(sent)
		c.CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("%d of %d bytes came back, %v", len(got), len(sent), err)
	}
	p.AwaitOpen(0)

	c = dial(t, p)
	echo(t, c, "before the stall")
	p.Stall(true)
	if _, err := io.WriteString(c, "held"); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if n, err := c.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v through a stalled network", n, err)
	}
	c.SetReadDeadline(time.Time{})
	p.Stall(false)
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "held" {
		t.Fatalf("after the stall: %q, %v", got, err)
	}

	p.Cut()
	if _, err := c.Read(got); err == nil {
		t.Error("a cut connection can be read")
	}
	p.AwaitOpen(0)

	p.Refuse(true)
	if refused, err := net.Dial("tcp", p.Addr()); err == nil { // else the reset came first
		if _, err := refused.Read(got); err == nil {
			t.Error("a refused connection can be read")
		}
		refused.Close()
	}
	p.AwaitAccepted(3)
	p.Refuse(false)
	echo(t, dial(t, p), "again")
	if p.Accepted() != 4 || p.Open() != 1 {
		t.Errorf("accepted %d, open %d", p.Accepted(), p.Open())
	}
}

func TestProxyRate(t *testing.T) {
	p := NewProxy(t, echoServer(t))
	p.SetRate(1 << 20)
	c := dial(t, p)
	if took := echo(t, c, string(make([]byte, 100<<10))); took < 50*time.Millisecond {
		t.Errorf("100 KiB at 1 MiB/s took %v", took)
	}
}

func TestProxyCloses(t *testing.T) {
	target := echoServer(t)
	for _, prepare := range []func(*Proxy){
		func(*Proxy) {},
		func(p *Proxy) { p.Stall(true) },
		func(p *Proxy) { p.SetDelay(time.Hour) },
		func(p *Proxy) { p.SetRate(1) },
	} {
		p, err := StartProxy("127.0.0.1:0", target)
		if err != nil {
			t.Fatal(err)
		}
		prepare(p)
		c := dial(t, p)
		p.AwaitOpen(1)
		c.Write(make([]byte, 100))
		p.Close()
		p.Close()
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the connection outlived the proxy")
		}
	}
}
