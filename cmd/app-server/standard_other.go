//go:build !linux

package main

import "os"

// polled is the stream itself: here it cannot be made non-blocking for this process alone.
func polled(f *os.File, _ int) *os.File { return f }
