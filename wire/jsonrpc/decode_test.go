package jsonrpc

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// upper is a type that decodes itself from text.
type upper string

func (u *upper) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("empty")
	}
	*u = upper(strings.ToUpper(string(text)))
	return nil
}

// either is a type that decodes itself from JSON.
type either struct{ raw string }

func (e *either) UnmarshalJSON(raw []byte) error { e.raw = string(raw); return nil }

type inner struct {
	A int    `json:"a"`
	B string `json:"b,omitempty"`
}

type everything struct {
	Bool   bool              `json:"bool,omitempty"`
	Int    int64             `json:"int,omitempty"`
	Int8   int8              `json:"int8,omitempty"`
	Uint   uint64            `json:"uint,omitempty"`
	Uint16 uint16            `json:"uint16,omitempty"`
	Float  float64           `json:"float,omitempty"`
	Float3 float32           `json:"float32,omitempty"`
	Text   string            `json:"text,omitempty"`
	Bytes  []byte            `json:"bytes,omitempty"`
	List   []string          `json:"list,omitempty"`
	Lists  [][]int           `json:"lists,omitempty"`
	Map    map[string]string `json:"map,omitempty"`
	Inner  inner             `json:"inner,omitzero"`
	Inners []inner           `json:"inners,omitempty"`
	Option *string           `json:"option"`
	Maybe  *inner            `json:"maybe"`
	Raw    json.RawMessage   `json:"raw,omitempty"`
	Upper  upper             `json:"upper,omitempty"`
	Hidden string            `json:"-"`
	Named  int               `json:",omitempty"`
}

