package wire

import (
	"context"
	"net"
	"testing"
)

// connect joins a client and a server over loopback TCP.
func connect(tb testing.TB, handler Handler) *Conn {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	server, err := Server(accepted, func(context.Context, Hello) (Welcome, error) { return Welcome{}, nil }, handler)
	if err != nil {
		tb.Fatal(err)
	}
	client, err := Client(dialed)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { client.Close(); server.Close() })
	answer, err := client.Hello(Hello{})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := answer(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return client
}

func BenchmarkCall(b *testing.B) {
	client := connect(b, func(_ context.Context, call *Call) error { return call.End("pong") })
	for b.Loop() {
		var pong string
		if err := client.Do(b.Context(), Request{Method: "ping"}, &pong); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBulk(b *testing.B) {
	frame := make([]byte, HeaderSize+MaxData)
	PutDataHeader(frame, 1, MaxData)
	client := connect(b, func(ctx context.Context, call *Call) error {
		var params struct{ Frames int }
		if err := call.Params(&params); err != nil {
			return err
		}
		for range params.Frames {
			if err := call.SendFramed(ctx, frame); err != nil {
				return err
			}
		}
		return nil
	})
	b.SetBytes(MaxData)
	call, err := client.Open(Request{Method: "bulk", Params: map[string]int{"Frames": b.N}})
	if err != nil {
		b.Fatal(err)
	}
	defer call.Close()
	b.ResetTimer()
	for {
		event, err := call.Receive(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if event.Kind == EndEvent {
			return
		}
		if event.Kind == DataEvent {
			call.Took(event)
		}
	}
}
