package jsonrpc

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// Decode stores a JSON value in what into points to. It is stricter than encoding/json:
//
//   - Keys are compared exactly and may come once; unknown ones are skipped.
//   - A field whose json tag has neither omitempty nor omitzero, and that is no pointer, has to be there. Only a pointer
//     may be null (it is then nil), and json.RawMessage.
//   - Numbers must fit, integers have neither fraction nor exponent. []byte is base64 with its padding.
//   - Text is UTF-8 without lone surrogates, nothing is nested deeper than 127, and nothing follows the value.
//
// Fields may be booleans, numbers, strings, slices, maps with string keys, structs, pointers to them, json.RawMessage,
// and types with UnmarshalJSON or UnmarshalText. The error tells where and what, and is meant for the other end. What
// into points to is then half filled. A json.RawMessage is a part of raw.
func Decode(raw json.RawMessage, into any) error {
	target := reflect.ValueOf(into)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("decode into %T, which is no pointer", into)
	}
	d := decoder{scanner{data: raw}}
	if err := d.decode(target.Elem()); err != nil {
		return err
	}
	return d.end()
}

// at tells below which field or element an error is.
type placeError struct {
	place string
	err   error
}

func (e *placeError) Error() string { return e.place + ": " + e.err.Error() }
func (e *placeError) Unwrap() error { return e.err }

// at puts a place before an error's.
func at(place string, err error) error {
	var inner *placeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &inner) && strings.HasPrefix(inner.place, "["):
		return &placeError{place + inner.place, inner.err}
	case inner != nil:
		return &placeError{place + "." + inner.place, inner.err}
	}
	return &placeError{place, err}
}

type decoder struct{ scanner }

var (
	rawMessage      = reflect.TypeFor[json.RawMessage]()
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decode stores the next value.
func (d *decoder) decode(v reflect.Value) error {
	t := v.Type()
	pointer := reflect.PointerTo(t)
	switch {
	case t == rawMessage:
		raw, err := d.skip()
		if err == nil {
			v.SetBytes(raw)
		}
		return err
	case t.Kind() == reflect.Pointer:
		if d.peek() == 'n' {
			v.SetZero()
			_, err := d.scalar()
			return err
		}
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		return d.decode(v.Elem())
	case pointer.Implements(unmarshaler):
		raw, err := d.skip()
		if err != nil {
			return err
		}
		return v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(raw)
	case pointer.Implements(textUnmarshaler):
		s, err := d.string()
		if err != nil {
			return err
		}
		return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s))
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.structure(v)
	case reflect.Map:
		return d.mapping(v)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return d.base64(v)
		}
		return d.slice(v)
	case reflect.String:
		s, err := d.string()
		if err == nil {
			v.SetString(s)
		}
		return err
	case reflect.Bool:
		raw, err := d.want("a boolean", 't', 'f')
		if err == nil {
			v.SetBool(raw[0] == 't')
		}
		return err
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		raw, err := d.want("an integer", '-', '0')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(raw), 10, t.Bits())
		if err != nil {
			return badInteger(raw, t)
		}
		v.SetInt(n)
		return nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		raw, err := d.want("an integer", '-', '0')
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(string(raw), 10, t.Bits())
		if err != nil {
			return badInteger(raw, t)
		}
		v.SetUint(n)
		return nil
	case reflect.Float32, reflect.Float64:
		raw, err := d.want("a number", '-', '0')
		if err != nil {
			return err
		}
		n, err := strconv.ParseFloat(string(raw), t.Bits())
		if err != nil {
			return fmt.Errorf("number %s is out of range", shorten(raw))
		}
		v.SetFloat(n)
		return nil
	}
	return fmt.Errorf("a %v cannot be decoded", t)
}

func badInteger(raw []byte, t reflect.Type) error {
	return fmt.Errorf("invalid number: %s is no %v", shorten(raw), t)
}

// want goes over a value of one kind, told by its first byte. '0' stands for every digit.
func (d *decoder) want(what string, first ...byte) ([]byte, error) {
	c := d.peek()
	if c >= '0' && c <= '9' {
		c = '0'
	}
	if bytes.IndexByte(first, c) < 0 || d.at == len(d.data) {
		return nil, d.mismatch(what)
	}
	if c == '{' || c == '[' {
		return nil, nil
	}
	return d.scalar()
}

