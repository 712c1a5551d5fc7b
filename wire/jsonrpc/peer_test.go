package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// fakeTransport is a transport in memory whose writes wait to be let go.
type fakeTransport struct {
	in     chan string
	out    chan []string // a batch that Write was called with
	closed chan struct{}
	once   sync.Once
	reason string
}

func newFake() *fakeTransport {
	return &fakeTransport{in: make(chan string, 10_000), out: make(chan []string), closed: make(chan struct{})}
}

func (f *fakeTransport) Read() ([]byte, error) {
	select {
	case s, ok := <-f.in:
		if !ok {
			return nil, io.EOF
		}
		return []byte(s), nil
	case <-f.closed:
		return nil, errors.New("closed")
	}
}

func (f *fakeTransport) Write(messages ...[]byte) error {
	var batch []string
	for _, m := range messages {
		batch = append(batch, string(m))
	}
	select {
	case f.out <- batch:
		return nil
	case <-f.closed:
		return errors.New("closed")
	}
}

func (f *fakeTransport) Close(reason string) error {
	f.once.Do(func() {
		f.reason = reason
		close(f.closed)
	})
	return nil
}

// Small answers pass what waits, the rest keeps its order, and who notifies waits for room.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		p := NewPeer(f)
		serve(t, p, refuse)
		p.Reply(IntegerID(0), "first") // the writer hangs on this one
		synctest.Wait()

		large := strings.Repeat("x", 100<<10)
		notified := make(chan int, 10)
		go func() {
			for i := range 5 {
				if err := p.Notify(t.Context(), fmt.Sprintf("n%d", i), large); err != nil {
					t.Error(err)
				}
				notified <- i
			}
		}()
		synctest.Wait()
		if n := len(notified); n != 2 {
			t.Errorf("%d notifications of 100 KiB found room in %d bytes", n, bulkBytes)
		}
		replied := make(chan struct{})
		go func() {
			p.Reply(IntegerID(1), large) // waits behind them
			close(replied)
		}()
		synctest.Wait()
		p.ReplyError(IntegerID(2), errors.New("small"))
		p.Reply(IntegerID(3), "small")

		var got []string
		for len(got) < 9 {
			for _, m := range <-f.out {
				got = append(got, m[:min(16, len(m))])
			}
			synctest.Wait()
		}
		<-replied
		want := []string{`{"id":0,"result"`, `{"id":2,"error":`, `{"id":3,"result"`, `{"method":"n0","`, `{"method":"n1","`, `{"method":"n2","`}
		for i, w := range want {
			if got[i] != w {
				t.Errorf("message %d is %s, want %s", i, got[i], w)
			}
		}
		at := func(prefix string) int {
			for i, m := range got {
				if strings.HasPrefix(m, prefix) {
					return i
				}
			}
			t.Fatalf("%s is not among %q", prefix, got)
			return -1
		}
		if at(`{"method":"n3"`) > at(`{"method":"n4"`) {
			t.Errorf("order is lost: %q", got)
		}
		at(`{"id":1,"result"`)
	})
}

// Urgent messages without end do not keep the others from being sent.
func TestNoStarvation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		p := NewPeer(f)
		serve(t, p, refuse)
		p.Reply(IntegerID(0), 0)
		synctest.Wait()
		for i := range 1000 {
			p.Reply(IntegerID(int64(i)), strings.Repeat("x", 1000))
		}
		if err := p.Notify(t.Context(), "n", nil); err != nil {
			t.Fatal(err)
		}
		<-f.out
		batch := <-f.out
		if got := batch[len(batch)-1]; got != `{"method":"n","params":null}` {
			t.Errorf("the second batch ends with %.40s…", got)
		}
	})
}

