package pathuri

import (
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// Windows names are UTF-16 that need not be valid. In Go text they are WTF-8: UTF-8 in which a lone surrogate is
// three bytes, as the syscall package spells it.

// decodeUTF16 turns UTF-16LE bytes into WTF-8. The length must be even.
func decodeUTF16(units string) string {
	b := make([]byte, 0, len(units))
	at := func(i int) rune { return rune(units[i]) | rune(units[i+1])<<8 }
	for i := 0; i < len(units); i += 2 {
		r := at(i)
		if utf16.IsSurrogate(r) {
			pair := utf8.RuneError
			if i+2 < len(units) {
				pair = utf16.DecodeRune(r, at(i+2))
			}
			if pair == utf8.RuneError {
				b = append(b, 0xED, byte(0x80|r>>6&0x3F), byte(0x80|r&0x3F))
				continue
			}
			r = pair
			i += 2
		}
		b = utf8.AppendRune(b, r)
	}
	return string(b)
}

// encodeUTF16 turns WTF-8 into UTF-16LE bytes; ok is false if text is not WTF-8.
func encodeUTF16(text string) (units string, ok bool) {
	b := make([]byte, 0, 2*len(text))
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			if r, ok = surrogate(text[i:]); !ok {
				return "", false
			}
			n = 3
		}
		i += n
		if r >= 0x10000 {
			high, low := utf16.EncodeRune(r)
			b = binary.LittleEndian.AppendUint16(b, uint16(high))
			r = low
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(r))
	}
	return string(b), true
}

// surrogate reads the three bytes of a lone surrogate.
func surrogate(s string) (rune, bool) {
	if len(s) < 3 || s[0] != 0xED || s[1]&0xE0 != 0xA0 || s[2]&0xC0 != 0x80 {
		return 0, false
	}
	return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), true
}

// cleanWTF8 joins surrogate pairs that were spelled apart, so that a name has one spelling; ok is false if text is
// not WTF-8.
func cleanWTF8(text string) (clean string, ok bool) {
	if utf8.ValidString(text) {
		return text, true
	}
	units, ok := encodeUTF16(text)
	if !ok {
		return "", false
	}
	return decodeUTF16(units), true
}