func TestDecode(t *testing.T) {
	text := func(s string) *string { return &s }
	tests := map[string]struct {
		in   string
		want everything
		err  string // in the error
	}{
		"nothing":            {in: `{}`},
		"blanks":             {in: " \t\r\n{ \"int\" : 1 , \"text\" : \"x\" } \n", want: everything{Int: 1, Text: "x"}},
		"unknown":            {in: `{"x":{"y":[1,{"z":null}]},"int":1}`, want: everything{Int: 1}},
		"other case":         {in: `{"INT":1,"Int":2,"named":3,"Hidden":"x","-":1}`},
		"no tag name":        {in: `{"Named":3}`, want: everything{Named: 3}},
		"lowest and highest": {in: `{"int":-9223372036854775808,"uint":18446744073709551615,"int8":-128,"uint16":65535}`, want: everything{Int: math.MinInt64, Uint: math.MaxUint64, Int8: -128, Uint16: 65535}},
		"floats":             {in: `{"float":1e308,"float32":-0.5e-3}`, want: everything{Float: 1e308, Float3: -0.5e-3}},
		"escapes":            {in: `{"text":"\u00e9\ud83d\ude00\/\\\"\b\f\n\r\t"}`, want: everything{Text: "é😀/\\\"\b\f\n\r\t"}},
		"escaped key":        {in: `{"te\u0078t":"x"}`, want: everything{Text: "x"}},
		"zero byte in text":  {in: `{"text":"a\u0000b"}`, want: everything{Text: "a\x00b"}},
		"markup":             {in: `{"text":"<&>"}`, want: everything{Text: "<&>"}},
		"base64":             {in: `{"bytes":"/zwmPg=="}`, want: everything{Bytes: []byte("\xff<&>")}},
		"base64, escaped":    {in: `{"bytes":"\/zwmPg\u003d="}`, want: everything{Bytes: []byte("\xff<&>")}},
		"base64, empty":      {in: `{"bytes":""}`, want: everything{Bytes: []byte{}}},
		"lists":              {in: `{"list":["a","b","c"],"lists":[[],[1,2],[3]]}`, want: everything{List: []string{"a", "b", "c"}, Lists: [][]int{{}, {1, 2}, {3}}}},
		"map":                {in: `{"map":{"a":"b","A":"c","":"d"}}`, want: everything{Map: map[string]string{"a": "b", "A": "c", "": "d"}}},
		"structs":            {in: `{"inner":{"a":1},"inners":[{"a":2,"b":"x"},{"a":3}]}`, want: everything{Inner: inner{A: 1}, Inners: []inner{{2, "x"}, {3, ""}}}},
		"pointers":           {in: `{"option":"x","maybe":{"a":1}}`, want: everything{Option: text("x"), Maybe: &inner{A: 1}}},
		"null pointers":      {in: `{"option":null,"maybe":null}`},
		"raw":                {in: `{"raw": {"a": [null]} }`, want: everything{Raw: json.RawMessage(`{"a": [null]}`)}},
		"raw null":           {in: `{"raw":null}`, want: everything{Raw: json.RawMessage(`null`)}},
		"text of its own":    {in: `{"upper":"\u0061b"}`, want: everything{Upper: "AB"}},

		"text of its own, bad": {in: `{"upper":""}`, err: "upper: empty"},
		"missing":              {in: `{"inners":[{"a":1},{"b":"x"}]}`, err: `inners[1]: missing field "a"`},
		"null list":            {in: `{"list":null}`, err: "list: invalid type: null, expected a sequence"},
		"null struct":          {in: `{"inner":null}`, err: "inner: invalid type: null, expected a map"},
		"null text":            {in: `{"text":null}`, err: "invalid type: null, expected a string"},
		"null":                 {in: `null`, err: "invalid type: null, expected a map"},
		"array":                {in: `[]`, err: "invalid type: sequence, expected a map"},
		"number for text":      {in: `{"list":["a",1]}`, err: "list[1]: invalid type: number, expected a string"},
		"text for number":      {in: `{"int":"1"}`, err: "int: invalid type: string, expected an integer"},
		"number for boolean":   {in: `{"bool":1}`, err: "invalid type: number, expected a boolean"},
		"place":                {in: `{"lists":[[1],[2,"x"]]}`, err: "lists[1][1]: invalid type: string"},
		"place in a map":       {in: `{"map":{"k":1}}`, err: `map."k": invalid type: number`},
		"fraction":             {in: `{"int":1.0}`, err: "int: invalid number"},
		"exponent":             {in: `{"int":1e3}`, err: "int: invalid number"},
		"over int8":            {in: `{"int8":128}`, err: "int8: invalid number"},
		"under uint":           {in: `{"uint":-1}`, err: "uint: invalid number"},
		"over uint64":          {in: `{"uint":18446744073709551616}`, err: "uint: invalid number"},
		"over float64":         {in: `{"float":1e309}`, err: "out of range"},
		"over float64, long":   {in: `{"float":1` + strings.Repeat("0", 400) + `}`, err: "out of range"},
		"over float32":         {in: `{"float32":1e39}`, err: "out of range"},
		"base64 unpadded":      {in: `{"bytes":"/zwmPg"}`, err: "bytes: invalid base64"},
		"base64 of URLs":       {in: `{"bytes":"_zwmPg=="}`, err: "bytes: invalid base64"},
		"base64, stray bits":   {in: `{"bytes":"/zwmPh=="}`, err: "bytes: invalid base64"},
		"base64, line break":   {in: `{"bytes":"/zwm\nPg=="}`, err: "bytes: invalid base64"},
		"base64, list":         {in: `{"bytes":[1]}`, err: "invalid type: sequence, expected base64"},
		"duplicate":            {in: `{"int":1,"int":1}`, err: `duplicate JSON object key "int"`},
		"duplicate unknown":    {in: `{"x":1,"\u0078":1}`, err: `duplicate JSON object key "x"`},
		"duplicate in map":     {in: `{"map":{"a":"b","a":"b"}}`, err: `duplicate JSON object key "a"`},
		"invalid UTF-8":        {in: "{\"text\":\"\xff\"}", err: "UTF-8"},
		"half a character":     {in: "{\"text\":\"é\xc3\"}", err: "UTF-8"},
		"low surrogate":        {in: `{"text":"\udc00"}`, err: "surrogate"},
		"high surrogate":       {in: `{"text":"\ud800\u0041"}`, err: "surrogate"},
		"trailing":             {in: `{} x`, err: "something follows"},
		"zero byte":            {in: "{}\x00", err: "something follows"},
		"nothing at all":       {in: ``, err: "ends in the middle"},
		"cut":                  {in: `{"int"`, err: "ends in the middle"},
		"cut literal":          {in: `{"bool":tr`, err: "ends in the middle"},
		"comma":                {in: `{"int":1,}`, err: "where a key should be"},
		"deep":                 {in: `{"raw":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + `}`, err: "nested deeper than 127"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got everything
			err := Decode(json.RawMessage(test.in), &got)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error is %v, want %q in it", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeDepth(t *testing.T) {
	for depth, ok := range map[int]bool{1: true, maxDepth: true, maxDepth + 1: false, 1_000_000: false} {
		var raw json.RawMessage
		err := Decode(json.RawMessage(strings.Repeat("[", depth)+strings.Repeat("]", depth)), &raw)
		if (err == nil) != ok {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}

// What has to be there does not depend on how many keys there are.
func TestManyKeys(t *testing.T) {
	var b strings.Builder
	for i := range 5000 {
		b.WriteString(`"k`)
		b.WriteString(strings.Repeat("x", i%7))
		b.WriteString(IntegerID(int64(i)).String())
		b.WriteString(`":1,`)
	}
	var got map[string]int
	if err := Decode(json.RawMessage("{"+b.String()+`"k":2}`), &got); err != nil || len(got) != 5001 {
		t.Errorf("%d keys, %v", len(got), err)
	}
	if err := Decode(json.RawMessage("{"+b.String()+`"kx1":2}`), &got); err == nil || !strings.Contains(err.Error(), "duplicate") {
		t.Errorf("error is %v", err)
	}
}

