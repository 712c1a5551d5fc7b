package wiretest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy is a TCP proxy that stands for a network: it delays, throttles, stalls and cuts what passes. Its
// settings hold for both directions, at once, and for new connections too.
type Proxy struct {
	listener net.Listener
	target   string
	tasks    sync.WaitGroup
	carried  atomic.Int64

	mu       sync.Mutex
	delay    time.Duration
	rate     int
	stalled  bool
	refusing bool
	closed   bool
	links    map[*link]struct{}
	accepted int
	changed  chan struct{} // closed and replaced when something above changes
}

// NewProxy starts a proxy on a loopback port that passes connections on to target, a host and a port. It is closed
// when the test ends.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := StartProxy("127.0.0.1:0", target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	return p
}

// StartProxy starts a proxy that listens on an address, for use outside of tests.
func StartProxy(listen, target string) (*Proxy, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, links: map[*link]struct{}{}, changed: make(chan struct{})}
	p.tasks.Go(p.accept)
	return p, nil
}

// Addr is the host and port the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetDelay makes every byte arrive that much later. A round trip is twice as long.
func (p *Proxy) SetDelay(each time.Duration) { p.change(func() { p.delay = each }) }

// SetRate lets so many bytes a second pass in each direction of each connection; 0 is no bound. A connection whose
// rate is bounded when it begins also buffers little, as a slow link does.
func (p *Proxy) SetRate(bytesPerSecond int) { p.change(func() { p.rate = bytesPerSecond }) }

// Stall with true stops delivery, as a network does that drops every packet: nobody is told, no connection ends.
// With false delivery goes on where it stopped.
func (p *Proxy) Stall(stalled bool) { p.change(func() { p.stalled = stalled }) }

// Refuse with true resets new connections at once.
func (p *Proxy) Refuse(refuse bool) { p.change(func() { p.refusing = refuse }) }

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Open is how many connections pass through now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Accepted is how many connections have come, those refused among them.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Carried is how many bytes have been delivered, both ways and of all connections.
func (p *Proxy) Carried() int64 { return p.carried.Load() }

// AwaitAccepted returns when n connections have come since the proxy was started, or when it is closed.
func (p *Proxy) AwaitAccepted(n int) { p.await(func() bool { return p.accepted >= n }) }

// AwaitOpen returns when exactly n connections pass through, or when the proxy is closed.
func (p *Proxy) AwaitOpen(n int) { p.await(func() bool { return len(p.links) == n }) }

func (p *Proxy) await(met func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !met() && !p.closed {
		changed := p.changed
		p.mu.Unlock()
		<-changed
		p.mu.Lock()
	}
}

// Close ends the proxy and every connection, and waits for its goroutines. It is idempotent.
func (p *Proxy) Close() error {
	p.change(func() { p.closed = true })
	p.listener.Close()
	p.Cut()
	p.tasks.Wait()
	return nil
}

func (p *Proxy) change(apply func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	apply()
	p.changeLocked()
}

func (p *Proxy) changeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // that one connection
		}
		p.mu.Lock()
		p.accepted++
		refuse := p.refusing || p.closed
		p.changeLocked()
		p.mu.Unlock()
		if refuse {
			c.(*net.TCPConn).SetLinger(0) //nolint:errcheck // a FIN instead of a reset
			c.Close()
			continue
		}
		l := &link{proxy: p, near: c.(*net.TCPConn), ended: make(chan struct{})}
		p.change(func() { p.links[l] = struct{}{} })
		p.tasks.Go(l.run)
	}
}

// link is one connection through the proxy.
type link struct {
	proxy *Proxy
	near  *net.TCPConn

	mu    sync.Mutex
	far   *net.TCPConn
	over  bool
	ended chan struct{}
}

// close ends the link, whatever goes on.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.over = true
	close(l.ended)
	l.near.Close()
	if l.far != nil {
		l.far.Close()
	}
}

func (l *link) run() {
	defer l.proxy.change(func() { delete(l.proxy.links, l) })
	defer l.close()
	dialed, err := net.Dial("tcp", l.proxy.target)
	if err != nil {
		return
	}
	far := dialed.(*net.TCPConn)
	l.mu.Lock()
	l.far = far
	over := l.over
	l.mu.Unlock()
	if over {
		far.Close()
		return
	}
	l.proxy.mu.Lock()
	slow := l.proxy.rate > 0
	l.proxy.mu.Unlock()
	if slow {
		for _, c := range []*net.TCPConn{l.near, far} {
			c.SetReadBuffer(chunkSize)  //nolint:errcheck // more is buffered then
			c.SetWriteBuffer(chunkSize) //nolint:errcheck
		}
	}
	var both sync.WaitGroup
	both.Go(func() { l.carry(far, l.near) })
	both.Go(func() { l.carry(l.near, far) })
	both.Wait()
}

const (
	chunkSize = 32 << 10
	// inFlight is how many chunks may be on the way in one direction.
	inFlight = 1024
)

// chunk is what was read at once; without bytes it is the end of its direction.
type chunk struct {
	bytes []byte
	read  time.Time
}

// carry passes one direction on, until it ends.
func (l *link) carry(to, from *net.TCPConn) {
	chunks := make(chan chunk, inFlight)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		buffer := make([]byte, chunkSize)
		for l.flows() {
			n, err := from.Read(buffer)
			if n > 0 && !l.send(chunks, chunk{bytes.Clone(buffer[:n]), time.Now()}) {
				return
			}
			if err == io.EOF {
				l.send(chunks, chunk{read: time.Now()})
				return
			}
			if err != nil {
				l.close()
				return
			}
			l.throttle(n)
		}
	})
	defer reading.Wait()
	for c := range chunks {
		if !l.due(c.read) {
			break
		}
		if len(c.bytes) == 0 {
			to.CloseWrite() //nolint:errcheck // it is closed altogether
			continue
		}
		n, err := to.Write(c.bytes)
		l.proxy.carried.Add(int64(n))
		if err != nil {
			l.close()
			break
		}
	}
	for range chunks { // lets the reader end
	}
}

func (l *link) send(chunks chan<- chunk, c chunk) bool {
	select {
	case chunks <- c:
		return true
	case <-l.ended:
		return false
	}
}

// throttle waits as long as n bytes take.
func (l *link) throttle(n int) {
	l.proxy.mu.Lock()
	rate := l.proxy.rate
	l.proxy.mu.Unlock()
	if rate > 0 {
		l.wait(time.Duration(n)*time.Second/time.Duration(rate), nil)
	}
}

// flows waits while the network is stalled: the sender then fills its own buffers and no others. It is false when
// the link has ended.
func (l *link) flows() bool {
	for {
		l.proxy.mu.Lock()
		stalled, changed := l.proxy.stalled, l.proxy.changed
		l.proxy.mu.Unlock()
		if !stalled {
			return true
		}
		select {
		case <-changed:
		case <-l.ended:
			return false
		}
	}
}

// due waits until bytes read at that time may be delivered. It is false when the link has ended.
func (l *link) due(read time.Time) bool {
	for l.flows() {
		l.proxy.mu.Lock()
		left, changed := time.Until(read.Add(l.proxy.delay)), l.proxy.changed
		stalled := l.proxy.stalled
		l.proxy.mu.Unlock()
		if left <= 0 && !stalled {
			return true
		}
		if !l.wait(left, changed) {
			return false
		}
	}
	return false
}

// wait returns after d or when changed is closed, false when the link has ended.
func (l *link) wait(d time.Duration, changed <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-l.ended:
		return false
	}
	return true
}
