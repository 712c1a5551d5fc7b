package jsonrpc

// Appender is a params or result that writes itself to the end of a message, so that a large payload is encoded
// straight into what is sent. Everything else goes through encoding/json.
type Appender interface {
	// AppendJSON appends the value's JSON text to b.
	AppendJSON(b []byte) []byte
}

// AppendString appends a JSON string. What is not UTF-8 becomes U+FFFD: bytes that may be anything travel as base64.
func AppendString(b []byte, s string) []byte { panic("not yet") }

// AppendBase64 appends bytes as a JSON string in base64.
func AppendBase64(b, data []byte) []byte { panic("not yet") }
