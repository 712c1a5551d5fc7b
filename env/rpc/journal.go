package rpc

import (
	"bytes"
	"context"
	"encoding/json"
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
	acked   uint64 // results of operations below this are forgotten
	entries map[uint64]*operation
}

type operation struct {
	method string
	params json.RawMessage
	done   chan struct{}
	result json.RawMessage // and err: readable once done is closed
	err    error
}

// do runs the operation once, or waits for the run that has begun.
func (j *journal) do(ctx context.Context, op, acked uint64, method string, params json.RawMessage, run func() (json.RawMessage, error)) (json.RawMessage, error) {
	entry, first, err := j.enter(op, acked, method, params)
	if err != nil {
		return nil, err
	}
	if first {
		entry.result, entry.err = run()
		close(entry.done)
	}
	select {
	case <-entry.done:
		return entry.result, entry.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (j *journal) enter(op, acked uint64, method string, params json.RawMessage) (entry *operation, first bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if acked > j.acked {
		j.acked = acked
		for known, entry := range j.entries {
			select {
			case <-entry.done:
				if known < acked {
					delete(j.entries, known)
				}
			default:
			}
		}
	}
	if entry := j.entries[op]; entry != nil {
		if entry.method != method || !bytes.Equal(entry.params, params) {
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
	entry = &operation{method: method, params: bytes.Clone(params), done: make(chan struct{})}
	j.entries[op] = entry
	return entry, true, nil
}
