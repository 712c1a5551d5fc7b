package wire

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Code is a kind of failure that crosses the wire. A Code is an error itself, so that errors.Is(err, code)
// asks for the kind on either end. The set is closed and append-only.
type Code string

// The codes.
const (
	Invalid            Code = "invalid"
	NotFound           Code = "not_found"
	Exists             Code = "exists"
	Permission         Code = "permission"
	NotRegular         Code = "not_regular"
	IsDirectory        Code = "is_directory"
	NotDirectory       Code = "not_directory"
	NotEmpty           Code = "not_empty"
	CrossConvention    Code = "cross_convention"
	TooLarge           Code = "too_large"
	Limit              Code = "limit"
	Unsupported        Code = "unsupported"
	Canceled           Code = "canceled"
	Deadline           Code = "deadline"
	Unauthenticated    Code = "unauthenticated"
	Fenced             Code = "fenced"
	Restarted          Code = "restarted"
	UnknownOutcome     Code = "unknown_outcome"
	Changed            Code = "changed"
	UnknownProcess     Code = "unknown_process"
	StdinClosed        Code = "stdin_closed"
	StartFailed        Code = "start_failed"
	SandboxUnavailable Code = "sandbox_unavailable"
	SandboxDenied      Code = "sandbox_denied"
	Internal           Code = "internal"
	Expired            Code = "expired"
)

// Error is the code in words.
func (c Code) Error() string { return strings.ReplaceAll(string(c), "_", " ") }

// ErrCut says that a connection ended in the middle of a call: what was not heard is not known.
var ErrCut = errors.New("connection lost")

var errProtocol = errors.New("protocol error")

// identities ties the codes to the errors of the standard library that mean the same, most telling first.
var identities = []struct {
	code Code
	is   error
}{
	{NotFound, fs.ErrNotExist},
	{Exists, fs.ErrExist},
	{Permission, fs.ErrPermission},
	{Unsupported, errors.ErrUnsupported},
	{Canceled, context.Canceled},
	{Deadline, context.DeadlineExceeded},
	{Deadline, os.ErrDeadlineExceeded},
	{Invalid, fs.ErrInvalid},
}

// Error is the one error that crosses the wire. errors.Is works on it as it did on the error it was made of:
// for codes, and for the errors of the standard library that have one.
type Error struct {
	Code    Code   `json:"code"`
	Op      string `json:"op,omitempty"`
	Path    Text   `json:"path,omitempty"`
	Message string `json:"message,omitempty"` // the whole sentence, as the other end has it
	Also    []Code `json:"also,omitempty"`    // further codes that errors.Is is to find
}

func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Code.Error()
}

// Is reports whether target is the error's code, one of its further codes, or what they stand for.
func (e *Error) Is(target error) bool {
	if code, ok := target.(Code); ok {
		return e.has(code)
	}
	for _, identity := range identities {
		if identity.is == target && e.has(identity.code) {
			return true
		}
	}
	return false
}

func (e *Error) has(code Code) bool {
	if e.Code == code {
		return true
	}
	for _, also := range e.Also {
		if also == code {
			return true
		}
	}
	return false
}

// FromError makes the error that crosses for err: the one place where that is done.
func FromError(err error) *Error {
	var crossed *Error
	if errors.As(err, &crossed) {
		if crossed.Message == err.Error() {
			return crossed
		}
		copied := *crossed
		copied.Message = printable(err.Error())
		return &copied
	}
	e := &Error{Message: printable(err.Error())}
	add := func(code Code) {
		switch {
		case e.Code == "":
			e.Code = code
		case !e.has(code):
			e.Also = append(e.Also, code)
		}
	}
	for _, code := range codesIn(err, nil) {
		add(code)
	}
	for _, identity := range identities {
		if errors.Is(err, identity.is) {
			add(identity.code)
		}
	}
	if e.Code == "" {
		e.Code = Internal
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		e.Op, e.Path = path.Op, Text(path.Path)
	}
	return e
}

// codesIn collects the codes in err's tree, outermost first.
func codesIn(err error, found []Code) []Code {
	if code, ok := err.(Code); ok {
		return append(found, code)
	}
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		if inner := x.Unwrap(); inner != nil {
			return codesIn(inner, found)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range x.Unwrap() {
			found = codesIn(inner, found)
		}
	}
	return found
}

// printable escapes what a terminal would obey; an error's text may hold names that others chose.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}