// Waiting for room ends with the context, and with the connection.
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		p := NewPeer(f)
		ended := serve(t, p, refuse)
		for range 2 {
			p.Notify(t.Context(), "n", strings.Repeat("x", bulkBytes))
			synctest.Wait() // the first is being written, the second fills the queue
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		results := make(chan error, 1)
		go func() { results <- p.Notify(ctx, "n", 1) }()
		synctest.Wait()
		why := errors.New("not needed any more")
		cancel(why)
		if err := <-results; !errors.Is(err, why) {
			t.Errorf("error is %v", err)
		}
		called := make(chan error, 1)
		go func() { results <- p.Notify(t.Context(), "n", 1) }()
		go func() { called <- p.Call(t.Context(), "m", nil, nil) }()
		synctest.Wait()
		p.Close(why)
		for _, c := range []chan error{results, called} {
			if err := <-c; !errors.Is(err, errEnded) || !errors.Is(err, why) {
				t.Errorf("error is %v", err)
			}
		}
		// Nobody reads: the transport is closed after a second.
		if err := <-ended; !errors.Is(err, why) {
			t.Errorf("Serve returns %v", err)
		}
		if f.reason != why.Error() {
			t.Errorf("the other end is told %q", f.reason)
		}
		if err := p.Reply(IntegerID(1), 1); !errors.Is(err, errEnded) {
			t.Errorf("error is %v", err)
		}
	})
}

// What was queued is sent before a good-bye.
func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		p := NewPeer(f)
		ended := serve(t, p, refuse)
		const n = 500
		for i := range n {
			if err := p.Reply(IntegerID(int64(i)), i); err != nil {
				t.Fatal(err)
			}
		}
		p.Close(errors.New("enough"))
		seen := 0
		for seen < n {
			seen += len(<-f.out)
		}
		if err := <-ended; err == nil || err.Error() != "enough" {
			t.Errorf("Serve returns %v", err)
		}
	})
}

func TestServeEnds(t *testing.T) {
	t.Run("context", func(t *testing.T) {
		f := newFake()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("shutting down")
		cancel(why)
		if err := NewPeer(f).Serve(ctx, refuse); !errors.Is(err, why) || f.reason != why.Error() {
			t.Errorf("%v, %q", err, f.reason)
		}
	})
	t.Run("good-bye", func(t *testing.T) {
		f := newFake()
		close(f.in)
		if err := NewPeer(f).Serve(t.Context(), refuse); err != nil {
			t.Errorf("%v", err)
		}
	})
	t.Run("handler", func(t *testing.T) {
		f := newFake()
		f.in <- `{"method":"nobody knows it"}`
		why := errors.New("unknown notification")
		var of context.Context
		err := NewPeer(f).Serve(t.Context(), handler(func(ctx context.Context, _ *Request) error { of = ctx; return why }))
		if !errors.Is(err, why) || f.reason != why.Error() || !errors.Is(context.Cause(of), why) {
			t.Errorf("%v, %q, %v", err, f.reason, context.Cause(of))
		}
	})
	t.Run("answer to nothing", func(t *testing.T) {
		for _, answer := range []string{`{"id":1,"result":1}`, `{"id":"x","error":{"code":1,"message":"y"}}`, `{"id":-1,"result":null}`} {
			f := newFake()
			f.in <- answer
			if err := NewPeer(f).Serve(t.Context(), refuse); err == nil || !strings.Contains(err.Error(), "which no call has") {
				t.Errorf("%s: %v", answer, err)
			}
		}
	})
}

func TestCall(t *testing.T) {
	f := newFake()
	p := NewPeer(f)
	ended := serve(t, p, refuse)
	type result struct {
		A int `json:"a"`
	}
	tests := []struct {
		answer string
		want   result
		err    string
	}{
		{answer: `{"id":1,"result":{"a":7,"b":8}}`, want: result{7}},
		{answer: `{"id":2,"error":{"code":-32004,"message":"gone","data":{"k":1}}}`, err: "gone (code -32004)"},
		{answer: `{"id":3,"result":{}}`, err: `result of m: missing field "a"`},
	}
	for _, test := range tests {
		go func() {
			<-f.out
			f.in <- test.answer
		}()
		var got result
		err := p.Call(t.Context(), "m", nil, &got)
		if got != test.want || test.err != "" && (err == nil || err.Error() != test.err) || test.err == "" && err != nil {
			t.Errorf("%s: %+v, %v", test.answer, got, err)
		}
	}
	// An answer that comes too late is no fault.
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.out
		cancel()
	}()
	if err := p.Call(ctx, "m", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}
	f.in <- `{"id":4,"result":1}`
	go func() {
		<-f.out
		f.in <- `{"id":5,"result":1}`
	}()
	if err := p.Call(t.Context(), "m", nil, nil); err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		t.Errorf("the connection has ended: %v", err)
	default:
	}
}

