package jsonrpc

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Codes of errors.
const (
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
)

// ID is a request's id as it came: a JSON string or a 64-bit integer. It is comparable. The zero ID is that of a
// notification.
type ID struct{ text string }

// IntegerID makes an ID of a number.
func IntegerID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// IsZero reports whether there is no id.
func (id ID) IsZero() bool { return id.text == "" }

// String is the JSON text, or "" of the zero ID.
func (id ID) String() string { return id.text }

// Request is a request or, with the zero ID, a notification. Its params may be kept.
type Request struct {
	ID     ID
	Method string
	Params json.RawMessage // "null" if there are none
}

// Error is the error of an answer.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Errorf makes an Error without data.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error tells the message and the code.
func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }
