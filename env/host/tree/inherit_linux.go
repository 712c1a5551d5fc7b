package tree

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CloseInherited makes every descriptor beyond the standard three that this program was started with end with
// its exec, so that none leaks into a child. Call it first in main; descriptors that are handed on on purpose are
// named to the child by its starter.
func CloseInherited() error {
	err := unix.CloseRange(3, ^uint(0)>>1&0x7fffffff, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	names, readErr := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if readErr != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// DefaultSignals makes children start with default signal dispositions and no signal blocked, though this program
// was started otherwise (by nohup, in the background of a script, by a supervisor). Signals that are ignored stay
// without effect on this program itself, until it asks for one by os/signal. Call it first in main: when signals
// are blocked it executes the program anew, without.
func DefaultSignals() error {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return fmt.Errorf("signal dispositions: %w", err)
	}
	if blocked := signalSet(status, "SigBlk:"); blocked != 0 && os.Getenv(unblockedName) == "" {
		return unblock()
	}
	os.Unsetenv(unblockedName) //nolint:errcheck // a good name
	ignored := signalSet(status, "SigIgn:")
	// The Go runtime reports as not ignored what it handles, and never changes what it does not.
	sink := make(chan os.Signal, 1) // never read: what arrives is dropped
	for sig := syscall.Signal(1); sig <= maxSignal; sig++ {
		if ignored&(1<<(sig-1)) != 0 {
			signal.Notify(sink, sig)
		}
	}
	return defaultUnmanaged()
}

// defaultUnmanaged gives the signals that the Go runtime leaves alone (32 and 33, which C libraries use among
// their threads) their default disposition, where they are ignored still.
func defaultUnmanaged() error {
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return fmt.Errorf("signal dispositions: %w", err)
	}
	ignored := signalSet(status, "SigIgn:")
	var byDefault struct { // the kernel's sigaction
		handler, flags, restorer uintptr
		mask                     uint64
	}
	for sig := syscall.Signal(1); sig <= maxSignal; sig++ {
		if ignored&(1<<(sig-1)) == 0 {
			continue
		}
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, unsafe.Sizeof(byDefault.mask), 0, 0)
		if errno != 0 {
			return fmt.Errorf("reset signal %d: %w", sig, errno)
		}
	}
	return nil
}

const unblockedName = "WALDO_UNBLOCKED" // set across the exec, against a loop

// unblock executes this program anew with an empty mask, which a thread can set for itself alone, and an exec keeps.
func unblock() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("unblock signals: %w", err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil); err != nil {
		return fmt.Errorf("unblock signals: %w", err)
	}
	err = unix.Exec(self, os.Args, append(os.Environ(), unblockedName+"=1"))
	return fmt.Errorf("unblock signals: %w", err)
}

// signalSet finds one of the sets of /proc/PID/status.
func signalSet(status []byte, name string) uint64 {
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			set, _ := strconv.ParseUint(strings.TrimSpace(value), 16, 64) //nolint:errcheck // the kernel's
			return set
		}
	}
	return 0
}
