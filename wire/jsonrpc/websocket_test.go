package jsonrpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// echo answers every request with its params.
func echo(p func() *Peer) Handler {
	return handler(func(_ context.Context, r *Request) error {
		if !r.ID.IsZero() {
			return p().Reply(r.ID, r.Params)
		}
		return nil
	})
}

// server serves WebSockets and tells of each peer.
func server(t *testing.T, o Options, h func(p *Peer) Handler) (url string, peers <-chan *Peer) {
	t.Helper()
	made := make(chan *Peer, 10)
	ctx, cancel := context.WithCancel(context.Background())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		transport, err := Accept(w, r, o)
		if err != nil {
			return
		}
		p := NewPeer(transport)
		made <- p
		p.Serve(ctx, h(p)) //nolint:errcheck // the tests look at what the other end sees
	}))
	t.Cleanup(func() {
		cancel()
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s.URL, made
}

func echoServer(t *testing.T, o Options) (string, <-chan *Peer) {
	return server(t, o, func(p *Peer) Handler { return echo(func() *Peer { return p }) })
}

// raw is a client that writes frames of its own.
type raw struct {
	t  *testing.T
	c  net.Conn
	in *bufio.Reader
}

func dialRaw(t *testing.T, url string) *raw {
	t.Helper()
	address := strings.TrimPrefix(url, "http://")
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", address)
	r := &raw{t: t, c: c, in: bufio.NewReader(c)}
	answer, err := http.ReadResponse(r.in, nil)
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %v, %v", answer, err)
	}
	return r
}

// send writes a masked frame.
func (r *raw) send(first byte, payload string) {
	r.t.Helper()
	key := [4]byte{1, 2, 3, 4}
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	if _, err := r.c.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) text(payload string) { r.t.Helper(); r.send(final|opText, payload) }

// frame reads the next frame.
func (r *raw) frame() (first byte, payload []byte) {
	r.t.Helper()
	var h [2]byte
	if _, err := io.ReadFull(r.in, h[:]); err != nil {
		r.t.Fatalf("no frame: %v", err)
	}
	n := uint64(h[1])
	switch {
	case n&0x80 != 0:
		r.t.Fatal("a server's frame is masked")
	case n == 126:
		var b [2]byte
		io.ReadFull(r.in, b[:])
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case n == 127:
		var b [8]byte
		io.ReadFull(r.in, b[:])
		n = binary.BigEndian.Uint64(b[:])
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r.in, payload); err != nil {
		r.t.Fatalf("half a frame: %v", err)
	}
	return h[0], payload
}

// next reads the next message, which is one text frame.
func (r *raw) next() string {
	r.t.Helper()
	first, payload := r.frame()
	if first != final|opText {
		r.t.Fatalf("a frame that starts with %#02x: %q", first, payload)
	}
	return string(payload)
}

