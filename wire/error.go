package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
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
func (c Code) Error() string {
	if text, known := codeTexts[c]; known {
		return text
	}
	return strings.ReplaceAll(printable(string(c)), "_", " ")
}

// codeTexts are the codes that are no words without an article.
var codeTexts = map[Code]string{
	IsDirectory:  "is a directory",
	NotDirectory: "not a directory",
	NotRegular:   "not a regular file",
	Changed:      "changed meanwhile",
}

// Is reports whether target is the error of the standard library that means the same, so that an error made of a
// code is the same on the end where it was made as on the other.
func (c Code) Is(target error) bool {
	for _, identity := range identities {
		if identity.is == target && identity.code == c {
			return true
		}
	}
	return false
}

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

// Error is the sentence of the other end, or the code in words.
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
	return e.Code.Is(target) || slices.ContainsFunc(e.Also, func(code Code) bool { return code.Is(target) })
}

func (e *Error) has(code Code) bool { return e.Code == code || slices.Contains(e.Also, code) }

// add notes a code: the first is the error's own.
func (e *Error) add(codes ...Code) {
	for _, code := range codes {
		switch {
		case code == "":
		case e.Code == "":
			e.Code = code
		case !e.has(code):
			e.Also = append(e.Also, code)
		}
	}
}

// FromError makes the error that crosses for err: the one place where that is done.
func FromError(err error) *Error {
	e := &Error{Message: printable(err.Error())}
	e.collect(err)
	for _, identity := range identities {
		if errors.Is(err, identity.is) {
			e.add(identity.code)
		}
	}
	if e.Code == "" {
		e.Code = Internal
	}
	return e
}

// collect takes what the errors in err's tree say, outermost first.
func (e *Error) collect(err error) {
	switch x := err.(type) {
	case Code:
		e.add(x)
	case *Error:
		e.add(x.Code)
		e.add(x.Also...)
		e.at(x.Op, x.Path)
	case *fs.PathError:
		e.at(x.Op, Text(x.Path))
	}
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		if inner := x.Unwrap(); inner != nil {
			e.collect(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range x.Unwrap() {
			e.collect(inner)
		}
	}
}

// at notes where it happened, unless that is known.
func (e *Error) at(op string, path Text) {
	if e.Op == "" && e.Path == "" {
		e.Op, e.Path = printable(op), path
	}
}

// UnmarshalJSON implements [json.Unmarshaler]: what the peer sent is made fit to be shown.
func (e *Error) UnmarshalJSON(data []byte) error {
	type plain Error
	if err := json.Unmarshal(data, (*plain)(e)); err != nil {
		return err
	}
	if e.Code == "" {
		e.Code = Internal
	}
	e.Op, e.Message = printable(e.Op), printable(e.Message)
	return nil
}

// Shortened is e with its texts cut to n bytes each. The codes stay.
func (e *Error) Shortened(n int) *Error {
	s := *e
	if len(s.Message) > n {
		s.Message = strings.ToValidUTF8(s.Message[:n], "") + " …"
	}
	if len(s.Path) > n {
		s.Path = "" // a part of a path is another path
	}
	if len(s.Op) > n {
		s.Op = ""
	}
	return &s
}

// printable escapes what a terminal would obey; an error's text may hold names that others chose.
func printable(text string) string {
	if strings.IndexFunc(text, obeyed) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(text, "\uFFFD") {
		if obeyed(r) {
			fmt.Fprintf(&b, "\\x%02x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func obeyed(r rune) bool {
	return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0
}
