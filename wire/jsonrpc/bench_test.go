package jsonrpc

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// pair is two peers that speak through a WebSocket on loopback.
func pair(b *testing.B, server func(p *Peer) Handler, client Handler) (theirs, ours *Peer) {
	b.Helper()
	made := make(chan *Peer, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		transport, err := Accept(w, r, Options{})
		if err != nil {
			return
		}
		p := NewPeer(transport)
		made <- p
		p.Serve(context.Background(), server(p)) //nolint:errcheck // it ends with the benchmark
	}))
	transport, err := Dial(b.Context(), s.URL, DialOptions{})
	if err != nil {
		b.Fatal(err)
	}
	ours = NewPeer(transport)
	var serving sync.WaitGroup
	serving.Go(func() { ours.Serve(context.Background(), client) }) //nolint:errcheck // it ends with the benchmark
	b.Cleanup(func() {
		ours.Close(nil)
		serving.Wait()
		s.Close()
	})
	return <-made, ours
}

func BenchmarkCall(b *testing.B) {
	_, p := pair(b, func(p *Peer) Handler { return echo(func() *Peer { return p }) }, refuse)
	for b.Loop() {
		if err := p.Call(b.Context(), "echo", map[string]int{"a": 1}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNotify sends output as a door does: base64 in notifications.
func BenchmarkNotify(b *testing.B) {
	payload := chunk(strings.Repeat("x", 32<<10))
	last := make(chan struct{})
	theirs, _ := pair(b, func(*Peer) Handler { return refuse }, handler(func(_ context.Context, r *Request) error {
		if r.Method == "last" {
			close(last)
		}
		return nil
	}))
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if err := theirs.Notify(b.Context(), "process/output", payload); err != nil {
			b.Fatal(err)
		}
	}
	if err := theirs.Notify(b.Context(), "last", nil); err != nil {
		b.Fatal(err)
	}
	<-last
}

// BenchmarkCallBesideOutput makes small calls while fifty senders never pause.
func BenchmarkCallBesideOutput(b *testing.B) {
	payload := chunk(strings.Repeat("x", 32<<10))
	theirs, p := pair(b, func(p *Peer) Handler { return echo(func() *Peer { return p }) }, refuse)
	ctx, cancel := context.WithCancel(context.Background())
	var senders sync.WaitGroup
	for range 50 {
		senders.Go(func() {
			for theirs.Notify(ctx, "process/output", payload) == nil {
			}
		})
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := p.Call(b.Context(), "echo", 1, nil); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	cancel()
	senders.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

func BenchmarkParse(b *testing.B) {
	message := []byte(`{"id":1,"method":"process/write","params":{"processId":"p","chunk":"` + strings.Repeat("QUJD", 256<<10) + `","writeId":"w"}}`)
	b.SetBytes(int64(len(message)))
	for b.Loop() {
		if _, err := parse(message); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	params := json.RawMessage(`{"processId":"p","chunk":"` + strings.Repeat("QUJD", 256<<10) + `","writeId":"w"}`)
	b.SetBytes(int64(len(params)))
	for b.Loop() {
		var into struct {
			ProcessID string `json:"processId"`
			Chunk     []byte `json:"chunk"`
			WriteID   string `json:"writeId"`
		}
		if err := Decode(params, &into); err != nil {
			b.Fatal(err)
		}
	}
}