// Ids come back as they are, what is no message is answered, and the connection goes on after each.
func TestMalformed(t *testing.T) {
	url, _ := echoServer(t, Options{MaxMessage: 1 << 20})
	r := dialRaw(t, url)
	const bad = "-32600"
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	tests := map[string]struct {
		send string
		want string // the whole reply, or the id of an error
	}{
		"id 0":                    {`{"id":0,"method":"m","params":1}`, `{"id":0,"result":1}`},
		"id empty":                {`{"id":"","method":"m","params":1}`, `{"id":"","result":1}`},
		"id string":               {`{"id":"1","method":"m","params":1}`, `{"id":"1","result":1}`},
		"id negative":             {`{"id":-1,"method":"m","params":1}`, `{"id":-1,"result":1}`},
		"id over 2^53":            {`{"id":9007199254740993,"method":"m","params":1}`, `{"id":9007199254740993,"result":1}`},
		"id lowest":               {`{"id":-9223372036854775808,"method":"m"}`, `{"id":-9223372036854775808,"result":null}`},
		"id highest":              {`{"id":9223372036854775807,"method":"m"}`, `{"id":9223372036854775807,"result":null}`},
		"id escaped":              {`{"id":"\u0061\/é","method":"m"}`, `{"id":"\u0061\/é","result":null}`},
		"id long":                 {`{"id":"` + strings.Repeat("x", 5000) + `","method":"m"}`, `{"id":"` + strings.Repeat("x", 5000) + `","result":null}`},
		"version and unknown":     {` {"jsonrpc":9,"method":"m","id":7,"x":{"y":[]},"params":[ 1,2 ]}` + "\n", `{"id":7,"result":[ 1,2 ]}`},
		"key escaped":             {`{"\u0069d":7,"m\u0065thod":"m"}`, `{"id":7,"result":null}`},
		"trace":                   {`{"id":7,"method":"m","trace":{"traceparent":"x"}}`, `{"id":7,"result":null}`},
		"id 2^63":                 {`{"id":9223372036854775808,"method":"m"}`, "-1"},
		"id 1.0":                  {`{"id":1.0,"method":"m"}`, "-1"},
		"id 1e3":                  {`{"id":1e3,"method":"m"}`, "-1"},
		"id -0":                   {`{"id":-0,"method":"m"}`, `{"id":-0,"result":null}`},
		"id null":                 {`{"id":null,"method":"m"}`, "-1"},
		"id array":                {`{"id":[],"method":"m"}`, "-1"},
		"id object":               {`{"id":{"id":5},"method":"m"}`, "-1"},
		"id boolean":              {`{"id":true,"method":"m"}`, "-1"},
		"key of other case":       {`{"id":3,"Method":"m"}`, "3"},
		"id of other case":        {`{"ID":3}`, "-1"},
		"brace":                   {`{`, "-1"},
		"nothing":                 {``, "-1"},
		"blank":                   {` `, "-1"},
		"batch":                   {`[{"id":1,"method":"m"}]`, "-1"},
		"empty batch":             {`[]`, "-1"},
		"number":                  {`5`, "-1"},
		"null":                    {`null`, "-1"},
		"empty object":            {`{}`, "-1"},
		"only an id":              {`{"id":5}`, "5"},
		"method is a number":      {`{"id":5,"method":1}`, "5"},
		"trace is a string":       {`{"id":5,"method":"m","trace":"x"}`, "5"},
		"cut":                     {`{"id":5,"method":"m","params":{"a":`, "5"},
		"trailing":                {`{"id":5,"method":"m"} {}`, "5"},
		"trailing comma":          {`{"id":5,"method":"m",}`, "5"},
		"zero byte":               {"{\"id\":5,\"method\":\"m\"}\x00", "5"},
		"duplicate key":           {`{"id":5,"method":"m","method":"m"}`, "5"},
		"duplicate key, escaped":  {`{"id":5,"method":"m","params":{"a":1,"\u0061":2}}`, "5"},
		"duplicate key, deep":     {`{"id":5,"method":"m","params":[[{"a":1,"b":{},"a":2}]]}`, "5"},
		"duplicate id":            {`{"id":5,"id":6,"method":"m"}`, "-1"},
		"id after the fault":      {`{"params":{"a":1,"a":2},"method":"m","id":"late"}`, `"late"`},
		"id inside params":        {`{"params":{"id":9,"a":1,"a":2},"method":"m"}`, "-1"},
		"invalid UTF-8":           {"{\"id\":5,\"method\":\"m\",\"params\":\"\xff\"}", "5"},
		"overlong UTF-8":          {"{\"id\":5,\"method\":\"m\",\"params\":\"\xc0\xaf\"}", "5"},
		"surrogate in UTF-8":      {"{\"id\":5,\"method\":\"m\",\"params\":\"\xed\xa0\x80\"}", "5"},
		"invalid UTF-8 in key":    {"{\"id\":5,\"method\":\"m\",\"params\":{\"\xff\":1}}", "5"},
		"half a surrogate pair":   {`{"id":5,"method":"m","params":"\ud800"}`, "5"},
		"control character":       {"{\"id\":5,\"method\":\"m\",\"params\":\"\n\"}", "5"},
		"number of any size":      {`{"id":5,"method":"m","params":1e999}`, `{"id":5,"result":1e999}`},
		"trace null":              {`{"id":5,"method":"m","trace":null}`, `{"id":5,"result":null}`},
		"trace of another type":   {`{"id":5,"method":"m","trace":{"traceparent":5}}`, "5"},
		"deep as Codex allows":    {`{"id":5,"method":"m","params":` + strings.Repeat("[", 126) + strings.Repeat("]", 126) + `}`, `{"id":5,"result":` + strings.Repeat("[", 126) + strings.Repeat("]", 126) + `}`},
		"deeper":                  {`{"id":5,"method":"m","params":` + strings.Repeat("[", 127) + strings.Repeat("]", 127) + `}`, "5"},
		"number with a zero":      {`{"id":5,"method":"m","params":01}`, "5"},
		"deep":                    {`{"id":5,"method":"m","params":` + deep + `}`, "5"},
		"deep alone":              {deep, "-1"},
		"too many values":         {`{"id":5,"method":"m","params":[0` + strings.Repeat(",0", maxValues) + `]}`, "5"},
		"too long":                {`{"id":5,"method":"m","params":"` + strings.Repeat("x", 1<<20) + `"}`, "5"},
		"too long, nothing known": {strings.Repeat("x", 2<<20), "-1"},
		"too long, id last":       {`{"method":"m","params":"` + strings.Repeat("x", 1<<20) + `","id":5}`, "-1"},
		"answer too long":         {`{"id":5,"result":"` + strings.Repeat("x", 1<<20) + `"}`, "-1"},
		"answer that is cut":      {`{"id":5,"result":`, "-1"},
	}
	for name, test := range tests {
		for _, op := range []byte{opText, 0x2} { // text and binary
			r.send(final|op, test.send)
			got := r.next()
			if strings.HasPrefix(test.want, "{") {
				if got != test.want {
					t.Errorf("%s: the answer is %s, want %s", name, got, test.want)
				}
				continue
			}
			prefix := `{"id":` + test.want + `,"error":{"code":` + bad + `,"message":"failed to parse JSON-RPC message: `
			if !strings.HasPrefix(got, prefix) {
				t.Errorf("%s: the answer is %s, want %s…", name, got, prefix)
			}
			if !json.Valid([]byte(got)) {
				t.Errorf("%s: the answer is no JSON: %q", name, got)
			}
		}
	}
	// A notification is not answered: the next thing that comes is the answer to the request behind it.
	r.text(`{"method":"m","params":"notified"}`)
	r.text(`{"id":8,"method":"m"}`)
	if got, want := r.next(), `{"id":8,"result":null}`; got != want {
		t.Errorf("after a notification comes %s, want %s", got, want)
	}
}

