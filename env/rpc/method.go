package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"waldo/wire"
)

// The methods of the native protocol. Each has its client and its server half in the file named for it;
// PROTOCOL.md has the table for people, which a test ties to this one.
const (
	methodDescribe         = "describe"
	methodDial             = "dial"
	methodProcessStart     = "process.start"
	methodProcessAttach    = "process.attach"
	methodProcessList      = "process.list"
	methodProcessSignal    = "process.signal"
	methodProcessTerminate = "process.terminate"
	methodGoodbye          = "goodbye"

	methodStat          = "file.stat"
	methodReadLink      = "file.readlink"
	methodCanonicalize  = "file.canonicalize"
	methodList          = "file.list"
	methodWalk          = "file.walk"
	methodRead          = "file.read"
	methodWrite         = "file.write"
	methodReadMany      = "file.readMany"
	methodWriteMany     = "file.writeMany"
	methodMkdir         = "file.mkdir"
	methodRemove        = "file.remove"
	methodRename        = "file.rename"
	methodCopy          = "file.copy"
	methodSymlink       = "file.symlink"
	methodLink          = "file.link"
	methodSetAttributes = "file.setAttributes"
	methodSync          = "file.sync"
	methodWatch         = "watch"
)

// methods says how the server serves each method.
var methods = map[string]func(context.Context, *session, *wire.Call) error{
	methodDescribe:         unary(serveDescribe),
	methodDial:             serveDial,
	methodProcessStart:     serveStart,
	methodProcessAttach:    serveAttach,
	methodProcessList:      serveProcessList,
	methodProcessSignal:    once(serveSignal),
	methodProcessTerminate: unary(serveTerminate),
	methodGoodbye:          unary(serveGoodbye),

	methodStat:          unary(serveStat),
	methodReadLink:      unary(serveReadLink),
	methodCanonicalize:  unary(serveCanonicalize),
	methodList:          serveList,
	methodWalk:          serveWalk,
	methodRead:          serveRead,
	methodWrite:         serveWrite,
	methodReadMany:      serveReadMany,
	methodWriteMany:     serveWriteMany,
	methodMkdir:         once(serveMkdir),
	methodRemove:        once(serveRemove),
	methodRename:        once(serveRename),
	methodCopy:          once(serveCopy),
	methodSymlink:       once(serveSymlink),
	methodLink:          once(serveLink),
	methodSetAttributes: unary(serveSetAttributes),
	methodSync:          unary(serveSync),
	methodWatch:         serveWatch,
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
		var params P
		if err := call.Params(&params); err != nil {
			return err
		}
		entry, first, err := s.enter(call)
		if err != nil {
			return err
		}
		if first {
			// The operation is not the call's: a cut must not leave half of it.
			s.server.working.Add(1)
			s.server.task(func() {
				defer s.server.working.Add(-1)
				result, err := serve(entry.ctx, s, params)
				entry.finish(result, err)
			})
		}
		result, err := entry.await(ctx, call)
		if err != nil {
			return err
		}
		return call.End(result)
	}
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

// opened is a call with a body whose answer has begun.
type opened[A any] struct {
	*wire.Call
	answer A // its HEAD
}

// open makes a call with a body, and waits for its answer to begin; see reply.
func open[A any](ctx context.Context, l *link, request wire.Request, ready func(A) bool) (opened[A], error) {
	return do(ctx, l, request, func(ctx context.Context, conn *wire.Conn) (o opened[A], err error) {
		if o.Call, err = conn.Open(request); err != nil {
			return o, err
		}
		if o.answer, err = reply(ctx, o.Call, request, ready); err != nil {
			o.Close() //nolint:errcheck // returns nil
		}
		return o, err
	})
}

// reply waits for the HEAD of an answer. Behind one that is not ready comes a refusal, and nothing else.
func reply[A any](ctx context.Context, call *wire.Call, request wire.Request, ready func(A) bool) (answer A, err error) {
	for {
		event, err := call.Receive(ctx)
		if err != nil {
			return answer, err
		}
		switch event.Kind {
		case wire.AckEvent:
		case wire.ReplyEvent:
			if err := json.Unmarshal(event.Data, &answer); err != nil {
				return answer, fmt.Errorf("%w: answer to %s: %w", wire.Internal, request.Method, err)
			}
			if ready(answer) {
				return answer, nil
			}
		default:
			return answer, fmt.Errorf("%w: %s was neither begun nor refused", wire.Internal, request.Method)
		}
	}
}

// receive is [wire.Call.Receive] for who may have given up: what has come already is no reason to go on.
func receive(ctx context.Context, call *wire.Call) (wire.Event, error) {
	if ctx.Err() != nil {
		return wire.Event{}, context.Cause(ctx)
	}
	return call.Receive(ctx)
}

// current is the call that something has under way which goes on with another one after a cut, and which may be closed
// at any time.
type current struct {
	mu     sync.Mutex
	call   *wire.Call
	closed bool
}

// set makes call the current one; the one before is over.
func (c *current) set(call *wire.Call) {
	c.mu.Lock()
	before, closed := c.call, c.closed
	c.call = call
	c.mu.Unlock()
	if before != nil {
		before.Close() //nolint:errcheck // returns nil
	}
	if closed {
		call.Close() //nolint:errcheck // returns nil
	}
}

// close ends the current call, and any that comes.
func (c *current) close() {
	c.mu.Lock()
	c.closed = true
	call := c.call
	c.mu.Unlock()
	if call != nil {
		call.Close() //nolint:errcheck // returns nil
	}
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
