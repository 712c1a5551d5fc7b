//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const daemonsWork = true

var errLocked = errors.New("locked by another process")

// lockDaemon takes the lock that one daemon at a time holds, for as long as it lives.
func lockDaemon(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return f, nil
}

// spawnDaemon starts the daemon in a session of its own. ready ends when it accepts, or has ended itself.
func spawnDaemon(stateDir string, log *os.File) (ready *os.File, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ready, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	c := exec.Command(self, "daemon", "--state-dir", stateDir)
	c.Dir = "/"
	c.Stdout, c.Stderr = stdout, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		ready.Close()
		return nil, err
	}
	return ready, c.Process.Release()
}
