package output

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"waldo/env"
	"waldo/wire"
)

// writer feeds a log as a stream does, without a process.
type writer struct {
	log     *Log
	channel env.Channel
	slab    *slab
	at      int
}

func newTestLog(t *testing.T, memory, disk, limit int64, latest bool) *Log {
	l := New(Options{Memory: NewBudget(memory), Disk: NewBudget(disk), SpillDirectory: t.TempDir(), SpillLimit: limit, Latest: latest})
	t.Cleanup(func() {
		l.Discard()
		if n := l.slabs.Load(); n != 0 {
			t.Errorf("%d bytes of slabs are still held", n)
		}
		if m, d := l.memory.Used(), l.spill.disk.Used(); m != 0 || d != 0 {
			t.Errorf("the budgets still count %d bytes of memory, %d of disk", m, d)
		}
	})
	return l
}

// write appends one read's worth, waiting for room.
func (w *writer) write(stop chan struct{}, data []byte) bool {
	if w.slab != nil && len(w.slab.buf)-w.at < wire.HeaderSize+len(data) {
		w.close()
	}
	for needy := false; ; needy = true {
		if !w.log.makeRoom(stop, needy) {
			return false
		}
		if w.slab == nil {
			w.slab, w.at = w.log.slabFor(true, false), 0
		}
		if w.slab != nil {
			break
		}
	}
	copy(w.slab.buf[w.at+wire.HeaderSize:], data)
	w.at, _ = w.log.publish(w.channel, w.slab, w.at, len(data))
	return true
}

func (w *writer) close() {
	if w.slab != nil {
		w.slab.release()
		w.slab = nil
	}
}

// pattern has a prime length and then its beginning again, so that a byte tells where it belongs.
var pattern = func() []byte {
	b := make([]byte, 65521)
	rand.NewChaCha8([32]byte{}).Read(b)
	return bytes.Repeat(b, 2+wire.MaxData/len(b))
}()

func contentAt(offset int64, n int) []byte {
	at := int(offset % 65521)
	return pattern[at : at+n]
}

// readAll reads to the end, and checks every byte and frame. ack says whether it acknowledges.
func readAll(t *testing.T, l *Log, from int64, owner bool) (got, lost int64) {
	t.Helper()
	c, err := l.NewCursor(from)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at := c.offset
	for {
		if owner {
			l.Ack(c.offset)
		}
		chunk, ok, err := c.Next(context.Background(), nil, owner)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return got, lost
		}
		if chunk.Offset != at {
			t.Fatalf("a chunk at %d, want %d", chunk.Offset, at)
		}
		if !bytes.Equal(chunk.Data, contentAt(at, len(chunk.Data))) {
			t.Fatalf("wrong bytes at %d", at)
		}
		if chunk.Framed != nil {
			var header [wire.HeaderSize]byte
			wire.PutDataHeader(header[:], wire.Channel(chunk.Channel), len(chunk.Data))
			if !bytes.Equal(chunk.Framed[:wire.HeaderSize], header[:]) || !bytes.Equal(chunk.Framed[wire.HeaderSize:], chunk.Data) {
				t.Fatalf("wrong frame at %d: % x", at, chunk.Framed[:wire.HeaderSize])
			}
		}
		at += int64(len(chunk.Data)) + chunk.Lost
		got += int64(len(chunk.Data))
		lost += chunk.Lost
	}
}

// fill writes total bytes in pieces of up to most, on two channels.
func fill(l *Log, seed uint64, total int64, most int, stop chan struct{}) (written int64) {
	r := rand.New(rand.NewPCG(seed, 1))
	writers := []*writer{{log: l, channel: env.Stdout}, {log: l, channel: env.Stderr}}
	for written < total {
		n := int(min(total-written, int64(1+r.IntN(most))))
		if !writers[r.IntN(5)/4].write(stop, contentAt(written, n)) {
			break
		}
		written += int64(n)
	}
	for _, w := range writers {
		w.close()
	}
	return written
}