// A message in fragments, with a ping between them, is one message.
func TestFragments(t *testing.T) {
	url, _ := echoServer(t, Options{})
	r := dialRaw(t, url)
	r.send(opText, `{"id":1,`)
	r.send(0, `"method":"m",`)
	r.send(final|opPing, "beat")
	r.send(final, `"params":2}`)
	if first, payload := r.frame(); first != final|0xA || string(payload) != "beat" {
		t.Errorf("the answer to a ping is %#02x %q", first, payload)
	}
	if got, want := r.next(), `{"id":1,"result":2}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What is larger than 1 MiB leaves in fragments, with pongs between them, and comes back whole.
func TestLargeReply(t *testing.T) {
	url, _ := echoServer(t, Options{})
	r := dialRaw(t, url)
	large := `"` + strings.Repeat("0123456789", 400<<10) + `"`
	r.text(`{"id":1,"method":"m","params":` + large + `}`)
	var whole []byte
	frames := 0
	for first := byte(0); first&final == 0; frames++ {
		var payload []byte
		first, payload = r.frame()
		if want := byte(opText); frames > 0 && first&0xf != 0 || frames == 0 && first != want {
			t.Fatalf("frame %d starts with %#02x", frames, first)
		}
		if len(payload) > fragment {
			t.Fatalf("frame %d has %d bytes", frames, len(payload))
		}
		whole = append(whole, payload...)
	}
	if want := `{"id":1,"result":` + large + `}`; string(whole) != want {
		t.Errorf("%d bytes came back, want %d that are the same", len(whole), len(want))
	}
	if frames < 16 {
		t.Errorf("there were %d frames", frames)
	}
}

// A peer that does not read for a while may send pings as it likes: it is not thrown out, and other requests are still
// read.
func TestPingsOfOneThatDoesNotRead(t *testing.T) {
	seen := make(chan string, 1)
	url, _ := server(t, Options{}, func(p *Peer) Handler {
		return handler(func(_ context.Context, r *Request) error {
			if r.ID.IsZero() {
				seen <- r.Method
				return nil
			}
			go p.Reply(r.ID, strings.Repeat("x", 16<<20)) //nolint:errcheck // the test looks at what comes
			return nil
		})
	})
	r := dialRaw(t, url)
	r.text(`{"id":1,"method":"large"}`)
	for range 5000 {
		r.send(final|opPing, strings.Repeat("p", 100))
	}
	r.text(`{"method":"behind"}`)
	if got := await(t, seen); got != "behind" {
		t.Errorf("got %q", got)
	}
	size, pongs := 0, 0
	for {
		first, payload := r.frame()
		if first&0xf == 0xA {
			pongs++
			continue
		}
		size += len(payload)
		if first&final != 0 {
			break
		}
	}
	if want := 16<<20 + len(`{"id":1,"result":""}`); size != want {
		t.Errorf("%d bytes came, want %d", size, want)
	}
	if pongs == 0 {
		t.Error("no pong came between the fragments")
	}
}

func TestGoodbye(t *testing.T) {
	t.Run("the server's", func(t *testing.T) {
		url, peers := echoServer(t, Options{})
		r := dialRaw(t, url)
		p := await(t, peers)
		p.Notify(t.Context(), "last", 1) //nolint:errcheck // it comes, below
		p.Close(errors.New("the session is elsewhere: " + strings.Repeat("é", 100)))
		if got, want := r.next(), `{"method":"last","params":1}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		first, payload := r.frame()
		if first != final|opClose || len(payload) > maxControl || !strings.HasPrefix(string(payload[2:]), "the session is elsewhere: éé") {
			t.Errorf("the good-bye is %#02x %q", first, payload)
		}
		r.send(final|opClose, string(payload[:2]))
		if rest, err := io.ReadAll(r.in); err != nil || len(rest) > 0 {
			t.Errorf("behind it come %q, %v", rest, err)
		}
		if err := p.Reply(IntegerID(1), 1); !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("a reply after the end: %v", err)
		}
	})
	t.Run("the client's", func(t *testing.T) {
		url, peers := echoServer(t, Options{})
		r := dialRaw(t, url)
		r.send(final|opClose, "\x03\xe8bye")
		if first, payload := r.frame(); first != final|opClose || string(payload) != "\x03\xe8bye" {
			t.Errorf("the answer is %#02x %q", first, payload)
		}
		await(t, await(t, peers).Done())
	})
	t.Run("a cut", func(t *testing.T) {
		url, peers := echoServer(t, Options{})
		r := dialRaw(t, url)
		r.c.Close()
		await(t, await(t, peers).Done())
	})
}

