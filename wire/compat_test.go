package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"waldo/wire/wiretest"
)

var record = flag.Bool("record", false, "record testdata/version1.txt anew; only for a protocol that was never released")

const conversation = "testdata/version1.txt"

// recorder notes what passes a client's connection, by turns.
type recorder struct {
	net.Conn
	mu    sync.Mutex
	turns []turn
}

// turn is what one side says until the other one does.
type turn struct {
	client bool
	bytes  []byte
}

func (r *recorder) note(client bool, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.turns); n == 0 || r.turns[n-1].client != client {
		r.turns = append(r.turns, turn{client: client})
	}
	last := &r.turns[len(r.turns)-1]
	last.bytes = append(last.bytes, b...)
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if n > 0 {
		r.note(false, b[:n])
	}
	return n, err
}

func (r *recorder) Write(b []byte) (int, error) {
	r.note(true, b)
	return r.Conn.Write(b)
}

func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("without -record")
	}
	clientEnd, serverEnd := wiretest.Pipe()
	r := &recorder{Conn: clientEnd}
	client, _ := serve(t, r, serverEnd, acceptAll, methods(nil))
	if _, err := converse(context.Background(), client); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintln(&b, "# A conversation of protocol version 1 as it was on the wire: > from the client, < from the server.")
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, turn := range r.turns {
		mark := "<"
		if turn.client {
			mark = ">"
		}
		fmt.Fprintf(&b, "%s %x\n", mark, turn.bytes)
	}
	if err := os.WriteFile(conversation, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
}

// frames collects the frames of one direction, acks left out: when they come is nobody's promise.
type frames struct {
	demux
	lines chan string
}

func newFrames() *frames {
	f := &frames{lines: make(chan string, 1000)}
	f.tell = func(stream uint32, fr frame) {
		if a, err := decodeAck(fr.payload); fr.kind == kindControl && err == nil && a != nil {
			return
		}
		f.lines <- fmt.Sprintf("stream %d kind %d channel %d %q", stream, fr.kind, fr.channel, fr.payload)
	}
	return f
}

// A client of the first release still gets the same answers.
func TestVersion1Client(t *testing.T) {
	file, err := os.Open(conversation)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	clientEnd, serverEnd := wiretest.Pipe()
	server, err := Server(serverEnd, acceptAll, methods(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	live := newFrames()
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(live, clientEnd) })
	defer reading.Wait()
	defer clientEnd.Close()

	recorded := newFrames()
	count := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		mark, digits, _ := strings.Cut(lines.Text(), " ")
		b, err := hex.DecodeString(digits)
		switch {
		case mark == "#":
		case err != nil:
			t.Fatal(err)
		case mark == ">":
			if _, err := clientEnd.Write(b); err != nil {
				t.Fatal(err)
			}
		default:
			recorded.Write(b)
			for len(recorded.lines) > 0 {
				want := <-recorded.lines
				select {
				case got := <-live.lines:
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatal(diff)
					}
				case <-server.Done():
					t.Fatalf("the server ended the connection instead of answering %s: %v", want, server.Err())
				case <-time.After(30 * time.Second):
					t.Fatalf("the server does not answer %s", want)
				}
				count++
			}
		}
	}
	if count < 15 {
		t.Errorf("only %d frames were compared", count)
	}
}

// recordedBytes is all that the recorded client says.
func recordedBytes(tb testing.TB) []byte {
	b, err := os.ReadFile(conversation)
	if err != nil {
		tb.Fatal(err)
	}
	var all []byte
	for line := range bytes.Lines(b) {
		if digits, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("> ")); ok {
			all, err = hex.AppendDecode(all, digits)
			if err != nil {
				tb.Fatal(err)
			}
		}
	}
	return all
}

// A server that is fed anything at all ends, and keeps nothing.
func FuzzServer(f *testing.F) {
	all := recordedBytes(f)
	f.Add(all)
	f.Add(all[:len(all)/2])
	f.Add(all[yamuxHeader:])
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	frame := func(stream byte, flags byte, payload string) []byte {
		return append([]byte{0, 0, 0, flags, 0, 0, 0, stream, 0, 0, 0, byte(len(payload))}, payload...)
	}
	f.Add(bytes.Join([][]byte{
		frame(1, 1, header(0x10, 40)+`{"method":"hello","params":{"minVersion"`),
		frame(1, 0, `:1,"maxVersion":1}}`),
		frame(3, 1, header(0x10, 17)+`{"method":"wait"}`), frame(3, 4, ""),
		frame(5, 1, header(0x10, 15)+`{"method":"up"}`), frame(5, 0, header(0x20, 0)+header(0x30, 3)+`"x"`),
		frame(7, 1, header(0xa0, 1)+"x"),
	}, nil))
	f.Fuzz(func(t *testing.T, input []byte) {
		clientEnd, serverEnd := wiretest.Pipe()
		server, err := Server(serverEnd, acceptAll, methods(nil))
		if err != nil {
			t.Fatal(err)
		}
		var reading sync.WaitGroup
		reading.Go(func() { io.Copy(io.Discard, clientEnd) })
		clientEnd.Write(input)
		clientEnd.(interface{ CloseWrite() error }).CloseWrite()
		<-server.Done()
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(server.streams) + int(server.calls.Load()); n != 0 {
			t.Fatalf("%d streams and calls are left", n)
		}
		clientEnd.Close()
		reading.Wait()
	})
}
