package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"waldo/wire/wiretest"
)

// servePipe is serve over a pipe in memory. What it returns of the pipe are the faults of each end.
func servePipe(tb testing.TB, accept func(context.Context, Hello) (Welcome, error), handler Handler) (client, server *Conn, clientEnd, serverEnd *wiretest.Faulty) {
	tb.Helper()
	a, b := wiretest.Pipe()
	clientEnd, serverEnd = wiretest.NewFaulty(a), wiretest.NewFaulty(b)
	client, server = serve(tb, clientEnd, serverEnd, accept, handler)
	return client, server, clientEnd, serverEnd
}

func TestSessionSettings(t *testing.T) {
	c := sessionConfig(3 << 20)
	if c.EnableKeepAlive || c.ConnectionWriteTimeout != 5*time.Minute || c.StreamOpenTimeout != 0 ||
		c.StreamCloseTimeout != 30*time.Second || c.MaxStreamWindowSize != 3<<20 || c.AcceptBacklog != 256 {
		t.Errorf("%+v", c)
	}
	for _, test := range []struct {
		roundTrip time.Duration
		want      uint32
	}{
		{0, 1 << 20},
		{time.Millisecond, 1 << 20},
		{10 * time.Millisecond, 2_500_000},
		{50 * time.Millisecond, 12_500_000},
		{time.Second, 16 << 20},
	} {
		if got := windowFor(test.roundTrip); got != test.want {
			t.Errorf("window for %v: %d, want %d", test.roundTrip, got, test.want)
		}
	}
	dialed, accepted := tcpPair(t)
	client, server := join(t, dialed, accepted, methods(nil))
	for _, c := range []*Conn{client, server} {
		if c.window < minWindow || c.window > maxWindow {
			t.Errorf("window of %d", c.window)
		}
	}
}

