package output

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Poison(true)
	goleak.VerifyTestMain(m)
}