// Types that cannot be decoded are told, and nothing panics.
func TestDecodeInto(t *testing.T) {
	type embeds struct{ inner }
	var number int
	var e either
	for name, into := range map[string]any{
		"no pointer": number, "nil": (*int)(nil), "channel": new(chan int), "any": new(any),
		"embedding": new(embeds), "map": new(map[int]string), "unknown": new(func()),
	} {
		if err := Decode(json.RawMessage(`{"1":"x"}`), into); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := Decode(json.RawMessage(` {"a": 1} `), &e); err != nil || e.raw != `{"a": 1}` {
		t.Errorf("%q, %v", e.raw, err)
	}
}

// What Decode accepts, encoding/json decodes to the same, as far as it compares keys exactly.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"int":1,"uint":2,"float":-1.5e3,"text":"\u00e9\ud83d\ude00\n","bytes":"AAE=","list":["a"],"lists":[[1],[]]}`,
		`{"map":{"a":"b"},"inner":{"a":1,"b":"c"},"inners":[{"a":1}],"option":"x","maybe":{"a":-0},"raw":[{"x":null}],"upper":"x","Named":1}`,
		`{"bool":true,"int8":-128,"uint16":65535,"float32":1e38,"option":null}`,
		"{\"text\":\"\xff\"}", `{"a":1,"a":2}`, `[[[[]]]]`, `{"text":"\ud800"}`, `{"int":01}`, ` {"int" : 1 } `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got everything
		err := Decode(data, &got)
		if err == nil && (!json.Valid(data) || !utf8.Valid(data)) {
			t.Fatalf("%q is accepted", data)
		}
		var known map[string]json.RawMessage
		if err != nil || folds(data, &known) {
			return
		}
		var want everything
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("%q is accepted, and encoding/json says %v", data, err)
		}
		// An absent raw message and null are told apart here, and empty lists are never nil.
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q: %s", data, diff)
		}
	})
}

