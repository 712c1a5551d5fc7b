// Command app-server drives environments: this machine, and others where an exec-server runs.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// version is that of the next release; the linker sets it for a release itself (-X main.version=…).
var version = "0.1.0-dev"

const programName = "app-server"

// The exit codes that are ours.
const (
	codeFailure    = 1   // of a command that runs nothing
	codeOurFailure = 125 // of a command that runs something, when it is not that which failed
	codeNoStart    = 126 // found, but it cannot be started
	codeNotFound   = 127
	codeSignalled  = 128 // and the number of the signal
	codeBrokenPipe = codeSignalled + 13
	codeOutOfRange = 255 // for a code that the system here cannot return
)

// The annotation of the commands whose exit code is that of what they run.
const (
	runsSomething   = "runs-something"
	annotationValue = "true"
)

func main() {
	root := newRoot()
	command, err := root.ExecuteC()
	os.Exit(report(command, err))
}

// exitError ends the program with a code. Without an error there is nothing left to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// report says what went wrong, in one line, and returns the exit code.
func report(command *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	code := codeFailure
	if command.Annotations[runsSomething] == annotationValue {
		code = codeOurFailure
	}
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
		if exit.err == nil {
			return code
		}
	}
	say("%v", err)
	return code
}

// say writes one line to standard error. What would be a control byte there is escaped.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s: %s\n", programName, oneLine(fmt.Sprintf(format, args...)))
}

// oneLine makes a text fit a line: errors that were joined stand behind each other, other controls are escaped.
func oneLine(text string) string {
	return escapeControls(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}
