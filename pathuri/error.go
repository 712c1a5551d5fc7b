package pathuri

import (
	"errors"
	"strconv"
)

// ErrConvention is what [errors.Is] finds in an error of [URI.NativeFor] when the URI is for a machine of another
// convention.
var ErrConvention = errors.New("path is for a machine of another convention")

// Error says why a text is no path URI, or why a URI has no native form. Every error of this package is an *Error.
type Error struct {
	Input  string // the text or URI as given
	Reason string // what is wrong with it and, where it helps, what to write instead

	kind error // ErrConvention or nil
}

// maxShown bounds how much of an input a message repeats.
const maxShown = 256

// Error names the input, quoted and escaped, and the reason.
func (e *Error) Error() string {
	shown, more := e.Input, ""
	if len(shown) > maxShown {
		shown, more = shown[:maxShown], "…"
	}
	return "path " + strconv.Quote(shown) + more + ": " + e.Reason
}

// Unwrap returns ErrConvention if the convention is what is wrong.
func (e *Error) Unwrap() error { return e.kind }

// fail turns the reason that an internal function gives into an Error about input.
func fail(input string, reason error) error {
	return &Error{Input: input, Reason: reason.Error()}
}

var (
	errNoURI = errors.New("no path URI given")
	errNUL   = errors.New("a path cannot hold a NUL")
)