// A result is Codex's, member by member, whatever makes it.
func TestEncode(t *testing.T) {
	data := json.RawMessage(`{"k":1}`)
	tests := map[string]struct {
		got  func() ([]byte, error)
		want string
	}{
		"result":       {func() ([]byte, error) { return appendReply(nil, IntegerID(1), map[string]string{"a": "<&>"}) }, `{"id":1,"result":{"a":"<&>"}}`},
		"nil":          {func() ([]byte, error) { return appendReply(nil, ID{`"x"`}, nil) }, `{"id":"x","result":null}`},
		"appender":     {func() ([]byte, error) { return appendReply(nil, IntegerID(1), chunk("\xff<&>")) }, `{"id":1,"result":{"chunk":"/zwmPg=="}}`},
		"raw":          {func() ([]byte, error) { return appendReply(nil, IntegerID(1), data) }, `{"id":1,"result":{"k":1}}`},
		"raw, lines":   {func() ([]byte, error) { return appendReply(nil, IntegerID(1), json.RawMessage("{\n}")) }, `{"id":1,"result":{}}`},
		"raw, empty":   {func() ([]byte, error) { return appendReply(nil, IntegerID(1), json.RawMessage(nil)) }, `{"id":1,"result":null}`},
		"error":        {func() ([]byte, error) { return appendError(nil, IntegerID(1), Errorf(-1, "a\n%q", "b")), nil }, `{"id":1,"error":{"code":-1,"message":"a\n\"b\""}}`},
		"error, data":  {func() ([]byte, error) { return appendError(nil, noID, &Error{Code: 5, Data: data}), nil }, `{"id":-1,"error":{"code":5,"message":"","data":{"k":1}}}`},
		"notification": {func() ([]byte, error) { return appendRequest(nil, ID{}, "a/b", []int{1}) }, `{"method":"a/b","params":[1]}`},
		"request":      {func() ([]byte, error) { return appendRequest(nil, IntegerID(2), "a/b", nil) }, `{"id":2,"method":"a/b","params":null}`},
	}
	for name, test := range tests {
		if got, err := test.got(); err != nil || string(got) != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
	f := newFake()
	p := NewPeer(f)
	serve(t, p, refuse)
	if err := p.Reply(IntegerID(1), make(chan int)); err != nil {
		t.Error(err)
	}
	if got := (await(t, f.out))[0]; !strings.HasPrefix(got, `{"id":1,"error":{"code":-32603,"message":"encode chan int: `) {
		t.Errorf("what cannot be encoded is answered with %s", got)
	}
}

type chunk string

func (c chunk) AppendJSON(b []byte) []byte {
	return append(AppendBase64(append(b, `{"chunk":`...), []byte(c)), '}')
}

// A large payload is encoded into the message and nowhere else.
func TestEncodeAllocations(t *testing.T) {
	payload := chunk(strings.Repeat("x", 3<<20))
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			if _, err := appendReply(nil, IntegerID(1), payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	if got, most := result.AllocedBytesPerOp(), int64(4<<20+100<<10); got > most && !raceEnabled {
		t.Errorf("%d bytes are allocated for 4 MiB of base64, at most %d are needed", got, most)
	}
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"aé", 2, "a"}, {"😀", 3, ""}, {"", 0, ""}} {
		if got := cut(test.text, test.n); got != test.want {
			t.Errorf("cut(%q, %d) = %q, want %q", test.text, test.n, got, test.want)
		}
	}
}
