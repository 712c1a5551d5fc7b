package jsonrpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// What one message may hold.
const (
	maxDepth  = 127 // as in Codex
	maxValues = 256 << 10
)

var errEnd = errors.New("it ends in the middle of a value")

// scanner goes through JSON text once and checks all of it.
type scanner struct {
	data   []byte
	at     int
	depth  int
	values int
	keys   [][]byte // of the objects that are open, the innermost's last
}

// fail makes an error that names the place.
func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("%s at byte %d", fmt.Sprintf(format, args...), s.at)
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek is the first byte of what comes next, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.at == len(s.data) {
		return 0
	}
	return s.data[s.at]
}

// unexpected tells of a byte that cannot be here.
func (s *scanner) unexpected(want string) error {
	if s.at >= len(s.data) {
		return errEnd
	}
	return s.fail("%q where %s should be", rune(s.data[s.at]), want)
}

// end checks that nothing follows.
func (s *scanner) end() error {
	if s.peek(); s.at < len(s.data) {
		return s.fail("something follows the value")
	}
	return nil
}

// open enters an object or array.
func (s *scanner) open() error {
	if s.depth++; s.depth > maxDepth {
		return s.fail("values are nested deeper than %d", maxDepth)
	}
	s.at++
	return nil
}

// count counts one more value.
func (s *scanner) count() error {
	if s.values++; s.values > maxValues {
		return s.fail("there are more than %d values", maxValues)
	}
	return nil
}

// value goes over the next value, whatever it is.
func (s *scanner) value() error {
	switch s.peek() {
	case '{':
		return s.object(func([]byte) error { return s.value() })
	case '[':
		return s.array(func(int) error { return s.value() })
	}
	_, err := s.scalar()
	return err
}

// skip goes over the next value and returns its text.
func (s *scanner) skip() ([]byte, error) {
	s.space()
	start := s.at
	if err := s.value(); err != nil {
		return nil, err
	}
	return s.data[start:s.at:s.at], nil
}

// scalar goes over a string, number or literal and returns its text.
func (s *scanner) scalar() ([]byte, error) {
	if err := s.count(); err != nil {
		return nil, err
	}
	start := s.at
	var err error
	switch c := s.peek(); {
	case c == '"':
		start = s.at
		_, _, err = s.str()
	case c == '-' || c >= '0' && c <= '9':
		start = s.at
		err = s.number()
	case c >= 'a' && c <= 'z':
		start = s.at
		err = s.literal()
	default:
		err = s.unexpected("a value")
	}
	return s.data[start:s.at:s.at], err
}

// object goes over an object. member is called at each value, with the key, and has to go over the value.
func (s *scanner) object(member func(key []byte) error) error {
	if err := s.count(); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	first := len(s.keys)
	var many map[string]bool
	for more := s.peek() != '}'; more; {
		if s.peek() != '"' {
			return s.unexpected("a key")
		}
		text, escaped, err := s.str()
		if err != nil {
			return err
		}
		key := text
		if escaped {
			key = unescape(text)
		}
		if many, err = s.unique(key, s.keys[first:], many); err != nil {
			return err
		}
		s.keys = append(s.keys, key)
		if s.peek() != ':' {
			return s.unexpected("a colon")
		}
		s.at++
		if err := member(key); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.at++
		case '}':
			more = false
		default:
			return s.unexpected("a comma or a brace")
		}
	}
	clear(s.keys[first:])
	s.keys = s.keys[:first]
	s.depth--
	s.at++
	return nil
}

// unique checks that a key is not among those before it. Above a few they are in a map.
func (s *scanner) unique(key []byte, before [][]byte, many map[string]bool) (map[string]bool, error) {
	const few = 16
	twice := false
	switch {
	case many != nil:
		twice = many[string(key)]
		many[string(key)] = true
	case len(before) < few:
		for _, other := range before {
			twice = twice || bytes.Equal(key, other)
		}
	default:
		many = make(map[string]bool, 4*few)
		for _, other := range before {
			many[string(other)] = true
		}
		twice = many[string(key)]
		many[string(key)] = true
	}
	if twice {
		return many, s.fail("duplicate JSON object key %s", shorten(key))
	}
	return many, nil
}

