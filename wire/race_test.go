//go:build race

package wire

// raceEnabled says that the race detector is on: sync.Pool then drops things on purpose.
const raceEnabled = true
