//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"

	"github.com/hashicorp/yamux"
)

// The bare peer is this program again, in the role of a server that does nothing beyond yamux over loopback TCP:
// the limit of what a protocol on it can reach.
const (
	roleVariable = "WALDO_BENCH_ROLE"
	bareRole     = "bare"
)

// What the first byte of a stream asks the bare peer for.
const (
	bareBulk = 'b' // as many bytes as the next eight say
	bareCall = 'c' // answer each message after a stat of the file that it names
)

const (
	bareMessage = 64       // bytes of a small call
	bareWrite   = 32 << 10 // bytes of a bulk frame
	bareWindow  = 1 << 20
)

func bareConfig() *yamux.Config {
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.MaxStreamWindowSize = bareWindow
	config.LogOutput = io.Discard
	return config
}

// serveBare is the role.
func serveBare() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	c, err := l.Accept()
	if err != nil {
		return err
	}
	session, err := yamux.Server(c, bareConfig())
	if err != nil {
		return err
	}
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return nil // the other end has gone
		}
		go func() {
			defer stream.Close()
			serveBareStream(stream) //nolint:errcheck // the other end sees what is missing
		}()
	}
}

func serveBareStream(stream *yamux.Stream) error {
	first := make([]byte, 1)
	if _, err := io.ReadFull(stream, first); err != nil {
		return err
	}
	if first[0] == bareBulk {
		size := make([]byte, 8)
		if _, err := io.ReadFull(stream, size); err != nil {
			return err
		}
		frame := make([]byte, bareWrite)
		for left := int64(binary.BigEndian.Uint64(size)); left > 0; left -= bareWrite {
			if _, err := stream.Write(frame[:min(left, bareWrite)]); err != nil {
				return err
			}
		}
		return nil
	}
	message := make([]byte, bareMessage)
	for {
		if _, err := io.ReadFull(stream, message); err != nil {
			return err
		}
		if _, err := os.Stat("/etc/hostname"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if _, err := stream.Write(message); err != nil {
			return err
		}
	}
}

// bare is a connection to the bare peer.
type bare struct {
	*program
	session *yamux.Session
}

func (b *bench) startBare(ctx context.Context) (*bare, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), roleVariable+"="+bareRole)
	p, err := b.start(ctx, c)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", p.first)
	if err != nil {
		p.stop()
		return nil, err
	}
	session, err := yamux.Client(conn, bareConfig())
	if err != nil {
		p.stop()
		return nil, err
	}
	return &bare{p, session}, nil
}

// stop ends the connection and the peer.
func (b *bare) stop() {
	b.session.Close() //nolint:errcheck // the peer goes too
	b.program.stop()
}

// bulk reads that many bytes from the peer.
func (b *bare) bulk(size int64) error {
	stream, err := b.session.OpenStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	if _, err := stream.Write(binary.BigEndian.AppendUint64([]byte{bareBulk}, uint64(size))); err != nil {
		return err
	}
	got, err := drain(stream)
	if err == nil && got != size {
		err = fmt.Errorf("%d bytes instead of %d", got, size)
	}
	return err
}

// calls opens a stream for calls; call makes one.
func (b *bare) calls() (call func() error, err error) {
	stream, err := b.session.OpenStream()
	if err != nil {
		return nil, err
	}
	if _, err := stream.Write([]byte{bareCall}); err != nil {
		return nil, err
	}
	message := make([]byte, bareMessage)
	return func() error {
		if _, err := stream.Write(message); err != nil {
			return err
		}
		_, err := io.ReadFull(stream, message)
		return err
	}, nil
}
