package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"waldo/wire"
)

// maxJournal is how many results of operations a session keeps until they are acknowledged.
const maxJournal = 4096

// journal remembers the operations of a session, so that a retry joins or repeats the answer and never the
// effect.
type journal struct {
	mu      sync.Mutex
	acked   uint64 // operations below this are forgotten
	entries map[uint64]*operation
}

// operation is one of the session's. It outlives the call that began it, and ends with the session at the latest.
type operation struct {
	method string
	params json.RawMessage
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	once   sync.Once
	result json.RawMessage // and err: readable once done is closed
	err    error

	serving chan struct{} // holds a token while a call works on upload
	upload  *upload
}

var errAbandoned = errors.New("the client has given the operation up")

// enter finds the operation that call is about, or makes it under ctx; first tells which.
func (j *journal) enter(ctx context.Context, call *wire.Call) (entry *operation, first bool, err error) {
	op, acked := call.Op()
	if op == 0 {
		return nil, false, fmt.Errorf("%w: %s needs an operation id", wire.Invalid, call.Method())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if acked > j.acked {
		j.acked = acked
		for known, entry := range j.entries {
			if known < acked {
				entry.cancel(errAbandoned)
				delete(j.entries, known)
			}
		}
	}
	if entry := j.entries[op]; entry != nil {
		if entry.method != call.Method() || !bytes.Equal(entry.params, call.RawParams()) {
			return nil, false, fmt.Errorf("%w: operation %d was %s with other parameters", wire.Invalid, op, entry.method)
		}
		return entry, false, nil
	}
	if op < j.acked {
		return nil, false, fmt.Errorf("%w: the result of operation %d is no longer kept", wire.UnknownOutcome, op)
	}
	if len(j.entries) >= maxJournal {
		return nil, false, fmt.Errorf("%w: %d operations are not acknowledged", wire.Limit, maxJournal)
	}
	if j.entries == nil {
		j.entries = make(map[uint64]*operation)
	}
	entry = &operation{
		method:  call.Method(),
		params:  bytes.Clone(call.RawParams()),
		done:    make(chan struct{}),
		serving: make(chan struct{}, 1),
	}
	entry.ctx, entry.cancel = context.WithCancelCause(ctx)
	j.entries[op] = entry
	return entry, true, nil
}

// abandon ends what is under way.
func (j *journal) abandon(why error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, entry := range j.entries {
		entry.cancel(why)
	}
}

// finish gives the operation its result, once.
func (o *operation) finish(result any, err error) {
	o.once.Do(func() {
		if err == nil {
			o.result, err = json.Marshal(result)
		}
		o.err = err
		close(o.done)
		o.cancel(nil)
	})
}

// await waits for the result. A client that cuts this call and not its connection has given the operation up.
func (o *operation) await(ctx context.Context, call *wire.Call) (json.RawMessage, error) {
	select {
	case <-o.done:
		return o.result, o.err
	case <-ctx.Done():
		if !connectionLost(call.Conn(), wire.ErrCut) {
			o.cancel(errAbandoned)
		}
		return nil, context.Cause(ctx)
	}
}
