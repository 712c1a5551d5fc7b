package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"waldo/wire"
)

// The methods of the native protocol. Each has its client and its server half in the file named for it;
// PROTOCOL.md has the table for people, which a test ties to this one.
const (
	methodDescribe         = "describe"
	methodStat             = "stat"
	methodDial             = "dial"
	methodProcessStart     = "process.start"
	methodProcessAttach    = "process.attach"
	methodProcessList      = "process.list"
	methodProcessSignal    = "process.signal"
	methodProcessTerminate = "process.terminate"
	methodGoodbye          = "goodbye"
)

// methods says how the server serves each method.
var methods = map[string]func(context.Context, *session, *wire.Call) error{
	methodDescribe:         unary(serveDescribe),
	methodStat:             unary(serveStat),
	methodDial:             serveDial,
	methodProcessStart:     serveStart,
	methodProcessAttach:    serveAttach,
	methodProcessList:      serveProcessList,
	methodProcessSignal:    once(serveSignal),
	methodProcessTerminate: unary(serveTerminate),
	methodGoodbye:          unary(serveGoodbye),
}

// none is the result of a method that has none.
type none struct{}

// unary serves a method without a body that may be repeated.
func unary[P, R any](serve func(context.Context, *session, P) (R, error)) func(context.Context, *session, *wire.Call) error {
	return func(ctx context.Context, s *session, call *wire.Call) error {
		var params P
		if err := call.Params(&params); err != nil {
			return err
		}
		result, err := serve(ctx, s, params)
		if err != nil {
			return err
		}
		return call.End(result)
	}
}

// once serves a method without a body that must not run twice: its operation id goes through the journal.
func once[P, R any](serve func(context.Context, *session, P) (R, error)) func(context.Context, *session, *wire.Call) error {
	return func(ctx context.Context, s *session, call *wire.Call) error {
		op, acked := call.Op()
		if op == 0 {
			return fmt.Errorf("%w: %s needs an operation id", wire.Invalid, call.Method())
		}
		result, err := s.operations().do(ctx, op, acked, call.Method(), call.RawParams(), func() (json.RawMessage, error) {
			var params P
			if err := call.Params(&params); err != nil {
				return nil, err
			}
			// The operation is not the call's: a cut must not leave half of it.
			result, err := serve(context.WithoutCancel(ctx), s, params)
			if err != nil {
				return nil, err
			}
			return json.Marshal(result)
		})
		if err != nil {
			return err
		}
		return call.End(result)
	}
}

// sendList sends a list, which may not fit an END, as DATA: one JSON value a line.
func sendList[T any](ctx context.Context, call *wire.Call, list []T) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, item := range list {
		if err := encoder.Encode(item); err != nil {
			return err
		}
		if lines.Len() >= wire.MaxData {
			if err := call.Send(ctx, 0, lines.Bytes()); err != nil {
				return err
			}
			lines.Reset()
		}
	}
	return call.Send(ctx, 0, lines.Bytes())
}

// call makes a call that may be repeated.
func call[R any](ctx context.Context, c *Client, request wire.Request) (R, error) {
	return do(ctx, c.link, request, func(ctx context.Context, conn *wire.Conn) (result R, err error) {
		err = conn.Do(ctx, request, &result)
		return result, err
	})
}

// callOnce makes a call that must not run twice: it gets an operation id, so that a retry is the same operation.
func callOnce[R any](ctx context.Context, c *Client, request wire.Request) (R, error) {
	request.Op = c.operations.begin()
	defer c.operations.end(request.Op)
	request.Acked = c.operations.acked()
	return call[R](ctx, c, request)
}

// callList makes a call that answers with a list; see sendList.
func callList[T any](ctx context.Context, c *Client, request wire.Request) ([]T, error) {
	return do(ctx, c.link, request, func(ctx context.Context, conn *wire.Conn) ([]T, error) {
		var lines bytes.Buffer
		call, err := conn.Open(request)
		if err != nil {
			return nil, err
		}
		defer call.Close()
		for {
			event, err := call.Receive(ctx)
			if err != nil {
				return nil, err
			}
			switch event.Kind {
			case wire.DataEvent:
				lines.Write(event.Data)
				call.Took(event)
			case wire.EndEvent:
				return decodeList[T](&lines)
			}
		}
	})
}

func decodeList[T any](lines *bytes.Buffer) (list []T, err error) {
	decoder := json.NewDecoder(lines)
	for decoder.More() {
		var item T
		if err := decoder.Decode(&item); err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, nil
}

// endCall ends the client's direction of a call, and waits for the server's, so that all that was sent is taken.
// A call that is not over when ctx ends is cut.
func endCall(ctx context.Context, call *wire.Call) {
	defer call.Close() //nolint:errcheck // returns nil
	for call.End(nil) == nil {
		event, err := call.Receive(ctx)
		if err != nil || event.Kind == wire.EndEvent {
			return
		}
		if event.Kind == wire.DataEvent {
			call.Took(event)
		}
	}
}
