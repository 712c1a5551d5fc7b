package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"waldo/wire/wiretest"
)

func TestCalls(t *testing.T) {
	eachTransport(t, func(t *testing.T, clientEnd, serverEnd net.Conn) {
		canceled := make(chan error, 2)
		client, _ := join(t, clientEnd, serverEnd, methods(canceled))
		ctx := t.Context()

		t.Run("no body", func(t *testing.T) {
			var got string
			if err := client.Do(ctx, Request{Method: echoMethod, Params: "<&>\x00é"}, &got); err != nil || got != "<&>\x00é" {
				t.Errorf("got %q, %v", got, err)
			}
			if err := client.Do(ctx, Request{Method: echoMethod}, nil); err != nil {
				t.Error(err)
			}
			if err := client.Do(ctx, Request{Method: failMethod}, nil); !errors.Is(err, NotEmpty) || err.Error() != "not empty: as asked" {
				t.Errorf("fail: %v", err)
			}
			if err := client.Do(ctx, Request{Method: "nothing"}, nil); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("unknown method: %v", err)
			}
			long := strings.Repeat("0123456789", 10_000) // in several frames
			if err := client.Do(ctx, Request{Method: "nothing", Params: long}, nil); !errors.Is(err, Unsupported) {
				t.Errorf("long parameters: %v", err)
			}
		})
		t.Run("bodies", func(t *testing.T) {
			for _, frame := range []int{1 << 20, 4096, 700} {
				n := min(1<<20, frame*300)
				got, err := download(ctx, client, downParams{n, frame})
				if err != nil || !bytes.Equal(got, pattern(n)) {
					t.Errorf("download in frames of %d: %d of %d bytes, %v", frame, len(got), n, err)
				}
				sent, err := upload(ctx, client, n, frame)
				if err != nil || sent.Bytes != int64(n) {
					t.Errorf("upload in frames of %d: %+v, %v", frame, sent, err)
				}
			}
		})
		t.Run("there and back", func(t *testing.T) {
			call := open(t, client, mirrorMethod)
			if event, err := await(ctx, call, ReplyEvent); err != nil || string(event.Data) != `"ready"` {
				t.Fatalf("reply %q, %v", event.Data, err)
			}
			for channel := range Channel(16) {
				sent := pattern(int(channel) * 100)
				if err := call.Send(ctx, channel, append(sent, '!')); err != nil {
					t.Fatal(err)
				}
				event, err := await(ctx, call, DataEvent)
				if err != nil || event.Channel != channel || !bytes.Equal(event.Data, append(sent, '!')) {
					t.Fatalf("channel %d: %d bytes on channel %d, %v", channel, len(event.Data), event.Channel, err)
				}
				call.Took(event)
			}
			if err := call.Control(map[string]int{"resize": 7}); err != nil {
				t.Fatal(err)
			}
			if event, err := await(ctx, call, ControlEvent); err != nil || string(event.Data) != `{"resize":7}` {
				t.Errorf("control %q, %v", event.Data, err)
			}
			if err := call.End(nil); err != nil {
				t.Fatal(err)
			}
			if _, err := result[any](ctx, call); err != nil {
				t.Error(err)
			}
			if _, err := call.Receive(ctx); err != io.EOF {
				t.Errorf("after the END: %v", err)
			}
			if err := call.Send(ctx, 0, []byte("x")); !errors.Is(err, ErrEnded) {
				t.Errorf("send after END: %v", err)
			}
		})
		t.Run("cancel", func(t *testing.T) {
			cause := errors.New("changed my mind")
			ctx, cancel := context.WithCancelCause(ctx)
			call := open(t, client, waitMethod)
			if _, err := await(ctx, call, ReplyEvent); err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			go func() {
				_, err := call.Receive(ctx)
				call.Close()
				done <- err
			}()
			cancel(cause)
			if err := <-done; err != cause {
				t.Errorf("receive: %v", err)
			}
			if err := <-canceled; !errors.Is(err, ErrCut) {
				t.Errorf("the handler was canceled with %v", err)
			}
			if err := client.Do(ctx, Request{Method: waitMethod}, nil); err != cause {
				t.Errorf("do: %v", err)
			}
		})
		t.Run("at once", func(t *testing.T) {
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					var got int
					if err := client.Do(ctx, Request{Method: echoMethod, Params: i}, &got); err != nil || got != i {
						t.Errorf("%d came back as %d, %v", i, got, err)
					}
					if body, err := download(ctx, client, downParams{100 * i, 1000}); err != nil || !bytes.Equal(body, pattern(100*i)) {
						t.Errorf("%d of %d bytes came, %v", len(body), 100*i, err)
					}
				})
			}
			all.Wait()
		})
	})
}

