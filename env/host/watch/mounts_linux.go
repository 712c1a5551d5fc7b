package watch

import "os"

// mountChanges returns a function that calls changed whenever the mounts may have changed, until it is stopped. It
// waits in the runtime's poller, without a thread.
func mountChanges(changed func()) (wait, stop func()) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close() //nolint:errcheck // only read
		return nil, nil
	}
	wait = func() {
		// The kernel wakes the poller at each change, and the poller's wake-up is all there is to know. One call
		// that never has enough, since one wake-up could be lost between two calls.
		raw.Read(func(uintptr) bool { //nolint:errcheck // it ends when the file is closed
			changed()
			return false
		})
	}
	return wait, func() { f.Close() } //nolint:errcheck // only read
}
