package rpc

import "sync"

// operations gives out the ids of operations that must not run twice, rising from 1.
type operations struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]struct{}
}

func (o *operations) begin() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = make(map[uint64]struct{})
	}
	o.last++
	o.open[o.last] = struct{}{}
	return o.last
}

func (o *operations) end(op uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, op)
}

// acked is the mark below which every operation has had its answer.
func (o *operations) acked() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	mark := o.last + 1
	for op := range o.open {
		mark = min(mark, op)
	}
	return mark
}
