package wire

import (
	"io"
	"net"
	"testing"

	"github.com/hashicorp/yamux"
)

// BenchmarkBareCall is what a call is measured against: a small message there and back on one yamux stream.
func BenchmarkBareCall(b *testing.B) {
	client, server := bare(b)
	go io.Copy(server, server)
	message := make([]byte, 64)
	for b.Loop() {
		if _, err := client.Write(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, message); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBareBulk is what bulk is measured against: the same bytes, in writes of the same size, on a yamux stream.
func BenchmarkBareBulk(b *testing.B) {
	client, server := bare(b)
	b.SetBytes(MaxData)
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

// bare joins two yamux streams over loopback TCP.
func bare(b *testing.B) (client, server *yamux.Stream) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.MaxStreamWindowSize = minWindow
	serving, err := yamux.Server(accepted, config)
	if err != nil {
		b.Fatal(err)
	}
	calling, err := yamux.Client(dialed, config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { calling.Close(); serving.Close() })
	if client, err = calling.OpenStream(); err != nil {
		b.Fatal(err)
	}
	if server, err = serving.AcceptStream(); err != nil {
		b.Fatal(err)
	}
	return client, server
}
