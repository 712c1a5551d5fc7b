package output

import (
	"sync"
	"sync/atomic"
)

// A Budget is a number of bytes that all logs made with it share, of memory or of disk.
type Budget struct {
	limit int64
	used  atomic.Int64

	waiting atomic.Bool
	mu      sync.Mutex
	given   chan struct{} // closed at the next give, when somebody waits
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// take takes n bytes if they are there. With force it takes them anyway.
func (b *Budget) take(n int64, force bool) bool {
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
func (b *Budget) has(n int64) bool { return b.used.Load()+n <= b.limit }

func (b *Budget) give(n int64) {
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
func (b *Budget) scarce() bool { return b.used.Load() > b.limit/4*3 }

// wait returns a channel that is closed when bytes have been given back. Take again after calling it, before waiting.
func (b *Budget) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.given == nil {
		b.given = make(chan struct{})
	}
	b.waiting.Store(true)
	return b.given
}
