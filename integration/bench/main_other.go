//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: it reads /proc and uses Linux terminals, so it runs on Linux only")
	os.Exit(1)
}
