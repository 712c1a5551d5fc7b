package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"waldo/wire/wiretest"
)

// converse has one of each kind of call, and tells how many were complete.
func converse(ctx context.Context, client *Conn) (complete int, err error) {
	const n, frame = 250, 100
	steps := []func() error{
		func() error { return hello(ctx, client) },
		func() error {
			var got string
			err := client.Do(ctx, Request{Method: echoMethod, Params: "hi"}, &got)
			if err == nil && got != "hi" {
				err = fmt.Errorf("got %q", got)
			}
			return err
		},
		func() error {
			got, err := download(ctx, client, downParams{n, frame})
			if err == nil && !bytes.Equal(got, pattern(n)) {
				err = fmt.Errorf("%d bytes came down", len(got))
			}
			return err
		},
		func() error {
			got, err := upload(ctx, client, n, frame)
			if err == nil && got.Bytes != n {
				err = fmt.Errorf("%d bytes came up", got.Bytes)
			}
			return err
		},
		func() error {
			call, err := client.Open(Request{Method: mirrorMethod})
			if err != nil {
				return err
			}
			defer call.Close()
			if err := call.Send(ctx, 3, pattern(frame)); err != nil {
				return err
			}
			event, err := await(ctx, call, DataEvent)
			if err != nil {
				return err
			}
			if !bytes.Equal(event.Data, pattern(frame)) {
				return fmt.Errorf("%d bytes came back", len(event.Data))
			}
			call.Took(event)
			if err := call.End(nil); err != nil {
				return err
			}
			_, err = result[any](ctx, call)
			return err
		},
		func() error {
			err := client.Do(ctx, Request{Method: failMethod}, nil)
			if errors.Is(err, NotEmpty) {
				return nil
			}
			return err
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return complete, err
		}
		complete++
	}
	return complete, nil
}

// A conversation is cut after every single byte, of either direction: whatever was not complete ends in ErrCut, on
// both ends, and nothing is left.
func TestCutAtEveryByte(t *testing.T) {
	var most int
	run := func(t *testing.T, cut func(*wiretest.Faulty)) (complete int, read, written int64, err error) {
		a, b := wiretest.Pipe()
		faulty := wiretest.NewFaulty(a)
		cut(faulty)
		serving := methods(nil)
		server, err := Server(b, acceptAll, func(ctx context.Context, call *Call) error {
			err := serving(ctx, call)
			// The server's part of a short success.
			if call.Method() == upMethod && err != nil && !errors.Is(err, ErrCut) && !errors.Is(err, net.ErrClosed) {
				t.Errorf("the server's upload ended with %v", err)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		client, err := Client(faulty)
		if err != nil {
			t.Fatal(err)
		}
		complete, err = converse(t.Context(), client)
		read, written = faulty.Count()
		for _, c := range []*Conn{client, server} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if n := len(c.streams) + int(c.calls.Load()); n != 0 {
				t.Errorf("%d streams and calls are left", n)
			}
		}
		return complete, read, written, err
	}
	complete, read, written, err := run(t, func(*wiretest.Faulty) {})
	if err != nil {
		t.Fatal(err)
	}
	most = complete
	for _, direction := range []struct {
		name  string
		bytes int64
		cut   func(*wiretest.Faulty, int64)
	}{
		{"server to client", read, (*wiretest.Faulty).CutRead},
		{"client to server", written, (*wiretest.Faulty).CutWrite},
	} {
		t.Run(direction.name, func(t *testing.T) {
			reached := make([]int, most+1)
			for n := range direction.bytes {
				complete, _, _, err := run(t, func(f *wiretest.Faulty) { direction.cut(f, n) })
				reached[complete]++
				switch {
				case err == nil && direction.bytes-n > 3*yamuxHeader: // window updates may come after the last END
					t.Fatalf("cut after %d of %d bytes and nobody noticed", n, direction.bytes)
				case err != nil && !errors.Is(err, ErrCut):
					t.Fatalf("cut after %d bytes: call %d ended with %v", n, complete, err)
				}
			}
			for complete, times := range reached[:most] {
				if times == 0 {
					t.Errorf("no cut came in call %d", complete)
				}
			}
		})
	}
}

// What came before a cut counts, on every stream: of two calls one behind the other, the first is not lost if the
// second was answered.
func TestNothingThatCameIsLost(t *testing.T) {
	run := func(n int64) (read int64) {
		a, b := wiretest.Pipe()
		faulty := wiretest.NewFaulty(a)
		faulty.CutRead(n)
		client, server := serve(t, faulty, b, acceptAll, methods(nil))
		defer server.Close()
		defer client.Close()
		answer, err := client.Hello(Hello{})
		if err != nil {
			return 0
		}
		var calls sync.WaitGroup
		var second error
		calls.Go(func() {
			second = client.Do(t.Context(), Request{Method: echoMethod, Params: "x"}, nil)
		})
		_, first := answer(t.Context())
		calls.Wait()
		if second == nil && first != nil {
			t.Errorf("cut after %d bytes: HELLO got %v, the call behind it an answer", n, first)
		}
		read, _ = faulty.Count()
		return read
	}
	for n := range run(-1) {
		for range 5 {
			run(n)
		}
	}
}
