package jsonrpc

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"waldo/wire/wiretest"
)

// hijackable is a response whose connection can be taken, as an HTTP server's.
type hijackable struct{ c net.Conn }

func (h hijackable) Header() http.Header         { return http.Header{} }
func (h hijackable) Write(b []byte) (int, error) { return len(b), nil }
func (h hijackable) WriteHeader(int)             {}
func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.c, bufio.NewReadWriter(bufio.NewReader(h.c), bufio.NewWriter(h.c)), nil
}

// accepted is a server's transport in memory and the other end.
func accepted(t *testing.T) (Transport, net.Conn) {
	t.Helper()
	ours, theirs := wiretest.Pipe()
	r, err := http.NewRequest(http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
	}
	transport, err := Accept(hijackable{ours}, r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return transport, theirs
}

// Pings are empty and come every 30 seconds; who answers none of two and is silent otherwise is left.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, other := accepted(t)
		p := NewPeer(transport)
		ended := serve(t, p, refuse)
		began := time.Now()
		pong := []byte{final | 0xA, 0x80, 1, 2, 3, 4}
		for i := range 3 {
			var ping [2]byte
			if _, err := io.ReadFull(other, ping[:]); err != nil || ping != [2]byte{final | opPing, 0} {
				t.Fatalf("%x, %v", ping, err)
			}
			if got, want := time.Since(began), time.Duration(i+1)*pingEvery; got != want {
				t.Errorf("ping %d after %v, want %v", i, got, want)
			}
			other.Write(pong)
		}
		if err := <-ended; !errors.Is(err, errSilent) {
			t.Errorf("Serve returns %v", err)
		}
		if got, want := time.Since(began), 6*pingEvery; got != want {
			t.Errorf("it is left after %v, want %v", got, want)
		}
	})
}

// That this end is too busy to read is no silence of the other.
func TestBusyIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, other := accepted(t)
		p := NewPeer(transport)
		serve(t, p, handler(func(context.Context, *Request) error {
			time.Sleep(10 * pingEvery)
			return nil
		}))
		other.Write([]byte("\x81\x8e\x00\x00\x00\x00" + `{"method":"m"}`))
		time.Sleep(10*pingEvery - 1)
		select {
		case <-p.Done():
			t.Error("the connection has ended")
		default:
		}
		other.Close()
		<-p.Done()
	})
}
