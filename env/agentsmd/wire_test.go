package agentsmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"waldo/env"
	"waldo/env/envtest/fake"
	"waldo/env/rpc"
	"waldo/pathuri"
	"waldo/wire/wiretest"
)

// onlyFiles is a machine that has files and nothing else.
type onlyFiles struct {
	*fake.Machine
	env.Runner
}

func (onlyFiles) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

func (onlyFiles) Close() error { return nil }

// TestTrips: over a wire too discovery takes two round trips, however deep the directory.
func TestTrips(t *testing.T) {
	for _, depth := range []int{1, 12, 64} {
		t.Run(fmt.Sprintf("%d deep", depth), func(t *testing.T) {
			wiretest.Bubble(t, func(t *testing.T) { testTrips(t, depth) })
		})
	}
}

func testTrips(t *testing.T, depth int) {
	const trip = 50 * time.Millisecond
	machine, dir := fake.New(pathuri.Posix), ""
	for i := range depth {
		dir += fmt.Sprintf("/d%d", i)
		machine.Tree(map[string]string{dir + "/AGENTS.md": fmt.Sprintf("%0400d", i)})
		if i == 0 {
			machine.Tree(map[string]string{dir + "/.git/": ""})
		}
	}
	server, err := rpc.NewServer(t.Context(), onlyFiles{Machine: machine}, rpc.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	client, err := rpc.Dial(t.Context(), rpc.ClientOptions{Dial: func(context.Context) (net.Conn, error) {
		ours, near := wiretest.Pipe()
		far, theirs := wiretest.Pipe()
		tasks.Go(func() { delay(far, near, trip/2) })
		tasks.Go(func() { delay(near, far, trip/2) })
		tasks.Go(func() {
			server.Serve(context.Background(), theirs, rpc.Origin{}, func(string) error { return nil }) //nolint:errcheck // it ends with the test
		})
		return ours, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		began := time.Now()
		p, err := Discover(t.Context(), client, options(t, dir))
		if err != nil || len(p.Docs) != depth {
			t.Fatalf("%d files, %v", len(p.Docs), err)
		}
		if took := time.Since(began); took < 2*trip || took > 2*trip+trip/10 {
			t.Errorf("it took %v, that is %.1f round trips", took, took.Seconds()/trip.Seconds())
		}
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	server.Close()
	tasks.Wait()
}

// delay has all that comes from one end arrive that much later at the other, in both its bytes and its end.
func delay(to, from net.Conn, late time.Duration) {
	type arrival struct {
		data []byte
		due  time.Time
	}
	arrivals := make(chan arrival, 1<<16)
	var delivery sync.WaitGroup
	delivery.Go(func() {
		for a := range arrivals {
			time.Sleep(time.Until(a.due))
			if _, err := to.Write(a.data); err != nil {
				break
			}
		}
		to.Close()
		from.Close()
	})
	buffer := make([]byte, 1<<20)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			arrivals <- arrival{append([]byte(nil), buffer[:n]...), time.Now().Add(late)}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
				panic(err.Error()) // the pipe has no other end
			}
			break
		}
	}
	close(arrivals)
	delivery.Wait()
}