// mismatch tells of a value of another kind, if it is a value at all.
func (d *decoder) mismatch(want string) error {
	kinds := map[byte]string{'{': "map", '[': "sequence", '"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}
	kind, ok := kinds[d.peek()]
	if !ok {
		kind = "number"
	}
	if err := d.value(); err != nil {
		return err
	}
	return fmt.Errorf("invalid type: %s, expected %s", kind, want)
}

func (d *decoder) string() (string, error) {
	raw, err := d.want("a string", '"')
	if err != nil {
		return "", err
	}
	return text(raw), nil
}

// base64 decodes straight from the message.
func (d *decoder) base64(v reflect.Value) error {
	raw, err := d.want("base64", '"')
	if err != nil {
		return err
	}
	in := raw[1 : len(raw)-1]
	if bytes.IndexByte(in, '\\') >= 0 {
		in = unescape(in)
		if i := bytes.IndexAny(in, "\r\n"); i >= 0 { // which the decoder would skip
			return fmt.Errorf("invalid base64: a line break at %d", i)
		}
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(in)))
	n, err := base64.StdEncoding.Strict().Decode(out, in)
	if err != nil {
		return fmt.Errorf("invalid base64: %w", err)
	}
	v.SetBytes(out[:n])
	return nil
}

func (d *decoder) slice(v reflect.Value) error {
	if _, err := d.want("a sequence", '['); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	return d.array(func(i int) error {
		if i == v.Cap() {
			v.Grow(1)
		}
		v.SetLen(i + 1)
		v.Index(i).SetZero()
		return at("["+strconv.Itoa(i)+"]", d.decode(v.Index(i)))
	})
}

func (d *decoder) mapping(v reflect.Value) error {
	t := v.Type()
	if t.Key().Kind() != reflect.String {
		return fmt.Errorf("a %v cannot be decoded", t)
	}
	if _, err := d.want("a map", '{'); err != nil {
		return err
	}
	v.Set(reflect.MakeMap(t))
	return d.object(func(key []byte) error {
		element := reflect.New(t.Elem()).Elem()
		if err := d.decode(element); err != nil {
			return at(shorten(key), err)
		}
		v.SetMapIndex(reflect.ValueOf(string(key)).Convert(t.Key()), element)
		return nil
	})
}

func (d *decoder) structure(v reflect.Value) error {
	fields, err := fieldsOf(v.Type())
	if err != nil {
		return err
	}
	if _, err := d.want("a map", '{'); err != nil {
		return err
	}
	seen := make([]bool, len(fields.list))
	err = d.object(func(key []byte) error {
		i, ok := fields.byName[string(key)]
		if !ok {
			return d.value()
		}
		seen[i] = true
		return at(fields.list[i].name, d.decode(v.Field(fields.list[i].index)))
	})
	if err != nil {
		return err
	}
	for i, f := range fields.list {
		if f.required && !seen[i] {
			return fmt.Errorf("missing field %q", f.name)
		}
	}
	return nil
}

// field is a struct's field as JSON has it.
type field struct {
	name     string
	index    int
	required bool
}

type fields struct {
	list   []field
	byName map[string]int
}

var knownFields sync.Map // of reflect.Type to fields

func fieldsOf(t reflect.Type) (fields, error) {
	if known, ok := knownFields.Load(t); ok {
		return known.(fields), nil
	}
	all := fields{byName: map[string]int{}}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			return fields{}, fmt.Errorf("a %v cannot be decoded: it embeds %s", t, f.Name)
		case !f.IsExported() || name == "-" && options == "":
			continue
		case name == "":
			name = f.Name
		}
		all.byName[name] = len(all.list)
		all.list = append(all.list, field{
			name:     name,
			index:    i,
			required: f.Type.Kind() != reflect.Pointer && !strings.Contains(options, "omit"),
		})
	}
	knownFields.Store(t, all)
	return all, nil
}