// folds reports whether encoding/json would see a field in a key that is written otherwise.
func folds(data []byte, keys *map[string]json.RawMessage) bool {
	if json.Unmarshal(data, keys) != nil {
		return true
	}
	exact := map[string]bool{}
	for _, name := range []string{"bool", "int", "int8", "uint", "uint16", "float", "float32", "text", "bytes", "list", "lists", "map", "inner", "inners", "option", "maybe", "raw", "upper", "Named", "a", "b"} {
		exact[name] = true
	}
	var any func(raw json.RawMessage) bool
	any = func(raw json.RawMessage) bool {
		var object map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(raw, &object) == nil {
			for key, value := range object {
				if !exact[key] {
					for name := range exact {
						if strings.EqualFold(name, key) {
							return true
						}
					}
				}
				if any(value) {
					return true
				}
			}
		} else if json.Unmarshal(raw, &list) == nil {
			for _, value := range list {
				if any(value) {
					return true
				}
			}
		}
		return false
	}
	return any(data)
}

// A message is taken apart as encoding/json would, whatever it is, and what is wrong has an id that can be sent.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"method":"m","params":{"a":1}}`, `{"method":"m"}`, `{"id":"x","result":null}`,
		`{"id":1,"error":{"code":-32600,"message":"x","data":[1]}}`, `{"id":1.5,"method":"m"}`, `{"id":5,"method":"m","params":{"a":`,
		`{"id":"\ud800","method":1}`, `[]`, `{"params":"{\"id\":4}","method":"x","id":9223372036854775807 x`, `{"id":3,"\`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data)
		if err != nil {
			if m.ID.IsZero() {
				t.Fatalf("%q has no id for its answer", data)
			}
			reply := appendError(nil, m.ID, Errorf(CodeInvalidRequest, "%v", err))
			if again, err := parse(reply); err != nil || again.ID != m.ID || again.err == nil {
				t.Fatalf("%q is answered with %q, which is %+v, %v", data, reply, again, err)
			}
			return
		}
		var want struct {
			ID     json.RawMessage
			Method *string
		}
		var keys map[string]json.RawMessage
		if !json.Valid(data) || json.Unmarshal(data, &keys) != nil {
			t.Fatalf("%q is accepted", data)
		}
		want.ID = keys["id"]
		if string(want.ID) != m.ID.String() {
			t.Fatalf("%q: the id is %s", data, m.ID)
		}
		if method, ok := keys["method"]; ok {
			if json.Unmarshal(method, &want.Method) != nil || *want.Method != m.Method {
				t.Fatalf("%q: the method is %q", data, m.Method)
			}
		}
	})
}

// plainPrefix sees what a loop over bytes sees.
func FuzzPlainPrefix(f *testing.F) {
	for _, seed := range []string{"", "abcdefgh", "abcdefg\"", "abc\\efgh\"", "\x1fabcdefgh", "éabcdefg\"x", " !#[]~\x7f\x80\xff", "!\"!!!!!!", "]\\]]]]]]", " \x1f      "} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want, ascii := 0, true
		for ; want < len(b) && b[want] != '"' && b[want] != '\\' && b[want] >= ' '; want++ {
			ascii = ascii && b[want] < utf8.RuneSelf
		}
		if n, plain := plainPrefix(b); n != want || plain != ascii {
			t.Fatalf("%q: %d %v, want %d %v", b, n, plain, want, ascii)
		}
	})
}

// What is appended can be read again and, but for bytes that are not UTF-8, is the same.
func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "<&>", "\xff", "é😀\u2028", "\x00\x1f\x7f\"\\\n\r\t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got, want string
		if err := Decode(AppendString(nil, s), &got); err != nil {
			t.Fatal(err)
		}
		encoded, _ := json.Marshal(s)
		if err := json.Unmarshal(encoded, &want); err != nil || got != want {
			t.Fatalf("%q becomes %q, want %q", s, got, want)
		}
	})
}
