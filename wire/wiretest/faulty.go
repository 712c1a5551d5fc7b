package wiretest

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Faulty is a connection whose faults a test chooses. Without any it is the connection below it. Deadlines do not
// end a stall.
type Faulty struct {
	net.Conn

	mu       sync.Mutex
	readCut  int64 // bytes that may still be read, negative for no end
	writeCut int64
	oneByte  bool
	stalled  bool
	closed   bool
	changed  chan struct{} // closed and replaced when something above changes
	waiting  int           // who waits for a stall to end

	read, written int64
}

// NewFaulty puts a Faulty on c.
func NewFaulty(c net.Conn) *Faulty {
	return &Faulty{Conn: c, readCut: -1, writeCut: -1, changed: make(chan struct{})}
}

// CutRead lets n more bytes be read, then cuts the connection.
func (f *Faulty) CutRead(n int64) { f.change(func() { f.readCut = n }) }

// CutWrite lets n more bytes be written, then cuts the connection: a write that goes beyond is a short one.
func (f *Faulty) CutWrite(n int64) { f.change(func() { f.writeCut = n }) }

// OneByte makes every read return a single byte, and every write reach the connection below byte by byte.
func (f *Faulty) OneByte() { f.change(func() { f.oneByte = true }) }

// Stall makes reads and writes wait until it is called with false, or the connection is closed.
func (f *Faulty) Stall(stalled bool) { f.change(func() { f.stalled = stalled }) }

// Count returns how many bytes were read and written.
func (f *Faulty) Count() (read, written int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read, f.written
}

// AwaitStalled returns when n reads and writes wait for a stall to end, or when the connection is closed.
func (f *Faulty) AwaitStalled(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.waiting < n && !f.closed {
		f.waitLocked()
	}
}

func (f *Faulty) change(apply func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	apply()
	f.changeLocked()
}

func (f *Faulty) changeLocked() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// waitLocked waits for the next change with f.mu released.
func (f *Faulty) waitLocked() {
	changed := f.changed
	f.mu.Unlock()
	<-changed
	f.mu.Lock()
}

// allowed waits while the connection is stalled, then tells how many of n bytes may pass: all, fewer before a
// cut, one at a time.
func (f *Faulty) allowed(n int, left *int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holdLocked()
	switch {
	case f.closed:
		return 0, net.ErrClosed
	case *left == 0:
		return 0, io.EOF
	}
	if f.oneByte {
		n = min(n, 1)
	}
	if *left > 0 {
		n = int(min(int64(n), *left))
	}
	return n, nil
}

// holdLocked waits while the connection is stalled. f.mu is held.
func (f *Faulty) holdLocked() {
	if !f.stalled {
		return
	}
	f.waiting++
	f.changeLocked() // once: two who wait must not wake each other for ever
	for f.stalled && !f.closed {
		f.waitLocked()
	}
	f.waiting--
}

// passed counts n bytes, and cuts the connection when they were the last.
func (f *Faulty) passed(n int, count, left *int64) {
	f.mu.Lock()
	*count += int64(n)
	if *left > 0 {
		*left = max(0, *left-int64(n))
	}
	cut := *left == 0
	f.mu.Unlock()
	if cut {
		f.Conn.Close()
	}
}

// Read implements [net.Conn].
func (f *Faulty) Read(b []byte) (int, error) {
	n, err := f.allowed(len(b), &f.readCut)
	if err != nil {
		f.Conn.Close()
		return 0, err
	}
	n, err = f.Conn.Read(b[:n])
	f.mu.Lock()
	f.holdLocked() // what came while the network was stalled has not come yet
	f.mu.Unlock()
	f.passed(n, &f.read, &f.readCut)
	return n, err
}

// Write implements [net.Conn].
func (f *Faulty) Write(b []byte) (written int, err error) {
	for {
		n, err := f.allowed(len(b), &f.writeCut)
		if err != nil {
			f.Conn.Close()
			return written, fmt.Errorf("cut: %w", net.ErrClosed)
		}
		n, err = f.Conn.Write(b[:n])
		f.passed(n, &f.written, &f.writeCut)
		written += n
		if b = b[n:]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// Close closes the connection and frees whoever is stalled.
func (f *Faulty) Close() error {
	f.change(func() { f.closed = true })
	return f.Conn.Close()
}
