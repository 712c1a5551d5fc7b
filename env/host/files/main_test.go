package files

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("FILES_TEST_ROLE"); role != "" {
		os.Exit(roles[role]())
	}
	// The runtime's poller opens descriptors of its own with the first pipe.
	if r, w, err := os.Pipe(); err == nil {
		r.Close() //nolint:errcheck // it was only made
		w.Close() //nolint:errcheck // as above
	}
	goleak.VerifyTestMain(m)
}

// roles are what the test program does when it is started again as another process.
var roles = map[string]func() int{}