// A header and its body leave in one write.
func TestOneWriteAFrame(t *testing.T) {
	a, b := wiretest.Pipe()
	counting := &countingConn{Conn: a}
	client, server := join(t, counting, b, methods(nil))
	for client.trip.Load() == 0 || server.trip.Load() == 0 { // the pings that look how far the peer is
		runtime.Gosched()
	}
	before := counting.writes
	for range 10 {
		if err := client.Do(t.Context(), Request{Method: echoMethod, Params: "x"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := counting.writes - before; n != 10 {
		t.Errorf("10 calls made %d writes", n)
	}
}

// countingConn counts the writes of yamux's one sending goroutine, which a call waits for.
type countingConn struct {
	net.Conn
	writes int
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.writes++
	return c.Conn.Write(b)
}

func TestVersions(t *testing.T) {
	for _, test := range []struct {
		client, server [2]int
		want           int
		failure        string
	}{
		{[2]int{1, 1}, [2]int{1, 1}, 1, ""},
		{[2]int{1, 3}, [2]int{2, 5}, 3, ""},
		{[2]int{2, 5}, [2]int{1, 3}, 3, ""},
		{[2]int{1, 9}, [2]int{4, 5}, 5, ""},
		{[2]int{1, 2}, [2]int{3, 4}, 0, "unsupported: the client speaks protocol versions 1 to 2, the server versions 3 to 4; upgrade the client"},
		{[2]int{3, 4}, [2]int{1, 1}, 0, "unsupported: the client speaks protocol versions 3 to 4, the server version 1; upgrade the server"},
		{[2]int{0, 0}, [2]int{1, 1}, 0, "unsupported: the client speaks protocol version 0, the server version 1; upgrade the client"},
		{[2]int{2, 1}, [2]int{1, 2}, 0, "invalid: protocol versions 2 to 1"},
	} {
		got, err := negotiate(test.client, test.server)
		if got != test.want || (err == nil) != (test.failure == "") || err != nil && err.Error() != test.failure {
			t.Errorf("%v and %v: %d, %v", test.client, test.server, got, err)
		}
	}

	// A client of tomorrow.
	client, _, _, _ := servePipe(t, acceptAll, methods(nil))
	err := client.Do(t.Context(), Request{Method: helloMethod, Params: Hello{MinVersion: MaxVersion + 1, MaxVersion: MaxVersion + 7}}, nil)
	if !errors.Is(err, Unsupported) || !strings.HasSuffix(err.Error(), "upgrade the server") {
		t.Errorf("the server says %v", err)
	}
	// A server that picks what the client does not speak.
	for version, side := range map[int]string{MinVersion - 1: "upgrade the server", MaxVersion + 1: "upgrade the client"} {
		clientEnd, serverEnd := wiretest.Pipe()
		client, err := Client(clientEnd)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			answerHello(serverEnd, fmt.Sprintf(`{"result":{"version":%d}}`, version))
		}()
		if err := hello(t.Context(), client); !errors.Is(err, Unsupported) || !strings.HasSuffix(err.Error(), side) {
			t.Errorf("the client says %v", err)
		}
		client.Close()
		<-answered
	}
}

// answerHello answers the first call on a connection by hand, and reads on.
func answerHello(c net.Conn, payload string) {
	defer c.Close()
	heard := make(chan struct{})
	var m demux
	m.tell = func(stream uint32, f frame) {
		if f.kind == kindEnd {
			close(heard)
		}
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(&m, c)
	}()
	<-heard
	b, _ := appendMessage(append([]byte(nil), emptyHead...), kindEnd, []byte(payload))
	header := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, byte(len(b))} // data on stream 1
	c.Write(append(header, b...))
	<-read
}

func TestHello(t *testing.T) {
	var got Hello
	client, _, _, _ := servePipe(t, func(_ context.Context, h Hello) (Welcome, error) {
		got = h
		return Welcome{Instance: "i", Server: "s", Resumed: true, Lease: 5, Capabilities: []string{"c"}, Environment: json.RawMessage(`{"os":"plan9"}`)}, nil
	}, methods(nil))
	sent := Hello{Token: "secret", Client: "test 1", Session: "abc", Lease: 7, Expect: "i"}
	answer, err := client.Hello(sent)
	if err != nil {
		t.Fatal(err)
	}
	welcome, err := answer(t.Context())
	if err != nil || welcome.Version != 1 || welcome.Instance != "i" || !welcome.Resumed || welcome.Lease != 5 || string(welcome.Environment) != `{"os":"plan9"}` {
		t.Errorf("%+v, %v", welcome, err)
	}
	sent.MinVersion, sent.MaxVersion = MinVersion, MaxVersion
	if got != sent {
		t.Errorf("the server got %+v", got)
	}
	if err := hello(t.Context(), client); !errors.Is(err, Invalid) {
		t.Errorf("a second HELLO: %v", err)
	}
	if err := client.Do(t.Context(), Request{Method: echoMethod}, nil); err != nil {
		t.Errorf("after a second HELLO: %v", err)
	}
}

// Calls sent behind HELLO wait for it, and so do the streams and bytes beyond what is let in before.
func TestBeforeHello(t *testing.T) {
	wiretest.Bubble(t, func(t *testing.T) {
		proceed := make(chan struct{})
		accepted := false
		serving := methods(nil)
		client, server, _, serverEnd := servePipe(t, func(context.Context, Hello) (Welcome, error) {
			<-proceed
			accepted = true
			return Welcome{}, nil
		}, func(ctx context.Context, call *Call) error {
			if !accepted {
				t.Error("a call was served before HELLO was accepted")
			}
			return serving(ctx, call)
		})
		answer, err := client.Hello(Hello{})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				var got int
				if err := client.Do(t.Context(), Request{Method: echoMethod, Params: i}, &got); err != nil || got != i {
					t.Errorf("%d, %v", got, err)
				}
			})
		}
		synctest.Wait()
		server.mu.Lock()
		if n := len(server.streams); n != maxEarly {
			t.Errorf("%d streams were accepted before HELLO was", n)
		}
		server.mu.Unlock()
		all.Go(func() {
			if got, err := upload(t.Context(), client, 2<<20, MaxData); err != nil || got.Bytes != 2<<20 {
				t.Errorf("%+v, %v", got, err)
			}
		})
		synctest.Wait()
		if n, _ := serverEnd.Count(); n != unauthenticatedBytes {
			t.Errorf("%d bytes were read before HELLO was accepted", n)
		}
		close(proceed)
		if _, err := answer(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
}

func TestNoHello(t *testing.T) {
	for name, prepare := range map[string]func(client *Conn, clientEnd *wiretest.Faulty){
		"silent":     func(*Conn, *wiretest.Faulty) {},
		"only calls": func(client *Conn, _ *wiretest.Faulty) { client.Open(Request{Method: echoMethod}) },
		"only bytes": func(client *Conn, clientEnd *wiretest.Faulty) {
			call, err := client.Open(Request{Method: upMethod})
			if err != nil {
				panic(err)
			}
			// Up to exactly what may be sent, since yamux would wait for the rest of a frame with a mutex held, which
			// synctest does not count as waiting, then more.
			const headers = yamuxHeader + HeaderSize
			for {
				synctest.Wait()
				_, written := clientEnd.Count()
				n := unauthenticatedBytes - int(written) - headers
				if n > farData {
					n = farData / 2
				}
				if call.Send(context.Background(), 0, make([]byte, max(n, 1))) != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			wiretest.Bubble(t, func(t *testing.T) {
				begin := time.Now()
				client, server, clientEnd, serverEnd := servePipe(t, acceptAll, methods(nil))
				go prepare(client, clientEnd)
				<-server.Done()
				if took := time.Since(begin); took != helloWithin || !errors.Is(server.Err(), Unauthenticated) {
					t.Errorf("%v after %v", server.Err(), took)
				}
				if n, _ := serverEnd.Count(); n > unauthenticatedBytes {
					t.Errorf("%d bytes were read", n)
				}
				<-client.Done()
				if !errors.Is(client.Err(), ErrCut) {
					t.Errorf("the client: %v", client.Err())
				}
			})
		})
	}
}

func TestRefusal(t *testing.T) {
	wiretest.Bubble(t, func(t *testing.T) {
		proceed := make(chan struct{})
		client, server, _, _ := servePipe(t, func(context.Context, Hello) (Welcome, error) {
			<-proceed
			return Welcome{}, fmt.Errorf("%w: no such token", Unauthenticated)
		}, func(context.Context, *Call) error {
			t.Error("a call was served")
			return nil
		})
		answer, err := client.Hello(Hello{})
		if err != nil {
			t.Fatal(err)
		}
		var calls []*Call
		for range 5 {
			call, err := client.Open(Request{Method: "x"})
			if err != nil {
				t.Fatal(err)
			}
			defer call.Close()
			calls = append(calls, call)
		}
		begin := time.Now()
		close(proceed)
		check := func(err error) {
			t.Helper()
			if !errors.Is(err, Unauthenticated) || err.Error() != "unauthenticated: no such token" {
				t.Error(err)
			}
		}
		_, err = answer(t.Context())
		check(err)
		for _, call := range calls {
			_, err := result[any](t.Context(), call)
			check(err)
		}
		check(client.Do(t.Context(), Request{Method: "late"}, nil))
		<-client.Done() // the server gives the client a moment to read all this
		if took := time.Since(begin); took != time.Second || !errors.Is(server.Err(), Unauthenticated) {
			t.Errorf("%v after %v", server.Err(), took)
		}
	})
}

func TestLiveness(t *testing.T) {
	wiretest.Bubble(t, func(t *testing.T) {
		client, server, clientEnd, _ := servePipe(t, acceptAll, methods(nil))
		if err := hello(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		wait := func(d time.Duration) {
			synctest.Wait()
			<-time.After(d)
			synctest.Wait()
		}
		synctest.Wait() // the pings that look how far the peer is
		// Nothing is said for a while, then an end asks, and is answered.
		_, before := clientEnd.Count()
		wait(pingAfter - time.Millisecond)
		if _, n := clientEnd.Count(); n != before {
			t.Errorf("%d bytes were written too early", n-before)
		}
		wait(2 * time.Millisecond)
		// A ping, or the answer to the other end's, or both.
		if _, n := clientEnd.Count(); n == before || n > before+2*yamuxHeader || client.Silence() > 2*time.Millisecond {
			t.Errorf("%d bytes were written, silence is %v", n-before, client.Silence())
		}
		// That keeps it alive.
		wait(time.Hour)
		if client.Err() != nil || server.Err() != nil {
			t.Fatal(client.Err(), server.Err())
		}
		if client.Silence() > pingAfter {
			t.Errorf("silence of %v", client.Silence())
		}
		// A ping that is asked for ends the silence.
		wait(time.Second)
		client.Ping()
		synctest.Wait()
		if client.Silence() != 0 || !client.LastReceived().Equal(time.Now()) {
			t.Errorf("silence of %v after a ping", client.Silence())
		}

		// The network drops all: both ends notice by themselves.
		call := open(t, client, waitMethod)
		if _, err := await(t.Context(), call, ReplyEvent); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begin := time.Now()
		clientEnd.Stall(true)
		_, err := call.Receive(t.Context())
		if took := time.Since(begin); !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), "no byte for 45s") || took > deadAfter {
			t.Errorf("%v after %v", err, took)
		}
		<-server.Done()
		if took := time.Since(begin); !errors.Is(server.Err(), ErrCut) || took > deadAfter {
			t.Errorf("the server: %v after %v", server.Err(), took)
		}
	})
}

