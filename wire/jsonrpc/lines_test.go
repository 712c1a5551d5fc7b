package jsonrpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// lineServer serves an echo on a stream and gives the other end.
func lineServer(t *testing.T, o Options) (net.Conn, <-chan error) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	theirs.SetDeadline(time.Now().Add(patience))
	p := NewPeer(NewLines(ours, o))
	return theirs, serve(t, p, echo(func() *Peer { return p }))
}

func TestLines(t *testing.T) {
	c, ended := lineServer(t, Options{MaxMessage: 200_000})
	in := bufio.NewReader(c)
	long := strings.Repeat("y", 100_000)
	tests := []struct{ send, want string }{
		{"{\"id\":1,\"method\":\"m\"}\n", `{"id":1,"result":null}`},
		{"\n \t\r\n\r\n{\"id\":2,\"method\":\"m\"}\r\n", `{"id":2,"result":null}`},
		{"{\"id\":3,\"method\":\"m\",\"params\":\"" + long + "\"}\n", `{"id":3,"result":"` + long + `"}`},
		{"{\"id\":4,\"method\":\"m\",\"params\":\"" + long + long + "\"}\n", `{"id":4,"error":{"code":-32600,"message":"failed to parse JSON-RPC message: the message is over 200000 bytes long; send it in parts"}}`},
		{"nonsense\n", `{"id":-1,"error":{"code":-32600,"message":"failed to parse JSON-RPC message: 'o' where a value should be at byte 1"}}`},
		{"{\"id\":5,\"method\":\"m\",\"params\":\"\xff\"}\n", `{"id":5,"error":{"code":-32600,"message":"failed to parse JSON-RPC message: the string is not UTF-8 that ends at byte 32"}}`},
		{"{\"id\":6,\"method\":\"m\"}\n", `{"id":6,"result":null}`},
	}
	for _, test := range tests {
		go io.WriteString(c, test.send)
		got, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSuffix(got, "\n") != test.want && test.send != "nonsense\n" {
			t.Errorf("%.50q is answered with %.200q, want %.200q", test.send, got, test.want)
		}
		if test.send == "nonsense\n" && !strings.HasPrefix(got, `{"id":-1,"error":{"code":-32600,`) {
			t.Errorf("nonsense is answered with %q", got)
		}
	}
	c.Close()
	if err := await(t, ended); err != nil {
		t.Errorf("Serve returns %v", err)
	}
}

// Whoever closes its direction still gets the answers to what it has asked; the last line needs no newline.
func TestLinesHalfClosed(t *testing.T) {
	requests, toServer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromServer, answers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer fromServer.Close()
	p := NewPeer(NewLines(struct {
		io.Reader
		io.WriteCloser
	}{requests, answers}, Options{}))
	sent := make(chan struct{})
	var later []ID
	ended := serve(t, p, handler(func(_ context.Context, r *Request) error {
		later = append(later, r.ID)
		if len(later) == 2 {
			all := later
			go func() {
				<-sent // there is nothing more to read
				for _, id := range all {
					p.Reply(id, "late") //nolint:errcheck // the test looks at what comes
				}
			}()
		}
		return nil
	}))
	fmt.Fprint(toServer, "{\"id\":1,\"method\":\"m\"}\n{\"id\":2,\"method\":\"m\"}")
	toServer.Close()
	close(sent)
	got, err := io.ReadAll(fromServer)
	if want := "{\"id\":1,\"result\":\"late\"}\n{\"id\":2,\"result\":\"late\"}\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if err := await(t, ended); err != nil {
		t.Errorf("Serve returns %v", err)
	}
	requests.Close()
}

// stuck is a stream whose reading is not to be interrupted.
type stuck struct{ release chan struct{} }

func (s stuck) Read([]byte) (int, error)    { <-s.release; return 0, io.EOF }
func (s stuck) Write(b []byte) (int, error) { return len(b), nil }
func (s stuck) Close() error                { return nil }

func TestLinesStuck(t *testing.T) {
	s := stuck{make(chan struct{})}
	defer close(s.release)
	p := NewPeer(NewLines(s, Options{}))
	ended := serve(t, p, refuse)
	why := errors.New("shutting down")
	p.Close(why)
	if err := await(t, ended); !errors.Is(err, why) {
		t.Errorf("Serve returns %v", err)
	}
}
