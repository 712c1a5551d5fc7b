package jsonrpc

import "encoding/json"

// Decode stores a JSON value in what into points to. It is stricter than encoding/json:
//
//   - Keys are compared exactly and may come once; unknown ones are skipped.
//   - A field whose json tag has neither omitempty nor omitzero, and that is no pointer, has to be there. Only a pointer
//     may be null (it is then nil), and json.RawMessage.
//   - Numbers must fit, integers have neither fraction nor exponent. []byte is base64 with its padding.
//   - Text is UTF-8 without lone surrogates, nothing is nested deeper than 128, and nothing follows the value.
//
// Fields may be booleans, numbers, strings, slices, maps with string keys, structs, pointers to them, json.RawMessage,
// and types with UnmarshalJSON or UnmarshalText. The error tells where and what, and is meant for the other end.
func Decode(raw json.RawMessage, into any) error { panic("not yet") }