func TestLogOwnerGetsAll(t *testing.T) {
	for _, most := range []int{1, 10, 5000, wire.MaxData} {
		l := newTestLog(t, 256<<20, 0, 0, false)
		l.Own(true, 0)
		total := int64(most) * 1000
		go func() {
			fill(l, 1, total, most, nil)
			l.Finish()
		}()
		if got, lost := readAll(t, l, 0, true); got != total || lost != 0 {
			t.Errorf("pieces up to %d: %d bytes of %d, %d lost", most, got, total, lost)
		}
		if s := l.State(); s.Acked != total || s.Retained > retainBound+wire.MaxData || s.Dropped != 0 {
			t.Errorf("afterwards: %+v", s)
		}
		// what was acknowledged last is there for whoever comes later
		if got, lost := readAll(t, l, -1, false); got != min(total, l.end-l.start()) || lost != 0 {
			t.Errorf("later: %d bytes, %d lost", got, lost)
		}
	}
}

func TestLogReadersAtTheirOwnPace(t *testing.T) {
	l := newTestLog(t, 256<<20, 0, 0, false)
	l.Own(true, 0)
	const total = 20 << 20
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			got, lost := readAll(t, l, 0, i == 0)
			if got+lost != total || i == 0 && lost != 0 {
				t.Errorf("reader %d: %d bytes, %d lost", i, got, lost)
			}
		})
	}
	fill(l, 2, total, 20000, nil)
	l.Finish()
	group.Wait()
}

func TestLogBlocksWithAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLog(t, 256<<20, 1<<30, 8<<20, false)
		l.Own(true, 0)
		stop := make(chan struct{})
		var written int64
		done := make(chan struct{})
		go func() { defer close(done); written = fill(l, 3, 1<<30, wire.MaxData, stop) }()
		synctest.Wait() // it blocks, durably
		s := l.State()
		if !s.Full || s.End < logBound || s.End > logBound+wire.MaxData || s.Retained != s.End {
			t.Errorf("blocked at %+v", s)
		}
		c, err := l.NewCursor(0)
		if err != nil {
			t.Fatal(err)
		}
		// What is handed over may be in flight besides, until it is acknowledged.
		for range 5 {
			if _, ok, err := c.Next(t.Context(), nil, true); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		synctest.Wait()
		if s := l.State(); !s.Full { // less than half a log of room is not worth waking up for
			t.Errorf("after 5 chunks: %+v", s)
		}
		for range 60 {
			if _, ok, err := c.Next(t.Context(), nil, true); !ok || err != nil {
				t.Fatal(ok, err)
			}
			synctest.Wait()
		}
		if s := l.State(); s.End < c.offset+logBound/2 || s.Acked != 0 {
			t.Errorf("handed over to %d: %+v", c.offset, s)
		}
		// Without an owner it goes to disk instead; the limit there blocks again.
		l.Own(false, 0)
		synctest.Wait()
		c.Close()
		close(stop)
		<-done
		if s := l.State(); s.End != written {
			t.Errorf("%d written, %+v", written, s)
		}
	})
}

func TestLogSpills(t *testing.T) {
	for _, most := range []int{100, 3000, wire.MaxData} {
		l := newTestLog(t, 256<<20, 1<<30, 64<<20, false)
		total := int64(40<<20) / int64(1+2000/most)
		if n := fill(l, 4, total, most, nil); n != total {
			t.Fatalf("%d of %d bytes", n, total)
		}
		l.Finish()
		s := l.State()
		if s.Retained != total || s.Full || l.spill.bytes < total-2*logBound {
			t.Errorf("%+v, %d on disk", s, l.spill.bytes)
		}
		if entries, err := os.ReadDir(l.spill.dir); len(entries) != 0 || err != nil {
			t.Errorf("files with names: %v, %v", entries, err)
		}
		for _, from := range []int64{0, 1, total / 3, total - 10} { // a watcher, from wherever
			if got, lost := readAll(t, l, from, false); got != total-from || lost != 0 {
				t.Errorf("from %d: %d bytes, %d lost", from, got, lost)
			}
		}
		l.Own(true, 0)
		if got, lost := readAll(t, l, 0, true); got != total || lost != 0 {
			t.Errorf("the owner: %d bytes, %d lost", got, lost)
		}
		if l.spill.bytes != 0 || l.spill.disk.Used() != 0 {
			t.Errorf("%d bytes are still on disk", l.spill.bytes)
		}
	}
}

