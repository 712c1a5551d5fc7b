package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is a string of a machine (an argument, a name, an environment entry): bytes that are UTF-8 mostly.
// In JSON it is a string where it is valid UTF-8 and {"b64": …} where it is not, so that every byte survives.
type Text string

// MarshalJSON implements [json.Marshaler].
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(struct {
		B64 []byte `json:"b64"`
	}{[]byte(t)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*t = Text(s)
		return nil
	}
	var object struct {
		B64 *[]byte `json:"b64"`
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return err
	}
	if object.B64 == nil {
		return fmt.Errorf("text is neither a string nor {\"b64\": …}")
	}
	*t = Text(*object.B64)
	return nil
}

// Texts turns strings into Text.
func Texts(in []string) []Text {
	return convert[Text](in)
}

// Strings turns Text into strings.
func Strings(in []Text) []string {
	return convert[string](in)
}

func convert[To, From ~string](in []From) []To {
	if in == nil {
		return nil
	}
	out := make([]To, len(in))
	for i, s := range in {
		out[i] = To(s)
	}
	return out
}

var errNotText = errors.New(`a string is not UTF-8; such bytes go as {"b64": …}`)

// decode decodes JSON from the other end. encoding/json would replace what is no text without a word, so that one
// name would become another.
func decode(data []byte, v any) error {
	if !utf8.Valid(data) || hasLoneSurrogate(data) {
		return errNotText
	}
	return json.Unmarshal(data, v)
}

// hasLoneSurrogate finds an escape \uD800 to \uDFFF that is not half of a pair.
func hasLoneSurrogate(data []byte) bool {
	unit := func(escape []byte) rune { // -1 if it is none
		if len(escape) < 6 || escape[0] != '\\' || escape[1] != 'u' {
			return -1
		}
		n, err := strconv.ParseUint(string(escape[2:6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(n)
	}
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 {
			return false
		}
		data = data[i:]
		length := min(2, len(data))
		if first := unit(data); utf16.IsSurrogate(first) {
			if utf16.DecodeRune(first, unit(data[6:])) == utf8.RuneError {
				return true
			}
			length = 12
		}
		data = data[length:]
	}
}
