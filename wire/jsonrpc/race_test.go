//go:build race

package jsonrpc

// raceEnabled says that the race detector is on: growing a slice then allocates twice.
const raceEnabled = true
