//go:build !unix

package main

import (
	"errors"
	"os"
)

// daemonsWork is false: a pipe is served by its own process.
const daemonsWork = false

var errLocked = errors.New("locked by another process")

func lockDaemon(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func spawnDaemon(string, *os.File) (*os.File, error) { return nil, errors.ErrUnsupported }
