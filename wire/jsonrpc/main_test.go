package jsonrpc

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// handler is a function as a Handler.
type handler func(ctx context.Context, r *Request) error

func (h handler) Handle(ctx context.Context, r *Request) error { return h(ctx, r) }

// refuse is for ends that are asked nothing.
var refuse = handler(func(context.Context, *Request) error { return nil })

// serve serves a peer until the test ends, or it ends by itself. The channel gives Serve's result.
func serve(t *testing.T, p *Peer, h Handler) <-chan error {
	t.Helper()
	ended := make(chan error, 2)
	over := make(chan struct{})
	go func() {
		defer close(over)
		ended <- p.Serve(context.Background(), h)
	}()
	t.Cleanup(func() {
		p.Close(nil)
		<-over
	})
	return ended
}

// await waits for what must come.
func await[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatal("what must come has not come")
		panic("unreachable")
	}
}