func TestThousandCalls(t *testing.T) {
	var arrived sync.WaitGroup
	arrived.Add(1000)
	client, _ := pipe(t, func(ctx context.Context, call *Call) error {
		arrived.Done()
		arrived.Wait() // none ends before all are there
		return call.End(json.RawMessage(call.RawParams()))
	})
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			var got int
			if err := client.Do(t.Context(), Request{Method: "x", Params: i}, &got); err != nil || got != i {
				t.Errorf("%d came back as %d, %v", i, got, err)
			}
		})
	}
	all.Wait()
}

func TestCallLimit(t *testing.T) {
	client, server := pipe(t, methods(nil))
	server.calls.Add(maxCalls - 1)
	call := open(t, client, mirrorMethod)
	if _, err := await(t.Context(), call, ReplyEvent); err != nil {
		t.Fatal(err)
	}
	// One over the limit is an error for that one, and the connection goes on.
	if err := client.Do(t.Context(), Request{Method: echoMethod}, nil); !errors.Is(err, Limit) {
		t.Errorf("over the limit: %v", err)
	}
	if _, err := upload(t.Context(), client, 2<<20, 4096); !errors.Is(err, Limit) && !errors.Is(err, ErrEnded) {
		t.Errorf("an upload over the limit: %v", err)
	}
	if err := call.End(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := result[any](t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), Request{Method: echoMethod}, nil); err != nil {
		t.Errorf("below the limit again: %v", err)
	}
}

