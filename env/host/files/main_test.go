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
	goleak.VerifyTestMain(m)
}

// roles are what the test program does when it is started again as another process.
var roles = map[string]func() int{}
