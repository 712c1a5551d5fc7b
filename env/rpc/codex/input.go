package codex

import (
	"context"
	"errors"

	"waldo/env"
)

const (
	maxWriteIDs = 4096     // remembered of a process, so that a repeated write is known
	inputBound  = 1 << 20  // bytes that may wait for a process before its writers do
	maxPending  = 64 << 20 // and the most, with what waiting writers have
)

// input is what waits to be read by a process: it belongs to the session, so that what was taken from one connection
// is delivered though that is cut. It is guarded by session.mu.
type input struct {
	pending  [][]byte
	waiting  int   // bytes in pending
	given    int64 // bytes ever put into pending
	err      error // why there is no more
	ids      map[string]bool
	idsOrder []string // the oldest at idsNext once it is full
	idsNext  int
}

// known remembers the id of a write, and tells whether it was known.
func (i *input) known(id string) bool {
	if i.ids[id] {
		return true
	}
	if i.ids == nil {
		i.ids = make(map[string]bool)
	}
	i.ids[id] = true
	if len(i.idsOrder) < maxWriteIDs {
		i.idsOrder = append(i.idsOrder, id)
		return false
	}
	delete(i.ids, i.idsOrder[i.idsNext])
	i.idsOrder[i.idsNext] = id
	i.idsNext = (i.idsNext + 1) % maxWriteIDs
	return false
}

// end drops what waits.
func (i *input) end(err error) {
	if i.err == nil {
		i.err = err
	}
	i.pending, i.waiting = nil, 0
}

// put queues a write, in the order of the calls. mark is how much has been queued behind it; -1 for one that was
// accepted before.
func (p *process) put(id string, data []byte) (mark int64, err error) {
	s := p.session
	s.mu.Lock()
	defer s.mu.Unlock()
	i := &p.input
	if i.ids[id] {
		return -1, nil
	}
	if i.err != nil || !p.stdin {
		return 0, nil
	}
	if i.waiting > inputBound && i.waiting+len(data) > maxPending {
		return 0, internal("%d bytes wait already to be read by process %s", i.waiting, p.id)
	}
	i.known(id)
	if len(data) > 0 {
		i.pending = append(i.pending, data)
		i.waiting += len(data)
		i.given += int64(len(data))
		p.tell()
	}
	return i.given, nil
}

// accepted waits until not too much waits before mark, and is the status of the write.
func (p *process) accepted(ctx context.Context, mark int64) (string, error) {
	s := p.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		i := &p.input
		switch {
		case mark < 0:
			return "accepted", nil
		case !p.stdin || errors.Is(i.err, env.ErrStdinClosed):
			return "stdinClosed", nil
		case i.err != nil:
			return "", i.err
		case mark-(i.given-int64(i.waiting)) <= inputBound:
			return "accepted", nil
		}
		news := p.news()
		s.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
	}
}

// feed writes what waits, until ctx ends or the process reads no more.
func (p *process) feed(ctx context.Context, a env.Process) {
	s := p.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		i := &p.input
		for len(i.pending) == 0 || !a.Owner() {
			news := p.news()
			s.mu.Unlock()
			select {
			case <-news:
			case <-ctx.Done():
			}
			s.mu.Lock()
			if ctx.Err() != nil || i.err != nil {
				return
			}
		}
		data := i.pending[0]
		s.mu.Unlock()
		n, err := a.Write(ctx, data)
		s.mu.Lock()
		if len(i.pending) == 0 { // dropped meanwhile
			return
		}
		i.waiting -= n
		if i.pending[0] = data[n:]; n == len(data) {
			i.pending[0] = nil
			i.pending = i.pending[1:]
		}
		p.tell()
		switch {
		case err == nil:
		case ctx.Err() != nil, errors.Is(err, env.ErrFenced):
			return // what waits is for the next attachment
		default:
			i.end(err)
			return
		}
	}
}
