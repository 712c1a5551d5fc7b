package jsonrpc

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// How much waits to be sent. A message that is alone may be larger.
const (
	maxUrgent   = 16 << 10  // the longest answer that goes before others
	urgentBytes = 4 << 20   // of those
	bulkBytes   = 256 << 10 // of the rest
	batchBytes  = 64 << 10  // what the writer takes at a time
)

var errEnded = errors.New("the connection has ended")

// outbox is what waits for the writer.
type outbox struct {
	mu     sync.Mutex
	urgent queue
	bulk   queue
	closed bool
	wake   chan struct{} // to the writer
	batch  [][]byte      // the writer's
}

// queue is one of an outbox's two. Whoever finds no room waits in a line.
type queue struct {
	box      *outbox
	ended    <-chan struct{}
	room     int
	bytes    int
	messages [][]byte
	line     []*waiting
}

type waiting struct {
	message []byte
	taken   chan struct{} // closed when the message is in the queue
}

func (o *outbox) init(ended <-chan struct{}) {
	o.wake = make(chan struct{}, 1)
	o.urgent = queue{box: o, ended: ended, room: urgentBytes}
	o.bulk = queue{box: o, ended: ended, room: bulkBytes}
}

// close lets nothing more in.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.urgent.line, o.bulk.line = nil, nil
	o.notify()
}

// notify wakes the writer.
func (o *outbox) notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// add queues a message when there is room.
func (q *queue) add(ctx context.Context, message []byte) error {
	o := q.box
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return errEnded
	}
	if len(q.line) == 0 && q.fits(message) {
		q.put(message)
		o.notify()
		o.mu.Unlock()
		return nil
	}
	w := &waiting{message: message, taken: make(chan struct{})}
	q.line = append(q.line, w)
	o.mu.Unlock()
	select {
	case <-w.taken:
		return nil
	case <-q.ended:
		return errEnded
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(q.line, w)
	if i < 0 {
		return nil // it was taken in the meantime
	}
	q.line = slices.Delete(q.line, i, i+1)
	q.admit() // what was behind it may be smaller
	return context.Cause(ctx)
}

// fits reports whether there is room for a message. The outbox is locked.
func (q *queue) fits(message []byte) bool { return q.bytes == 0 || q.bytes+len(message) <= q.room }

func (q *queue) put(message []byte) {
	q.messages = append(q.messages, message)
	q.bytes += len(message)
}

// admit takes in who waits, as far as there is room. The outbox is locked.
func (q *queue) admit() {
	n := 0
	for ; n < len(q.line) && q.fits(q.line[n].message); n++ {
		q.put(q.line[n].message)
		close(q.line[n].taken)
	}
	if n > 0 {
		q.line = slices.Delete(q.line, 0, n)
		q.box.notify()
	}
}

// move puts a queue's first messages into a batch, until it is full.
func (q *queue) move(batch [][]byte, size int) ([][]byte, int) {
	n := 0
	for ; n < len(q.messages) && (n == 0 || size < batchBytes); n++ {
		batch = append(batch, q.messages[n])
		size += len(q.messages[n])
		q.bytes -= len(q.messages[n])
	}
	q.messages = slices.Delete(q.messages, 0, n)
	q.admit()
	return batch, size
}

// take waits for messages: urgent ones, and behind them at least one of the others, so that none waits for ever. The
// batch is good until the next call. It is empty only after close; open is then false.
func (o *outbox) take() (batch [][]byte, open bool) {
	clear(o.batch)
	for {
		o.mu.Lock()
		batch, size := o.urgent.move(o.batch[:0], 0)
		batch, _ = o.bulk.move(batch, size)
		o.batch = batch
		closed := o.closed
		o.mu.Unlock()
		if len(batch) > 0 || closed {
			return batch, !closed
		}
		<-o.wake
	}
}
