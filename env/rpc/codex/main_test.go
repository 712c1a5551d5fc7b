package codex

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"waldo/env/host/tree"
)

func TestMain(m *testing.M) {
	if err := errors.Join(tree.CloseInherited(), tree.DefaultSignals()); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
