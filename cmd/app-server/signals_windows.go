package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/windows"

	"waldo/env"
)

// catchSignals gets the console's events that are for the command.
func catchSignals() (caught <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return signals, func() { signal.Stop(signals) }
}

// signalOf is the environment's name of a signal, and its number.
func signalOf(s os.Signal) (env.Signal, int) {
	if s == os.Interrupt {
		return "INT", 2
	}
	return "TERM", 15
}

func isBrokenPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