func TestLogSpillLimit(t *testing.T) {
	for _, limits := range []struct{ disk, process int64 }{{1 << 30, 4 << 20}, {4 << 20, 1 << 30}} {
		synctest.Test(t, func(t *testing.T) {
			l := newTestLog(t, 256<<20, limits.disk, limits.process, false)
			done := make(chan int64, 1)
			go func() { done <- fill(l, 5, 20<<20, wire.MaxData, nil); l.Finish() }()
			synctest.Wait()
			if s := l.State(); !s.Full || s.End > 4<<20+logBound+spillStep+wire.MaxData || s.End < 4<<20 {
				t.Errorf("lossless blocks at %+v", s)
			}
			l.Own(true, 0)
			if got, lost := readAll(t, l, 0, true); got != 20<<20 || lost != 0 {
				t.Errorf("%d bytes, %d lost", got, lost)
			}
			if n := <-done; n != 20<<20 {
				t.Errorf("%d written", n)
			}
		})
	}
}

func TestLogLatest(t *testing.T) {
	for _, test := range []struct {
		name            string
		owned           bool
		disk, process   int64
		atLeast, atMost int64 // what is kept
	}{
		{"with an owner", true, 1 << 30, 64 << 20, logBound / 2, logBound + wire.MaxData},
		{"detached", false, 1 << 30, 8 << 20, 5 << 20, 8<<20 + logBound + wire.MaxData},
		{"detached, the disk is used up", false, 8 << 20, 1 << 30, logBound / 2, 8<<20 + logBound + wire.MaxData},
		{"detached, no disk", false, 1 << 30, -1, logBound / 2, logBound + wire.MaxData},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newTestLog(t, 256<<20, test.disk, test.process, true)
			l.Own(test.owned, 0)
			if n := fill(l, 6, 50<<20, wire.MaxData, nil); n != 50<<20 {
				t.Fatalf("%d bytes", n)
			}
			l.Finish()
			s := l.State()
			if s.Retained < test.atLeast || s.Retained > test.atMost || s.Dropped != 50<<20-s.Retained {
				t.Errorf("%+v", s)
			}
			l.Own(true, 0)
			if got, lost := readAll(t, l, 0, true); got != s.Retained || lost != s.Dropped {
				t.Errorf("%d bytes, %d lost; %+v", got, lost, s)
			}
		})
	}
}

func TestLogSpillDirectoryIsGone(t *testing.T) {
	var said strings.Builder
	l := newTestLog(t, 256<<20, 1<<30, 1<<30, true)
	l.spill.dir += "/none"
	l.spill.logger = slog.New(slog.NewTextHandler(&said, nil))
	fill(l, 7, 10<<20, wire.MaxData, nil)
	l.Finish()
	if s := l.State(); s.Dropped == 0 || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("%+v; said %q", s, said.String())
	}
}

// A log that has nothing to fear from its own bound gives up what it keeps for convenience, then spills, then waits.
func TestLogMemoryBudget(t *testing.T) {
	l := newTestLog(t, 512<<10, 1<<30, 64<<20, false)
	other := int64(512 << 10)
	l.memory.take(other, true)                           // somebody else has all of it
	if n := fill(l, 8, 10<<20, 4000, nil); n != 10<<20 { // small slabs are what it gets
		t.Fatalf("%d bytes", n)
	}
	l.Finish()
	if got, lost := readAll(t, l, 0, false); got != 10<<20 || lost != 0 {
		t.Errorf("%d bytes, %d lost", got, lost)
	}
	if over := l.slabs.Load(); over > guaranteed {
		t.Errorf("%d bytes beyond an exhausted budget", over)
	}
	l.memory.give(other)
}