// array goes over an array. element is called at each value and has to go over it.
func (s *scanner) array(element func(i int) error) error {
	if err := s.count(); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	for i, more := 0, s.peek() != ']'; more; i++ {
		if err := element(i); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.at++
		case ']':
			more = false
		default:
			return s.unexpected("a comma or a bracket")
		}
	}
	s.depth--
	s.at++
	return nil
}

// str goes over a string. It returns what is between the quotes and whether there are escapes in it.
func (s *scanner) str() (text []byte, escaped bool, err error) {
	s.at++
	start, ascii := s.at, true
	for {
		n, plain := plainPrefix(s.data[s.at:])
		s.at += n
		ascii = ascii && plain
		if s.at >= len(s.data) {
			return nil, false, errEnd
		}
		switch c := s.data[s.at]; {
		case c == '"':
			text = s.data[start:s.at:s.at]
			if !ascii && !utf8.Valid(text) {
				return nil, false, s.fail("the string is not UTF-8 that ends")
			}
			s.at++
			return text, escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, false, err
			}
		default:
			return nil, false, s.fail("control character %#02x in the string", c)
		}
	}
}

// plainPrefix is how many bytes at the start of b are neither quote, backslash nor control character, and whether all
// of them are ASCII.
func plainPrefix(b []byte) (n int, ascii bool) {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	var high uint64
	for ; n+8 <= len(b); n += 8 {
		w := binary.LittleEndian.Uint64(b[n:])
		quote := w ^ '"'*ones
		slash := w ^ '\\'*ones
		// The lowest high bit that is set is right; those above may be set by a borrow.
		found := ((w-' '*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & highs
		if found != 0 {
			k := bits.TrailingZeros64(found) / 8
			high |= w & (1<<(8*k) - 1)
			return n + k, high&highs == 0
		}
		high |= w
	}
	ascii = high&highs == 0
	for ; n < len(b); n++ {
		c := b[n]
		if c == '"' || c == '\\' || c < ' ' {
			break
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return n, ascii
}

// escape goes over a backslash and what belongs to it.
func (s *scanner) escape() error {
	if s.at+1 >= len(s.data) {
		return errEnd
	}
	switch s.data[s.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return nil
	case 'u':
		r, ok := hex4(s.data[s.at:])
		if !ok {
			return s.fail(`\u without four digits`)
		}
		if !utf16.IsSurrogate(r) {
			s.at += 6
			return nil
		}
		low, ok := hex4(s.data[s.at+6:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return s.fail("half of a surrogate pair")
		}
		s.at += 12
		return nil
	}
	return s.fail("unknown escape")
}

// hex4 is the number in \uXXXX at the start of b.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unescape resolves the escapes of a string that has been gone over.
func unescape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return append(out, text...)
		}
		out = append(out, text[:i]...)
		c := text[i+1]
		if c != 'u' {
			if plain := bytes.IndexByte([]byte("bfnrt"), c); plain >= 0 {
				c = "\b\f\n\r\t"[plain]
			}
			out = append(out, c)
			text = text[i+2:]
			continue
		}
		r, _ := hex4(text[i:])
		text = text[i+6:]
		if utf16.IsSurrogate(r) {
			low, _ := hex4(text)
			r = utf16.DecodeRune(r, low)
			text = text[6:]
		}
		out = utf8.AppendRune(out, r)
	}
}

// number goes over a number, which may be any.
func (s *scanner) number() error {
	digits := func() bool {
		from := s.at
		for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
			s.at++
		}
		return s.at > from
	}
	is := func(set string) bool {
		ok := s.at < len(s.data) && bytes.IndexByte([]byte(set), s.data[s.at]) >= 0
		if ok {
			s.at++
		}
		return ok
	}
	is("-")
	if !is("0") && !digits() {
		return s.unexpected("a digit")
	}
	if is(".") && !digits() {
		return s.unexpected("a digit")
	}
	if is("eE") {
		is("+-")
		if !digits() {
			return s.unexpected("a digit")
		}
	}
	return nil
}

// literal goes over true, false or null.
func (s *scanner) literal() error {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.data[s.at:], []byte(word)) {
			s.at += len(word)
			return nil
		}
	}
	if len(s.data)-s.at < len("true") {
		return errEnd
	}
	return s.unexpected("a value")
}

// shorten quotes text of the other end for an error.
func shorten(text []byte) string {
	const most = 64
	if len(text) <= most {
		return strconv.Quote(string(text))
	}
	return strconv.Quote(string(text[:most])) + "…"
}
