// Command bench measures this project's speed on one machine, in one run, against what the machine can do at best
// and against Codex's exec-server, and prints a table of all three.
//
//	go run ./integration/bench [flags] [row...]
//
// Nothing of it is timed in tests. docs/performance.md tells how each row is measured.
package main
