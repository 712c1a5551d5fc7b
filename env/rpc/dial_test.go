package rpc

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"waldo/wire"
)

// serveOn accepts connections on loopback and hands each to serve.
func serveOn(t *testing.T, serve func(*net.TCPConn)) (address string) {
	t.Helper()
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
				serve(c.(*net.TCPConn))
			})
		}
	})
	return l.Addr().String()
}

func dialTo(t *testing.T, c *Client, address string) net.Conn {
	t.Helper()
	conn, err := c.Dial(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func echo(c *net.TCPConn) {
	io.Copy(c, c)  //nolint:errcheck // the other end looks
	c.CloseWrite() //nolint:errcheck // likewise
}

func TestForwardMany(t *testing.T) {
	client := newRig(t, ServerOptions{}).dial(t, ClientOptions{})
	address := serveOn(t, echo)
	data := make([]byte, 300_000)
	rand.Read(data)
	var tasks sync.WaitGroup
	for range 60 {
		tasks.Go(func() {
			conn, err := client.Dial(t.Context(), "tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			tasks.Go(func() {
				conn.Write(data)
				conn.(halfCloser).CloseWrite()
			})
			if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d of %d bytes came back, %v", len(got), len(data), err)
			}
		})
	}
	tasks.Wait()
}

// What was written before Close arrives, as with any connection.
func TestForwardCloseDelivers(t *testing.T) {
	client := newRig(t, ServerOptions{}).dial(t, ClientOptions{})
	got := make(chan int, 1)
	address := serveOn(t, func(c *net.TCPConn) {
		all, _ := io.ReadAll(c)
		got <- len(all)
	})
	conn := dialTo(t, client, address)
	if _, err := conn.Write(make([]byte, 700_000)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if n := <-got; n != 700_000 {
		t.Errorf("%d bytes arrived", n)
	}
	_, err := conn.Read(make([]byte, 1))
	wantError(t, "read after Close", err, net.ErrClosed)
	_, err = conn.Write(make([]byte, 1))
	wantError(t, "write after Close", err, net.ErrClosed)
}

// What the far end sent is read, though it takes nothing more.
func TestForwardHalf(t *testing.T) {
	client := newRig(t, ServerOptions{}).dial(t, ClientOptions{})
	release := make(chan struct{})
	conn := dialTo(t, client, serveOn(t, func(c *net.TCPConn) {
		io.WriteString(c, "early")
		c.CloseWrite()
		<-release // reads nothing until then
		n, _ := io.Copy(io.Discard, c)
		if n != 8<<20 {
			t.Errorf("%d bytes arrived", n)
		}
	}))
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, 8<<20))
		wrote <- errors.Join(err, conn.(halfCloser).CloseWrite())
	}()
	// The end of one direction is told while the other one is full.
	if got, err := io.ReadAll(conn); string(got) != "early" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	close(release)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func TestForwardDeadlines(t *testing.T) {
	client := newRig(t, ServerOptions{}).dial(t, ClientOptions{})
	release := make(chan struct{})
	defer close(release)
	conn := dialTo(t, client, serveOn(t, func(c *net.TCPConn) { <-release }))
	read, wrote := make(chan error), make(chan error)
	for _, when := range []time.Time{time.Unix(1, 0), time.Now().Add(20 * time.Millisecond)} {
		go func() {
			_, err := conn.Read(make([]byte, 1))
			read <- err
		}()
		go func() {
			_, err := conn.Write(make([]byte, 64<<20))
			wrote <- err
		}()
		conn.SetDeadline(when)
		wantError(t, "read", <-read, os.ErrDeadlineExceeded)
		wantError(t, "write", <-wrote, os.ErrDeadlineExceeded)
		conn.SetDeadline(time.Time{})
	}
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	conn.Close()
	wantError(t, "read", <-read, net.ErrClosed)
}

func TestForwardErrors(t *testing.T) {
	r := newRig(t, ServerOptions{})
	client := r.dial(t, ClientOptions{})
	conn := dialTo(t, client, serveOn(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		c.SetLinger(0) // a reset
	}))
	conn.Write([]byte("x"))
	if _, err := io.ReadAll(conn); err == nil {
		t.Error("a reset reads as end of file")
	}
	// So does no lost connection.
	conn = dialTo(t, client, serveOn(t, echo))
	r.proxy.Cut()
	_, err := io.ReadAll(conn)
	wantError(t, "read", err, wire.ErrCut)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Dial(ctx, "tcp", "127.0.0.1:1")
	wantError(t, "dial", err, context.Canceled)
}
