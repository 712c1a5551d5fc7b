//go:build !linux

package tree

import (
	"errors"
	"fmt"
	"log/slog"
)

// StartReaper would make this program the one that orphans of its children pass to. Here they pass to process 1.
func StartReaper(*slog.Logger) (stop func(), err error) {
	return nil, fmt.Errorf("become the reaper of orphans: %w on this machine", errors.ErrUnsupported)
}
