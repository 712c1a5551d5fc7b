//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"waldo/env"
)

// forwardable are the signals that are meant for the command.
var forwardable = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// catchSignals gets the signals that are for the command, but those that were to be ignored when we were started
// (nohup), and keeps a broken pipe from ending the program before it has ended the command.
func catchSignals() (caught <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 16)
	for _, s := range forwardable {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return signals, func() { signal.Stop(signals) }
}

// signalOf is the environment's name of a signal, and its number.
func signalOf(s os.Signal) (env.Signal, int) {
	number := int(s.(syscall.Signal))
	switch s {
	case syscall.SIGINT:
		return "INT", number
	case syscall.SIGHUP:
		return "HUP", number
	case syscall.SIGQUIT:
		return "QUIT", number
	}
	return "TERM", number
}

func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
