package main

import (
	"context"
	"time"

	"golang.org/x/sys/windows"
)

// obeySequences makes the console act on escape sequences.
func obeySequences() (restore func()) {
	output, err := windows.GetStdHandle(windows.STD_OUTPUT_HANDLE)
	if err != nil {
		return func() {}
	}
	var mode uint32
	if windows.GetConsoleMode(output, &mode) != nil {
		return func() {}
	}
	wanted := mode | windows.ENABLE_PROCESSED_OUTPUT | windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING
	if windows.SetConsoleMode(output, wanted) != nil {
		return func() {}
	}
	return func() { windows.SetConsoleMode(output, mode) } //nolint:errcheck // there is nobody left to tell
}

const sizeEvery = 250 * time.Millisecond

// watchConsole calls resized when the console's size has changed, which nothing tells here.
func watchConsole(ctx context.Context, resized, _ func()) {
	ticker := time.NewTicker(sizeEvery)
	defer ticker.Stop()
	last := terminalSize()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if size := terminalSize(); size != last {
				last = size
				resized()
			}
		}
	}
}

func awaitTurn(context.Context) {}
