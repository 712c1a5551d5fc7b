package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"waldo/wire"
)

const (
	// maxJournal is how many operations a session may have under way, and how many results it keeps.
	maxJournal = 4096
	// maxResult bounds each text of an error that is kept.
	maxResult = 8 << 10
	// abandonWithin is how long a client that takes over waits for what the other one had under way.
	abandonWithin = 10 * time.Second
)

// journal remembers the operations of a session, so that a retry joins or repeats the answer and never the
// effect.
type journal struct {
	mu      sync.Mutex
	acked   uint64 // operations below this are forgotten
	evicted uint64 // so are those that had ended, up to this one: one long operation holds the mark back for many short ones
	entries map[uint64]*operation
}

// operation is one of the session's. It outlives the call that began it, and ends with the session at the latest.
type operation struct {
	method string
	params [sha256.Size]byte // their digest: a client may send 4 MiB of them
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	once   sync.Once
	result json.RawMessage // and err: readable once done is closed
	err    error

	serving chan struct{} // holds a token while a call works on upload: at first that which began the operation
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
		if entry.method != call.Method() || entry.params != sha256.Sum256(call.RawParams()) {
			return nil, false, fmt.Errorf("%w: operation %d was %s with other parameters", wire.Invalid, op, entry.method)
		}
		return entry, false, nil
	}
	if op < j.acked || op <= j.evicted {
		return nil, false, fmt.Errorf("%w: the result of operation %d is no longer kept", wire.UnknownOutcome, op)
	}
	if len(j.entries) >= maxJournal && !j.evict() {
		return nil, false, fmt.Errorf("%w: %d operations are under way", wire.Limit, len(j.entries))
	}
	if j.entries == nil {
		j.entries = make(map[uint64]*operation)
	}
	entry = &operation{
		method:  call.Method(),
		params:  sha256.Sum256(call.RawParams()),
		done:    make(chan struct{}),
		serving: make(chan struct{}, 1),
	}
	entry.serving <- struct{}{}
	entry.ctx, entry.cancel = context.WithCancelCause(ctx)
	j.entries[op] = entry
	return entry, true, nil
}

// evict forgets the older half of the results, and tells whether there was one. j.mu is held.
func (j *journal) evict() bool {
	var ended []uint64
	for op, entry := range j.entries {
		if entry.over() {
			ended = append(ended, op)
		}
	}
	slices.Sort(ended)
	for _, op := range ended[:(len(ended)+1)/2] {
		j.evicted = max(j.evicted, op)
		delete(j.entries, op)
	}
	return len(ended) > 0
}

// abandon ends what is under way.
func (j *journal) abandon(why error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, entry := range j.entries {
		entry.cancel(why)
	}
}

// await waits until what was abandoned has ended, but not for ever.
func (j *journal) await() {
	timer := time.NewTimer(abandonWithin)
	defer timer.Stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, entry := range j.entries {
		select {
		case <-entry.done:
		case <-timer.C:
			return
		}
	}
}

// over tells whether the operation has its result.
func (o *operation) over() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// finish gives the operation its result, once.
func (o *operation) finish(result any, err error) {
	o.once.Do(func() {
		if err == nil {
			o.result, err = json.Marshal(result)
		}
		if err != nil {
			o.err = wire.FromError(err).Shortened(maxResult)
		}
		close(o.done)
		o.cancel(nil)
	})
}

// await waits for the result.
func (o *operation) await(ctx context.Context, call *wire.Call) (json.RawMessage, error) {
	select {
	case <-o.done:
		return o.result, o.err
	case <-ctx.Done():
		return nil, o.left(ctx, call)
	}
}

// left is for a call that was cut: a client that cuts it and not its connection has given the operation up.
func (o *operation) left(ctx context.Context, call *wire.Call) error {
	if !connectionLost(call.Conn(), wire.ErrCut) {
		o.cancel(errAbandoned)
	}
	return context.Cause(ctx)
}
