package wire

import (
	"encoding/json"
	"fmt"
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
