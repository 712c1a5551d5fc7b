package main

import (
	"sync"
	"time"
)

// linger decides when to go although something still holds the output of a command that has ended: some time
// after everything that the command itself wrote has been delivered.
type linger struct {
	wait time.Duration
	over func() // called once, when the time is over

	mu       sync.Mutex
	position int64 // delivered
	end      int64 // of what the command wrote
	exited   bool
	timer    *time.Timer
}

// delivered says how far the output has been written out.
func (l *linger) delivered(position int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.position = position
	l.check()
}

// exit says that the command has ended, and where its output does.
func (l *linger) exit(end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exited, l.end = true, end
	l.check()
}

func (l *linger) check() {
	if l.exited && l.position >= l.end && l.timer == nil {
		l.timer = time.AfterFunc(l.wait, l.over)
	}
}

func (l *linger) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}
