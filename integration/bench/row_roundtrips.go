//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"time"

	"waldo/env"
	"waldo/wire/listen"
)

const (
	oneWay = 25 * time.Millisecond
	trip   = 2 * oneWay
	// The proxy that stands for the network accepts next door, so TCP's own handshake costs nothing there; on a real
	// network it is a round trip. It is added to every figure that is in trips.
	handshake = 1
)

// firstByteArgv writes one byte.
var firstByteArgv = []string{"printf", "x"}

// measureRoundTrips measures what a slow network makes of a short visit. Its unit is the round trip.
func measureRoundTrips(ctx context.Context, b *bench) ([]line, error) {
	n := b.sized(15, 3)
	raw, err := b.slowEcho(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("raw: %w", err)
	}
	codex, err := b.slowCodex(ctx, n)
	if err != nil {
		b.leaveOut(ctx, err)
	}
	var lines []line
	var failed []error
	for _, way := range []struct {
		scheme, what string
		must         float64
	}{{"tcp", "token", 3}, {"tls", "token and pin", 4}} {
		visit, command, err := b.slowWaldo(ctx, way.scheme, n)
		if visit != 0 {
			l := line{
				What: fmt.Sprintf("dial to a command's first byte, %s with %s", way.scheme, way.what), Unit: trips,
				Waldo: visit, Raw: raw, RawIs: "dial, one byte back", Must: bound{limit: way.must},
			}
			if way.scheme == "tcp" {
				l.Codex = codex
			}
			lines = append(lines, l)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", way.scheme, err))
			continue
		}
		lines = append(lines, line{
			What: fmt.Sprintf("app-server run of it, %s, start to end", way.scheme), Unit: seconds, Waldo: command,
		})
	}
	return lines, errors.Join(failed...)
}

// slow starts a proxy before an address of this machine; stop ends it.
func (b *bench) slow(ctx context.Context, hostPort string) (slowed string, stop func(), err error) {
	path, err := b.build(ctx, "integration/delayproxy")
	if err != nil {
		return "", nil, err
	}
	p, err := b.start(ctx, exec.Command(path, "-to", hostPort, "-delay", oneWay.String()))
	if err != nil {
		return "", nil, err
	}
	return p.first, p.stop, nil
}

// visits is the median of n visits, in round trips.
func visits(ctx context.Context, n int, visit func(context.Context) (time.Duration, error)) (float64, error) {
	var all []float64
	for range n {
		took, err := visit(ctx)
		if err != nil {
			return 0, err
		}
		all = append(all, handshake+float64(took)/float64(trip))
	}
	return median(all), nil
}

var pinOf = regexp.MustCompile(`pin (sha256:\S+)`)

// slowWaldo measures visits from Go, in round trips, and the run command, in seconds.
func (b *bench) slowWaldo(ctx context.Context, scheme string, n int) (visit, command float64, err error) {
	server, err := b.startWaldo(ctx, scheme+"://127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	defer server.stop()
	address, err := url.Parse(server.url)
	if err != nil {
		return 0, 0, err
	}
	slowed, stop, err := b.slow(ctx, address.Host)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	options := listen.DialOptions{TokenFile: server.tokenFile()}
	flags := []string{"run", "-e", scheme + "://" + slowed, "--token-file", server.tokenFile()}
	if scheme == "tls" {
		if err := settle(ctx); err != nil { // its log may come after its URL
			return 0, 0, err
		}
		pin := pinOf.FindStringSubmatch(server.stderr.String())
		if pin == nil {
			return 0, 0, errors.New("exec-server told no pin")
		}
		options.TLSPin = pin[1]
		flags = append(flags, "--tls-pin", pin[1])
	}
	visit, err = visits(ctx, n, func(ctx context.Context) (time.Duration, error) {
		return visitWaldo(ctx, scheme+"://"+slowed, options)
	})
	if err != nil {
		return 0, 0, err
	}
	app, err := b.build(ctx, "cmd/app-server")
	if err != nil {
		return visit, 0, err
	}
	home, err := os.MkdirTemp(b.dir, "client-")
	if err != nil {
		return visit, 0, err
	}
	runs, err := series(ctx, n, func(ctx context.Context) error {
		c := exec.CommandContext(ctx, app, append(append(flags, "--"), firstByteArgv...)...)
		c.Env = append(os.Environ(), "WALDO_HOME="+home)
		got, err := output(c)
		if err == nil && got != 1 {
			err = fmt.Errorf("%d bytes came instead of 1", got)
		}
		return err
	})
	return visit, median(runs), err
}

// visitWaldo is the time from dialing to the first byte of a command's output.
func visitWaldo(ctx context.Context, address string, options listen.DialOptions) (took time.Duration, err error) {
	began := time.Now()
	client, err := dialWaldo(ctx, address, options)
	if err != nil {
		return 0, err
	}
	defer client.Close()             //nolint:errcheck // returns nil
	defer client.Goodbye(ctx, false) //nolint:errcheck // the command has ended
	p, err := client.Start(ctx, env.Command{Argv: firstByteArgv})
	if err != nil {
		return 0, err
	}
	err = finish(ctx, p, func([]byte) { took = time.Since(began) })
	if err == nil && took == 0 {
		err = errors.New("no byte came")
	}
	return took, err
}

// slowCodex measures visits to Codex's exec-server, in round trips; 0 if it is not measured.
func (b *bench) slowCodex(ctx context.Context, n int) (float64, error) {
	peer := b.startCodex(ctx)
	if peer == nil {
		return 0, nil
	}
	defer peer.stop()
	address, err := url.Parse(peer.url)
	if err != nil {
		return 0, err
	}
	slowed, stop, err := b.slow(ctx, address.Host)
	if err != nil {
		return 0, err
	}
	defer stop()
	return visits(ctx, n, func(ctx context.Context) (took time.Duration, err error) {
		began := time.Now()
		client, err := dialCodex(ctx, "ws://"+slowed)
		if err != nil {
			return 0, err
		}
		defer client.close()
		first := make(chan time.Duration, 1)
		_, answer, err := client.begin(ctx, false, func([]byte) { first <- time.Since(began) }, firstByteArgv...)
		if err != nil {
			return 0, err
		}
		if err := client.wait(ctx, answer, nil); err != nil {
			return 0, err
		}
		select {
		case took = <-first:
			return took, nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
}

// slowEcho is the least there can be: to dial and to have one byte back.
func (b *bench) slowEcho(ctx context.Context, n int) (float64, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			read(c, func(p []byte) { c.Write(p) }) //nolint:errcheck // the other end sees what is missing
			c.Close()
		}
	}()
	slowed, stop, err := b.slow(ctx, l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer stop()
	return visits(ctx, n, func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		c, err := new(net.Dialer).DialContext(ctx, "tcp", slowed)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		if _, err := c.Write([]byte{'x'}); err != nil {
			return 0, err
		}
		_, err = c.Read(make([]byte, 1))
		return time.Since(began), err
	})
}