func TestStreamReuse(t *testing.T) {
	client, _ := pipe(t, methods(nil))
	for range 10 {
		if err := client.Do(t.Context(), Request{Method: echoMethod}, nil); err != nil {
			t.Fatal(err)
		}
		if err := client.Do(t.Context(), Request{Method: failMethod}, nil); !errors.Is(err, NotEmpty) {
			t.Fatal(err)
		}
		if _, err := download(t.Context(), client, downParams{100_000, 1000}); err != nil {
			t.Fatal(err)
		}
		if _, err := upload(t.Context(), client, 100_000, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if n := client.session.NumStreams(); n != 1 {
		t.Errorf("calls one after another use %d streams", n)
	}
}

func TestIdleStreamDies(t *testing.T) {
	client, _ := pipe(t, methods(nil))
	if err := client.Do(t.Context(), Request{Method: echoMethod}, nil); err != nil {
		t.Fatal(err)
	}
	client.mu.Lock()
	idle := client.idle[0]
	client.mu.Unlock()
	idle.cut(errIdle)
	if err := client.Do(t.Context(), Request{Method: echoMethod}, nil); err != nil {
		t.Errorf("the call after it: %v", err)
	}
	if err := idle.begin(newCall(idle)); err == nil {
		t.Error("a call began on a dead stream")
	}
}

func TestIdleStreamsAreFew(t *testing.T) {
	const many = maxIdleStreams + 20
	var arrived sync.WaitGroup
	arrived.Add(many)
	client, _ := pipe(t, func(ctx context.Context, call *Call) error {
		arrived.Done()
		arrived.Wait()
		return nil
	})
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if err := client.Do(t.Context(), Request{Method: "x"}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	client.mu.Lock()
	defer client.mu.Unlock()
	if n := len(client.idle); n != maxIdleStreams {
		t.Errorf("%d idle streams are kept", n)
	}
}

// A handler may return while its client still sends: the client gets the error, not a blocked Send.
func TestEarlyReturn(t *testing.T) {
	for _, returned := range []error{nil, Permission} {
		client, server := pipe(t, func(ctx context.Context, call *Call) error { return returned })
		for range 3 {
			call := open(t, client, "x")
			sending := make(chan error)
			go func() {
				for {
					if err := call.Send(t.Context(), 0, make([]byte, MaxData)); err != nil {
						sending <- err
						return
					}
				}
			}()
			if err := <-sending; !errors.Is(err, ErrEnded) {
				t.Errorf("send: %v", err)
			}
			_, err := result[any](t.Context(), call)
			if !errors.Is(err, returned) {
				t.Errorf("the call ended with %v", err)
			}
			call.Close()
		}
		if n := client.session.NumStreams(); n != 1 {
			t.Errorf("%d streams", n)
		}
		if n := server.calls.Load(); n != 0 {
			t.Errorf("%d calls are in flight", n)
		}
	}
}

func TestCredit(t *testing.T) {
	received := make(chan Event, 1)
	proceed := make(chan struct{})
	client, _ := pipe(t, func(ctx context.Context, call *Call) error {
		event, err := await(ctx, call, ControlEvent) // it takes DATA on the way
		if err != nil {
			return err
		}
		received <- event
		<-proceed
		for {
			event, err := call.Receive(ctx)
			if err != nil {
				return err
			}
			switch event.Kind {
			case ControlEvent:
				received <- event
			case DataEvent:
				call.Took(event)
			case EndEvent:
				return nil
			}
		}
	})
	call := open(t, client, "x")
	if err := call.Control("begin"); err != nil {
		t.Fatal(err)
	}
	<-received

	// Nobody takes: Send stops at the credit.
	ctx, cancel := context.WithCancelCause(t.Context())
	blocked := make(chan error)
	frame := make([]byte, MaxData)
	go func() {
		for {
			if err := call.Send(ctx, 0, frame); err != nil {
				blocked <- err
				return
			}
		}
	}()
	const least = initialCredit - 2*(HeaderSize+MaxData) // a frame may be long or short
	for call.Sent() < least {
		if _, ok, err := call.TryReceive(); ok || err != nil {
			t.Fatalf("received something: %v", err)
		}
	}
	stop := errors.New("stop")
	cancel(stop)
	if err := <-blocked; err != stop {
		t.Fatal(err)
	}
	if call.Sent() > initialCredit {
		t.Fatalf("sent %d bytes with a credit of %d", call.Sent(), initialCredit)
	}
	if call.Taken() != 0 {
		t.Fatalf("%d bytes were taken", call.Taken())
	}

	// CONTROL passes while DATA is blocked, and so does what it says.
	if err := call.Control("signal"); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	if event := <-received; string(event.Data) != `"signal"` {
		t.Fatalf("control %q", event.Data)
	}
	// The receiver has taken: there is credit again, and the acks say so.
	for call.Taken() < least/2 {
		if event, err := call.Receive(t.Context()); err != nil || event.Kind != AckEvent {
			t.Fatalf("%+v, %v", event, err)
		}
	}
	if err := call.Send(t.Context(), 0, frame); err != nil {
		t.Fatal(err)
	}
	if err := call.End(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := result[any](t.Context(), call); err != nil {
		t.Fatal(err)
	}
}

// END passes while DATA is blocked, and frees whoever sends.
func TestEndWhileBlocked(t *testing.T) {
	finish := make(chan struct{})
	client, _ := pipe(t, func(ctx context.Context, call *Call) error {
		<-finish
		return call.End("done")
	})
	call := open(t, client, "x")
	blocked := make(chan error)
	go func() {
		for {
			if err := call.Send(t.Context(), 0, make([]byte, 1000)); err != nil {
				blocked <- err
				return
			}
		}
	}()
	for call.Sent()+1000+HeaderSize < initialCredit-initialCredit/1000*HeaderSize-2000 {
		call.TryReceive()
	}
	close(finish)
	if err := <-blocked; !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	if got, err := result[string](t.Context(), call); got != "done" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A client that has ended its side acknowledges nothing: an answer beyond the credit is an error, not a hang.
func TestAnswerBeyondCredit(t *testing.T) {
	client, _ := pipe(t, methods(nil))
	request := Request{Method: downMethod, Params: downParams{2 << 20, 4096}}
	if err := client.Do(t.Context(), request, nil); err == nil || !strings.Contains(err.Error(), "never will be") {
		t.Error(err)
	}
	request.Params = downParams{100_000, 4096}
	if err := client.Do(t.Context(), request, nil); err != nil {
		t.Error(err)
	}
}

func TestFlush(t *testing.T) {
	client, _ := pipe(t, func(ctx context.Context, call *Call) error {
		if err := call.Send(ctx, 0, []byte("12345")); err != nil {
			return err
		}
		_, err := await(ctx, call, AckEvent)
		if err == nil && call.Taken() != 5 {
			err = fmt.Errorf("taken %d", call.Taken())
		}
		return err
	})
	call := open(t, client, "x")
	event, err := await(t.Context(), call, DataEvent)
	if err != nil {
		t.Fatal(err)
	}
	call.Took(event)
	call.Flush()
	call.Flush()
	if _, err := result[any](t.Context(), call); err != nil {
		t.Error(err)
	}

	// What was taken is told soon, even if it is little and nothing follows.
	call = open(t, client, "x")
	if event, err = await(t.Context(), call, DataEvent); err != nil {
		t.Fatal(err)
	}
	call.Took(event)
	if _, err := result[any](t.Context(), call); err != nil {
		t.Error(err)
	}
}

func TestReplyComesFirst(t *testing.T) {
	again := make(chan error, 1)
	client, _ := pipe(t, func(ctx context.Context, call *Call) error {
		if err := call.Send(ctx, 0, []byte("x")); err != nil {
			return err
		}
		again <- call.Reply("late")
		return nil
	})
	call := open(t, client, "x")
	for _, want := range []EventKind{ReplyEvent, DataEvent, EndEvent} {
		if event, err := call.Receive(t.Context()); err != nil || event.Kind != want {
			t.Fatalf("%+v, %v, want kind %d", event, err, want)
		}
	}
	if err := <-again; !errors.Is(err, Internal) {
		t.Errorf("a reply after DATA: %v", err)
	}
}

func TestEnds(t *testing.T) {
	client, _ := pipe(t, func(ctx context.Context, call *Call) error {
		switch call.Method() {
		case "fits": // exactly, with the frame's own {"result":""}
			return call.End(strings.Repeat("x", maxMessage-len(resultPrefix)-len(`""}`)))
		case "too large":
			return call.End(strings.Repeat("x", maxMessage-len(resultPrefix)-len(`""}`)+1))
		case "not JSON":
			return call.End(func() {})
		case "twice":
			if err := call.End(1); err != nil {
				return err
			}
			if err := call.End(2); err != nil {
				return err
			}
			if err := call.Control("late"); !errors.Is(err, ErrEnded) {
				t.Errorf("control after END: %v", err)
			}
			if err := call.Send(ctx, 0, []byte("x")); !errors.Is(err, ErrEnded) {
				t.Errorf("send after END: %v", err)
			}
			return errors.New("too late to matter")
		case "long error":
			return &Error{Code: SandboxDenied, Also: []Code{Permission}, Path: Text(strings.Repeat("\xff", 1<<16)), Message: strings.Repeat("<€", 1<<16)}
		}
		return nil
	})
	do := func(method string) (result any, err error) {
		err = client.Do(t.Context(), Request{Method: method}, &result)
		return result, err
	}
	if got, err := do("fits"); err != nil || len(got.(string)) != maxMessage-len(resultPrefix)-3 {
		t.Error(err)
	}
	if _, err := do("too large"); !errors.Is(err, TooLarge) {
		t.Error(err)
	}
	if _, err := do("not JSON"); !errors.Is(err, Internal) {
		t.Error(err)
	}
	if got, err := do("twice"); got != 1.0 || err != nil {
		t.Error(got, err)
	}
	if _, err := do("long error"); !errors.Is(err, SandboxDenied) || !errors.Is(err, Permission) || len(err.Error()) < 4096 || !strings.HasSuffix(err.Error(), " …") {
		t.Errorf("%.100q", err)
	}
	if got, err := do("nothing"); got != nil || err != nil {
		t.Error(got, err)
	}
	var number int
	if err := client.Do(t.Context(), Request{Method: "fits"}, &number); err == nil || !strings.Contains(err.Error(), "result of fits") {
		t.Errorf("a result of another type: %.100q", err)
	}
}

func TestRequestLimits(t *testing.T) {
	client, _ := pipe(t, methods(nil))
	// Exactly 4 MiB: {"method":"nothing","params":"…"}
	fits := strings.Repeat("x", maxHead-len(`{"method":"nothing","params":""}`))
	if err := client.Do(t.Context(), Request{Method: "nothing", Params: fits}, nil); !errors.Is(err, Unsupported) {
		t.Error(err)
	}
	if err := client.Do(t.Context(), Request{Method: "nothing", Params: fits + "x"}, nil); !errors.Is(err, TooLarge) {
		t.Error(err)
	}
	if err := client.Do(t.Context(), Request{Method: "nothing", Params: func() {}}, nil); !errors.Is(err, Invalid) {
		t.Error(err)
	}
	call := open(t, client, mirrorMethod)
	if err := call.Control(strings.Repeat("x", maxMessage)); !errors.Is(err, TooLarge) {
		t.Error(err)
	}
	if err := call.Control(strings.Repeat("x", maxMessage-2)); err != nil {
		t.Error(err)
	}
	if event, err := await(t.Context(), call, ControlEvent); err != nil || len(event.Data) != maxMessage {
		t.Errorf("%d bytes, %v", len(event.Data), err)
	}
	if err := call.SendFramed(t.Context(), []byte("hello")); !errors.Is(err, Internal) {
		t.Errorf("SendFramed of what is no frame: %v", err)
	}
}

func TestOperationIDs(t *testing.T) {
	client, _ := pipe(t, func(ctx context.Context, call *Call) error {
		op, acked := call.Op()
		return call.End([]uint64{op, acked})
	})
	var got []uint64
	if err := client.Do(t.Context(), Request{Method: "x", Op: 1<<64 - 1, Acked: 1 << 60}, &got); err != nil || got[0] != 1<<64-1 || got[1] != 1<<60 {
		t.Error(got, err)
	}
	if err := client.Do(t.Context(), Request{Method: "x"}, &got); err != nil || got[0] != 0 || got[1] != 0 {
		t.Error(got, err)
	}
}

func TestParams(t *testing.T) {
	client, _ := pipe(t, func(ctx context.Context, call *Call) error {
		var n int
		if err := call.Params(&n); err != nil {
			return err
		}
		return call.End(n)
	})
	var got int
	if err := client.Do(t.Context(), Request{Method: "x", Params: 7}, &got); got != 7 || err != nil {
		t.Error(got, err)
	}
	if err := client.Do(t.Context(), Request{Method: "x"}, &got); got != 0 || err != nil {
		t.Error(got, err)
	}
	if err := client.Do(t.Context(), Request{Method: "x", Params: "seven"}, nil); !errors.Is(err, Invalid) {
		t.Error(err)
	}
}

// One byte at a time is as good as any other way.
func TestOneByteAtATime(t *testing.T) {
	clientEnd, serverEnd := wiretest.Pipe()
	slow := wiretest.NewFaulty(clientEnd)
	slow.OneByte()
	client, _ := join(t, slow, serverEnd, methods(nil))
	if got, err := download(t.Context(), client, downParams{5_000, 2_000}); err != nil || !bytes.Equal(got, pattern(5_000)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if got, err := upload(t.Context(), client, 5_000, 2_000); err != nil || got.Bytes != 5_000 {
		t.Errorf("%+v, %v", got, err)
	}
}