// A slow link full of data is no dead one: what comes counts, whatever it is.
func TestBusyLinkIsAlive(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	proxy := wiretest.NewProxy(t, l.Addr().String())
	proxy.SetRate(1 << 20)
	proxy.SetDelay(time.Millisecond)
	dialed, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client, server := join(t, dialed, accepted, methods(nil))
	stop := make(chan struct{})
	var pinging sync.WaitGroup
	for _, c := range []*Conn{client, server} {
		pinging.Go(func() {
			for {
				c.Ping()
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	got, err := download(t.Context(), client, downParams{1 << 20, MaxData})
	if err != nil || len(got) != 1<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if sent, err := upload(t.Context(), client, 1<<19, MaxData); err != nil || sent.Bytes != 1<<19 {
		t.Errorf("%+v, %v", sent, err)
	}
	close(stop)
	pinging.Wait()
	proxy.Cut()
	<-client.Done()
	<-server.Done()
}

// The peer stops reading. Close, from several goroutines, frees everyone who waits.
func TestCloseWhileBlocked(t *testing.T) {
	eachTransport(t, func(t *testing.T, clientEnd, serverEnd net.Conn) {
		// The server's end of the network is never read from here on.
		stalled := wiretest.NewFaulty(serverEnd)
		client, server := serve(t, clientEnd, stalled, acceptAll, methods(nil))
		if err := hello(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		stalled.Stall(true)
		var blocked sync.WaitGroup
		failed := func(what string, err error) {
			if !errors.Is(err, ErrCut) && !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
		}
		reading := open(t, client, waitMethod)
		blocked.Go(func() {
			_, err := reading.Receive(context.Background())
			failed("receive", err)
		})
		var sent atomic.Int64
		for range 20 { // more than any network here buffers
			blocked.Go(func() {
				call, err := client.Open(Request{Method: upMethod})
				for err == nil {
					err = call.Send(context.Background(), 0, make([]byte, MaxData))
					sent.Add(MaxData)
				}
				failed("send", err)
			})
		}
		for range 300 { // more than may be opened without an answer
			blocked.Go(func() {
				call, err := client.Open(Request{Method: echoMethod})
				if err == nil {
					_, err = call.Receive(context.Background())
				}
				failed("open", err)
			})
		}
		// Until nothing moves any more.
		for before := int64(-1); sent.Load() != before; {
			before = sent.Load()
			<-time.After(50 * time.Millisecond)
		}
		begin := time.Now()
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() {
				if err := client.Close(); err != nil {
					t.Error(err)
				}
			})
			closing.Go(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closing.Wait()
		blocked.Wait()
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("closing took %v", took)
		}
		if n := len(client.streams) + len(server.streams); n != 0 {
			t.Errorf("%d streams are left", n)
		}
		_, err := client.Open(Request{Method: echoMethod})
		failed("open after Close", err)
	})
}

// Close does not wait for ever for a handler that does not listen.
func TestCloseBound(t *testing.T) {
	wiretest.Bubble(t, func(t *testing.T) {
		deaf := make(chan struct{})
		client, server, _, _ := servePipe(t, acceptAll, func(ctx context.Context, call *Call) error {
			call.Reply(nil)
			<-deaf
			return nil
		})
		if err := hello(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		call := open(t, client, "x")
		if _, err := await(t.Context(), call, ReplyEvent); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := server.Close(); !errors.Is(err, Deadline) || time.Since(begin) != closeWithin {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		close(deaf)
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The cause of a close is what its calls show, on this end.
func TestCloseWith(t *testing.T) {
	causes := make(chan error, 1)
	client, server := pipe(t, methods(causes))
	call := open(t, client, waitMethod)
	if _, err := await(t.Context(), call, ReplyEvent); err != nil {
		t.Fatal(err)
	}
	server.CloseWith(Fenced)
	if err := <-causes; !errors.Is(err, Fenced) || !errors.Is(server.Err(), Fenced) {
		t.Errorf("the handler was canceled with %v", err)
	}
	if _, err := call.Receive(t.Context()); !errors.Is(err, ErrCut) {
		t.Errorf("the client's call: %v", err)
	}
	<-client.Done()
	if err := client.Do(t.Context(), Request{Method: echoMethod}, nil); !errors.Is(err, ErrCut) {
		t.Errorf("a call on a lost connection: %v", err)
	}
}
