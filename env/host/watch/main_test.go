package watch

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("WATCH_TEST_ROLE"); role != "" {
		helper(role)
		return
	}
	goleak.VerifyTestMain(m)
}
