package pathuri

import (
	"errors"
	"fmt"
	"strings"
)

var errEscapedNUL = errors.New("%00 is not legal: a path cannot hold a NUL")

// mustEscape tells which bytes canonical text spells as a percent triplet. Everything else is spelled literally, so
// that each name has one spelling.
var mustEscape = func() (table [256]bool) {
	for c := range table {
		table[c] = c <= ' ' || c >= 0x7f || strings.IndexByte("\"#%<>?`{}\\", byte(c)) >= 0
	}
	return table
}()

func appendEscaped(b []byte, seg string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(seg) {
		if c := seg[i]; mustEscape[c] {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// unescape decodes the percent triplets of one segment or host.
func unescape(seg string) (string, error) {
	at := strings.IndexByte(seg, '%')
	if at < 0 {
		return seg, nil
	}
	b := append(make([]byte, 0, len(seg)), seg[:at]...)
	for i := at; i < len(seg); i++ {
		if seg[i] != '%' {
			b = append(b, seg[i])
			continue
		}
		if i+2 >= len(seg) || unhex(seg[i+1]) > 15 || unhex(seg[i+2]) > 15 {
			return "", fmt.Errorf("bad escape %q: %% takes two hex digits, and a percent sign itself is %%25", seg[i:min(i+3, len(seg))])
		}
		c := unhex(seg[i+1])<<4 | unhex(seg[i+2])
		if c == 0 {
			return "", errEscapedNUL
		}
		b = append(b, c)
		i += 2
	}
	return string(b), nil
}

// unhex returns the value of a hex digit, or 255.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return (c | 0x20) - 'a' + 10
	}
	return 255
}
