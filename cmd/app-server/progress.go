package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"waldo/env/transfer"
)

const progressEvery = 200 * time.Millisecond

// showProgress keeps a line about a copy on standard error, which is a terminal, until stop takes it away.
func showProgress(progress *transfer.Progress) (stop func()) {
	done := make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		began, shown := time.Now(), false
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(os.Stderr, "\r%s\x1b[K", progressLine(progress, time.Since(began), int(terminalSize().Columns)))
				shown = true
			case <-done:
				if shown {
					fmt.Fprint(os.Stderr, "\r\x1b[K")
				}
				return
			}
		}
	})
	return func() {
		close(done)
		showing.Wait()
	}
}

// sayBesideProgress is say where a line about a copy may be on the terminal.
func sayBesideProgress(format string, args ...any) {
	fmt.Fprint(os.Stderr, "\r\x1b[K")
	say(format, args...)
}

// progressLine says how far a copy is: a bar as wide as there is room for, bytes, files, rate, and the time left once
// that can be known.
func progressLine(progress *transfer.Progress, since time.Duration, columns int) string {
	files, bytes := progress.Done()
	ofFiles, ofBytes, all := progress.Found()
	rate := float64(bytes) / max(since.Seconds(), 0.001)
	text := fmt.Sprintf(" %s of %s  %d of %d files  %s/s", bytesText(bytes), bytesText(ofBytes), files, ofFiles, bytesText(int64(rate)))
	if !all {
		text += "  (counting)"
	} else if left := float64(ofBytes-bytes) / max(rate, 1); bytes > 0 && since > time.Second {
		text += "  " + durationText(time.Duration(left*float64(time.Second)).Round(time.Second)) + " left"
	}
	const most, least = 30, 10
	width := min(most, columns-len(text)-len(" 100% []")-1)
	if width < least {
		return text[1:min(len(text), max(columns, 2))]
	}
	part := 0.0
	if ofBytes > 0 {
		part = min(1, float64(bytes)/float64(ofBytes))
	}
	full := int(part * float64(width))
	return fmt.Sprintf("%3d%% [%s%s]%s", int(part*100), strings.Repeat("=", full), strings.Repeat(" ", width-full), text)
}
