package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
)

// The methods of the tests' server.
const (
	echoMethod   = "echo"   // result: the parameters
	failMethod   = "fail"   // an error
	downMethod   = "down"   // DATA of so many bytes
	upMethod     = "up"     // takes DATA up to a CONTROL; result: what came
	mirrorMethod = "mirror" // DATA comes back, and so do CONTROLs
	waitMethod   = "wait"   // until it is canceled
)

type downParams struct {
	Bytes int `json:"bytes"`
	Frame int `json:"frame"` // length of each
}

type upResult struct {
	Bytes  int64  `json:"bytes"`
	Prefix string `json:"prefix"`
}

var longPattern = sync.OnceValue(func() []byte {
	b := make([]byte, 0, 4<<20)
	for i := uint32(0); len(b) < cap(b); i++ {
		b = binary.LittleEndian.AppendUint32(b, i)
	}
	return b
})

// pattern is n bytes, at most 4 MiB, that tell where they belong.
func pattern(n int) []byte { return longPattern()[:n:n] }

// methods serves them. canceled, if it is not nil, gets the cause of each canceled wait.
func methods(canceled chan<- error) Handler {
	return func(ctx context.Context, call *Call) error {
		switch call.Method() {
		case echoMethod:
			return call.End(json.RawMessage(call.RawParams()))
		case failMethod:
			return fmt.Errorf("%w: as asked", NotEmpty)
		case downMethod:
			var params downParams
			if err := call.Params(&params); err != nil {
				return err
			}
			body := pattern(params.Bytes)
			for len(body) > 0 {
				n := min(len(body), params.Frame)
				if err := call.Send(ctx, 1, body[:n]); err != nil {
					return err
				}
				body = body[n:]
			}
			return call.End(params)
		case upMethod:
			var got []byte
			for {
				event, err := call.Receive(ctx)
				if err != nil {
					return err
				}
				switch event.Kind {
				case DataEvent:
					got = append(got, event.Data...)
					call.Took(event)
				case ControlEvent, EndEvent:
					if !bytes.Equal(got, pattern(len(got))) {
						return fmt.Errorf("%w: the bytes are not those that were sent", Internal)
					}
					return call.End(upResult{int64(len(got)), string(got[:min(len(got), 8)])})
				}
			}
		case mirrorMethod:
			if err := call.Reply("ready"); err != nil {
				return err
			}
			for {
				event, err := call.Receive(ctx)
				if err != nil {
					return err
				}
				switch event.Kind {
				case DataEvent:
					err = call.Send(ctx, event.Channel, event.Data)
					call.Took(event)
				case ControlEvent:
					err = call.Control(json.RawMessage(event.Data))
				case EndEvent:
					return nil
				}
				if err != nil {
					return err
				}
			}
		case waitMethod:
			if err := call.Reply("waiting"); err != nil {
				return err
			}
			<-ctx.Done()
			if canceled != nil {
				canceled <- context.Cause(ctx)
			}
			return context.Cause(ctx)
		}
		return fmt.Errorf("%w: method %q", Unsupported, call.Method())
	}
}

// download receives the body of a call up to its END.
func download(ctx context.Context, client *Conn, params downParams) ([]byte, error) {
	call, err := client.Open(Request{Method: downMethod, Params: params})
	if err != nil {
		return nil, err
	}
	defer call.Close()
	var got []byte
	for {
		event, err := call.Receive(ctx)
		if err != nil {
			if err == io.EOF {
				err = errors.New("EOF before the END")
			}
			return got, err
		}
		switch event.Kind {
		case DataEvent:
			got = append(got, event.Data...)
			call.Took(event)
		case EndEvent:
			return got, nil
		}
	}
}

// upload sends n bytes in frames of that length.
func upload(ctx context.Context, client *Conn, n, frame int) (upResult, error) {
	call, err := client.Open(Request{Method: upMethod})
	if err != nil {
		return upResult{}, err
	}
	defer call.Close()
	body := pattern(n)
	for len(body) > 0 {
		part := min(len(body), frame)
		if err := call.Send(ctx, 0, body[:part]); err != nil {
			return upResult{}, err
		}
		body = body[part:]
	}
	if err := call.Control("eof"); err != nil {
		return upResult{}, err
	}
	return result[upResult](ctx, call)
}

// result waits for the END.
func result[T any](ctx context.Context, call *Call) (result T, err error) {
	event, err := await(ctx, call, EndEvent)
	if err == nil {
		err = json.Unmarshal(event.Data, &result)
	}
	return result, err
}

// await receives until an event of that kind comes.
func await(ctx context.Context, call *Call, kind EventKind) (Event, error) {
	for {
		event, err := call.Receive(ctx)
		if err != nil || event.Kind == kind {
			return event, err
		}
		if event.Kind == DataEvent {
			call.Took(event)
		}
	}
}

func open(t *testing.T, client *Conn, method string) *Call {
	t.Helper()
	call, err := client.Open(Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { call.Close() })
	return call
}
