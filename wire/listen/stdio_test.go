package listen

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// pipePair is the two ends of a stdio connection over the system's pipes.
func pipePair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	in, toServer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromServer, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	client, server = Stdio(fromServer, toServer), Stdio(in, out)
	t.Cleanup(func() { client.Close() })
	client.SetDeadline(time.Now().Add(patience))
	return client, server
}

func TestServeStdio(t *testing.T) {
	tests := []struct {
		name, send, answer, err string
		d                       Doors
	}{
		{"native", "\x00\n", "ok trusted=true\n", "", allDoors},
		{"native after blanks", "\r\n \t\x00\n", "ok trusted=true\n", "", allDoors},
		{"lines", "\n  {}\n", "2\n", "", allDoors},
		{"no native door", "\x00\n", "", "byte 0x00", Doors{Lines: linesDoor}},
		{"no lines", "{}\n", refuseLines, "not spoken here", Doors{Native: echoDoor}},
		{"something else", "hello", "", "byte 0x68", allDoors},
		{"nothing", "", "", "", allDoors},
		{"blanks", " \n", "", "", allDoors},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			client, server := pipePair(t)
			served := make(chan error, 1)
			go func() { served <- ServeStdio(t.Context(), server, test.d) }()
			if _, err := io.WriteString(client, test.send); err != nil {
				t.Fatal(err)
			}
			if test.answer != "" {
				line, err := bufio.NewReader(client).ReadString('\n')
				if line != test.answer || err != nil {
					t.Errorf("%q, %v", line, err)
				}
			}
			client.(*stdioConn).out.Close()
			err := <-served
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("ServeStdio: %v, want %q", err, test.err)
			}
			// The server's ends are closed.
			if _, err := server.Write([]byte("x")); !errors.Is(err, os.ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func TestServeStdioEnds(t *testing.T) {
	// Before the first byte.
	_, server := pipePair(t)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := ServeStdio(ctx, server, allDoors); !errors.Is(err, why) {
		t.Error(err)
	}
	// In the middle, with a door that only its connection wakes.
	client, server := pipePair(t)
	ctx, cancel = context.WithCancelCause(t.Context())
	served, began := make(chan error, 1), make(chan struct{})
	go func() {
		served <- ServeStdio(ctx, server, Doors{Native: func(_ context.Context, c net.Conn, _ *Peer) {
			close(began)
			io.Copy(io.Discard, readerOnly{c})
		}})
	}()
	if _, err := client.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	<-began
	cancel(why)
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestStdioConn(t *testing.T) {
	client, server := pipePair(t)
	if err := server.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline: %v", err)
	}
	if err := errors.Join(server.Close(), server.Close()); err != nil {
		t.Error(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("after the other end's close: %v", err)
	}
	if client.LocalAddr().String() != "stdio" || client.RemoteAddr().Network() != "stdio" {
		t.Error("addresses")
	}
	plain := Stdio(io.NopCloser(strings.NewReader("")), nopCloser{io.Discard})
	if err := plain.SetDeadline(time.Now()); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("a deadline on streams without any: %v", err)
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
