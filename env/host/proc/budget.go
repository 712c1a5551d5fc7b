package proc

import (
	"sync"
	"sync/atomic"
)

// A budget is a number of bytes that all processes of a table share, of memory or of disk.
type budget struct {
	limit int64
	used  atomic.Int64

	waiting atomic.Bool
	mu      sync.Mutex
	given   chan struct{} // closed at the next give, when somebody waits
}

func newBudget(limit int64) *budget { return &budget{limit: limit} }

// take takes n bytes if they are there. With force it takes them anyway.
func (b *budget) take(n int64, force bool) bool {
	for {
		used := b.used.Load()
		if used+n > b.limit && !force {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// has tells that n bytes could be taken just now.
func (b *budget) has(n int64) bool { return b.used.Load()+n <= b.limit }

func (b *budget) give(n int64) {
	b.used.Add(-n)
	if b.waiting.Load() {
		b.mu.Lock()
		if b.given != nil {
			close(b.given)
			b.given = nil
		}
		b.waiting.Store(false)
		b.mu.Unlock()
	}
}

// scarce tells that three quarters are used, so that nothing should be kept for convenience.
func (b *budget) scarce() bool { return b.used.Load() > b.limit/4*3 }

// wait returns a channel that is closed when bytes have been given back. Take again after calling it, before waiting.
func (b *budget) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.given == nil {
		b.given = make(chan struct{})
	}
	b.waiting.Store(true)
	return b.given
}
