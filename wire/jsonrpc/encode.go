package jsonrpc

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Appender is a params or result that writes itself to the end of a message, so that a large payload is encoded
// straight into what is sent. Everything else goes through encoding/json.
type Appender interface {
	// AppendJSON appends the value's JSON text to b.
	AppendJSON(b []byte) []byte
}

// AppendString appends a JSON string. What is not UTF-8 becomes U+FFFD: bytes that may be anything travel as base64.
func AppendString[T ~string | ~[]byte](b []byte, s T) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			b = utf8.AppendRune(b, r)
			i += size
			continue
		}
		i++
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ':
			b = append(b, c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(b, '"')
}

// AppendBase64 appends bytes as a JSON string in base64.
func AppendBase64(b, data []byte) []byte {
	b = slices.Grow(b, base64.StdEncoding.EncodedLen(len(data))+64) // and a little that follows
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, '"')
}

// appendValue appends any params or result.
func appendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case Appender:
		return v.AppendJSON(b), nil
	case json.RawMessage:
		switch {
		case len(v) == 0:
			return append(b, "null"...), nil
		case bytes.IndexByte(v, '\n') < 0: // which would end a line
			return append(b, v...), nil
		}
	}
	to := bytes.NewBuffer(b)
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false) // nobody puts this into a page
	if err := e.Encode(v); err != nil {
		return b, fmt.Errorf("encode %T: %w", v, err)
	}
	return bytes.TrimSuffix(to.Bytes(), []byte("\n")), nil
}

// appendReply makes the answer to a request.
func appendReply(b []byte, id ID, result any) ([]byte, error) {
	b = append(b, `{"id":`...)
	b = append(b, id.text...)
	b = append(b, `,"result":`...)
	b, err := appendValue(b, result)
	return append(b, '}'), err
}

// appendError makes the answer that is an error.
func appendError(b []byte, id ID, e *Error) []byte {
	b = append(b, `{"id":`...)
	b = append(b, id.text...)
	b = append(b, `,"error":{"code":`...)
	b = fmt.Append(b, e.Code)
	b = append(b, `,"message":`...)
	b = AppendString(b, e.Message)
	if len(e.Data) > 0 {
		b = append(b, `,"data":`...)
		b = append(b, e.Data...)
	}
	return append(b, "}}"...)
}

// appendRequest makes a request, or a notification if the id is zero.
func appendRequest(b []byte, id ID, method string, params any) ([]byte, error) {
	b = append(b, '{')
	if !id.IsZero() {
		b = append(b, `"id":`...)
		b = append(b, id.text...)
		b = append(b, ',')
	}
	b = append(b, `"method":`...)
	b = AppendString(b, method)
	b = append(b, `,"params":`...)
	b, err := appendValue(b, params)
	return append(b, '}'), err
}
