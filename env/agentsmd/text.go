package agentsmd

import (
	"strings"
	"unicode/utf8"
)

// whole drops the beginning of a character at the end of a text that was cut.
func whole(text []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

// decode makes text of bytes; each that is not UTF-8 becomes a replacement character.
func decode(text []byte) string {
	if utf8.Valid(text) {
		return string(text)
	}
	var b strings.Builder
	for _, r := range string(text) {
		b.WriteRune(r)
	}
	return b.String()
}