// Both ends of our own, and what a dialer is told.
func TestDial(t *testing.T) {
	url, peers := echoServer(t, Options{})
	transport, err := Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http"), DialOptions{Header: http.Header{"X-Test": {"1"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := NewPeer(transport)
	ended := serve(t, p, refuse)
	for _, size := range []int{0, 1, 125, 126, 4 << 10, 0xffff, 0x10000, 5 << 20} {
		want := bytes.Repeat([]byte{'<', 0xff, '>', '&'}, size/4+1)[:size]
		var got []byte
		if err := p.Call(t.Context(), "echo", want, &got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d come back, %v", size, len(got), err)
		}
	}
	await(t, peers).Close(nil)
	if err := await(t, ended); err != nil {
		t.Errorf("a good-bye ends Serve with %v", err)
	}
	if err := p.Call(t.Context(), "echo", nil, nil); !errors.Is(err, errEnded) {
		t.Errorf("a call after the end: %v", err)
	}

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "missing websocket bearer token", http.StatusUnauthorized)
	}))
	defer s.Close()
	_, err = Dial(t.Context(), s.URL, DialOptions{})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Status != 401 || !strings.Contains(err.Error(), "missing websocket bearer token") {
		t.Errorf("a refusal is %v", err)
	}
}

// What is not a WebSocket is told so.
func TestAcceptRefuses(t *testing.T) {
	url, _ := echoServer(t, Options{})
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d", answer.StatusCode)
	}
}
