//go:build !linux

package proc

import "testing"

func zombies(testing.TB) int { return 0 } // not told here
