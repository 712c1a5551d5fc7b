//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// obeySequences makes the terminal act on escape sequences; here it always does.
func obeySequences() (restore func()) { return func() {} }

// watchConsole calls resized when the terminal's size may have changed, and continued when we go on after a stop.
func watchConsole(ctx context.Context, resized, continued func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s == syscall.SIGCONT {
				continued()
			}
			resized()
		}
	}
}

const backgroundPause = 200 * time.Millisecond

// awaitTurn waits until reading the terminal would not stop us as a background job.
func awaitTurn(ctx context.Context) {
	fd := int(os.Stdin.Fd())
	for ctx.Err() == nil {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 1000); n == 0 || err == unix.EINTR {
			continue
		}
		group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		if err != nil || group == unix.Getpgrp() {
			return // what is wrong with it, if anything, the read tells
		}
		select {
		case <-time.After(backgroundPause):
		case <-ctx.Done():
		}
	}
}
