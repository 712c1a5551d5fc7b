package tree

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const reapPause = 20 * time.Millisecond // deaths come in crowds

// StartReaper makes this program the one that orphans of its children pass to (as process 1 is anyhow), and reaps
// those orphans when they end. It takes nothing from whoever waits for a child of his own: neither from the
// tables nor from os/exec, as long as that leaves its children in this program's session.
//
// There is one reaper in a program. stop ends it; orphans then pass on as before.
func StartReaper(logger *slog.Logger) (stop func(), err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, unix.SIGCHLD)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		for {
			select {
			case <-deaths:
			case <-quit:
				return
			}
			pause := time.NewTimer(reapPause)
			select {
			case <-pause.C:
			case <-quit:
				pause.Stop()
				return
			}
			if n := sweep(session); n > 0 {
				logger.Debug("reaped orphans", "count", n)
			}
		}
	}()
	return sync.OnceFunc(func() {
		signal.Stop(deaths)
		close(quit)
		<-done
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) //nolint:errcheck // it could be set
	}), nil
}

// sweep reaps the orphans that have ended, and tells how many those were.
func sweep(session int) (reaped int) {
	var orphans []int
	for _, pid := range childrenOfSelf() {
		if !children.has(pid) && isOrphan(pid, session) {
			orphans = append(orphans, pid)
		}
	}
	if len(orphans) == 0 {
		return 0
	}
	// What was not in the set above may have been forked and not entered yet. With the lock held it has been.
	children.forking.Lock()
	defer children.forking.Unlock()
	for _, pid := range orphans {
		if children.has(pid) || !isOrphan(pid, session) {
			continue
		}
		var ws unix.WaitStatus
		if got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil); err == nil && got == pid {
			reaped++
		}
	}
	return reaped
}

// isOrphan tells that pid is a child that has ended and that nobody in this program waits for: its session is
// another, which only a table's leader or a stranger makes.
func isOrphan(pid, session int) bool {
	stat, err := readStat(pid)
	return err == nil && stat.state == 'Z' && stat.session != session && stat.parent == os.Getpid()
}

// childrenOfSelf lists the children of all threads.
func childrenOfSelf() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children") //nolint:errcheck // a good pattern
	if len(lists) == 0 {                                    // a kernel without
		for pid, stat := range theProcesses.now() {
			if stat.parent == os.Getpid() {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if errors.Is(err, os.ErrNotExist) {
			continue // that thread has ended
		}
		for _, field := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func (c *childSet) has(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pids[pid]
	return ok
}
