package wire

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// The benchmarks come in pairs: a thing, and what bare yamux makes of the same bytes in writes of the same size. The
// machine decides both, so the ratio is what counts.

func BenchmarkCall(b *testing.B) {
	dialed, accepted := tcpPair(b)
	client, _ := join(b, dialed, accepted, func(_ context.Context, call *Call) error { return call.End("pong") })
	b.ReportAllocs()
	latencies(b, func() error {
		var pong string
		return client.Do(b.Context(), Request{Method: "ping"}, &pong)
	})
}

func BenchmarkBareCall(b *testing.B) {
	calling, serving := bare(b)
	client, server := bareStream(b, calling, serving)
	go io.Copy(server, server)
	message := make([]byte, 64)
	b.ReportAllocs()
	latencies(b, func() error { return bareEcho(client, message) })
}

func BenchmarkBulk(b *testing.B) {
	dialed, accepted := tcpPair(b)
	client, _ := join(b, dialed, accepted, pour)
	b.SetBytes(MaxData)
	b.ReportAllocs()
	call, err := client.Open(Request{Method: "pour", Params: b.N})
	if err != nil {
		b.Fatal(err)
	}
	defer call.Close()
	b.ResetTimer()
	if _, err := await(b.Context(), call, EndEvent); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkBareBulk(b *testing.B) {
	calling, serving := bare(b)
	client, server := bareStream(b, calling, serving)
	b.SetBytes(MaxData)
	b.ReportAllocs()
	go func() {
		frame := make([]byte, HeaderSize+MaxData)
		for range b.N {
			if _, err := server.Write(frame); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, HeaderSize+MaxData)
	for range b.N {
		if _, err := io.ReadFull(client, buffer); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEcho is a keystroke that comes back, beside a bulk stream on the same connection.
func BenchmarkEcho(b *testing.B) {
	dialed, accepted := tcpPair(b)
	serving := methods(nil)
	client, _ := join(b, dialed, accepted, func(ctx context.Context, call *Call) error {
		if call.Method() == "pour" {
			return pour(ctx, call)
		}
		return serving(ctx, call)
	})
	bulk, err := client.Open(Request{Method: "pour", Params: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	var poured int64
	go func() {
		defer close(done)
		for {
			event, err := bulk.Receive(b.Context())
			if err != nil {
				return
			}
			poured += int64(len(event.Data))
			bulk.Took(event)
		}
	}()
	defer func() {
		bulk.Close()
		<-done
		b.ReportMetric(float64(poured)/b.Elapsed().Seconds()/1e6, "bulk-MB/s")
	}()
	echo, err := client.Open(Request{Method: mirrorMethod})
	if err != nil {
		b.Fatal(err)
	}
	defer echo.Close()
	if _, err := await(b.Context(), echo, ReplyEvent); err != nil {
		b.Fatal(err)
	}
	key := []byte("x")
	latencies(b, func() error {
		if err := echo.Send(b.Context(), 3, key); err != nil {
			return err
		}
		event, err := await(b.Context(), echo, DataEvent)
		echo.Took(event)
		return err
	})
}

func BenchmarkBareEcho(b *testing.B) {
	calling, serving := bare(b)
	bulk, pouring := bareStream(b, calling, serving)
	client, server := bareStream(b, calling, serving)
	go io.Copy(server, server)
	go func() {
		frame := make([]byte, HeaderSize+MaxData)
		for {
			if _, err := pouring.Write(frame); err != nil {
				return
			}
		}
	}()
	done := make(chan struct{})
	var poured int64
	go func() {
		defer close(done)
		buffer := make([]byte, HeaderSize+MaxData)
		for {
			n, err := bulk.Read(buffer)
			if err != nil {
				return
			}
			poured += int64(n)
		}
	}()
	key := make([]byte, HeaderSize+1)
	latencies(b, func() error { return bareEcho(client, key) })
	calling.Close()
	<-done
	b.ReportMetric(float64(poured)/b.Elapsed().Seconds()/1e6, "bulk-MB/s")
}

// pour sends as many frames as it is asked for.
func pour(ctx context.Context, call *Call) error {
	var frames int
	if err := call.Params(&frames); err != nil {
		return err
	}
	frame := make([]byte, HeaderSize+MaxData)
	PutDataHeader(frame, 1, MaxData)
	for range frames {
		if err := call.SendFramed(ctx, frame); err != nil {
			return err
		}
	}
	return nil
}

// latencies measures each run, and reports the median and the slowest of a hundred beside the mean.
func latencies(b *testing.B, run func() error) {
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		if err := run(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

func bareEcho(c *yamux.Stream, message []byte) error {
	if _, err := c.Write(message); err != nil {
		return err
	}
	_, err := io.ReadFull(c, message)
	return err
}

// bare joins two yamux sessions over loopback TCP, with the settings of this package.
func bare(b *testing.B) (calling, serving *yamux.Session) {
	dialed, accepted := tcpPair(b)
	tune(dialed)
	tune(accepted)
	serving, err := yamux.Server(accepted, sessionConfig(minWindow))
	if err != nil {
		b.Fatal(err)
	}
	if calling, err = yamux.Client(dialed, sessionConfig(minWindow)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { calling.Close(); serving.Close() })
	return calling, serving
}

func bareStream(b *testing.B, calling, serving *yamux.Session) (client, server *yamux.Stream) {
	client, err := calling.OpenStream()
	if err != nil {
		b.Fatal(err)
	}
	if server, err = serving.AcceptStream(); err != nil {
		b.Fatal(err)
	}
	return client, server
}
