package pathuri

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Parse reads a file: URI and makes it canonical: escapes normalised, drive letter upper-cased, host lower-cased,
// dot and empty segments removed, a trailing slash dropped. It refuses what is not clearly one path: a query or
// fragment, raw backslashes and controls, outer blanks, bad escapes, an encoded NUL or separator, four slashes,
// a host without a share, user names and ports.
func Parse(text string) (URI, error) {
	if canonical(text) {
		return URI{text}, nil
	}
	p, err := parse(text)
	if err != nil {
		return URI{}, fail(text, err)
	}
	return p.uri(), nil
}

// canonical reports whether text is certainly what Parse would return for it: the common case, without allocating.
// False only means that parse has to look.
func canonical(text string) bool {
	rest, ok := strings.CutPrefix(text, noHost)
	if !ok {
		return false
	}
	windows := plainConvention(text) == Windows
	if windows {
		if rest[0] >= 'a' || len(rest) < 3 {
			return false
		}
		rest = rest[3:]
	}
	start := 0
	for i := 0; i <= len(rest); i++ {
		if i == len(rest) || rest[i] == '/' {
			if seg := rest[start:i]; seg == "" && len(rest) > 0 || seg == "." || seg == ".." {
				return false
			}
			start = i + 1
			continue
		}
		c := rest[i]
		if c != '%' {
			if mustEscape[c] {
				return false
			}
			continue
		}
		if i+2 >= len(rest) || !canonicalEscape(rest[i+1], rest[i+2], windows) {
			return false
		}
		i += 2
	}
	return true
}

// canonicalEscape reports whether %hl is certainly canonical. In a Windows URI the bytes must also be UTF-8 and no
// backslash; that is left to parse.
func canonicalEscape(h, l byte, windows bool) bool {
	if unhex(h) > 15 || unhex(l) > 15 || h >= 'a' || l >= 'a' {
		return false
	}
	c := unhex(h)<<4 | unhex(l)
	if windows && (c >= 0x80 || c == '\\') {
		return false
	}
	return c != 0 && mustEscape[c]
}

func parse(text string) (path, error) {
	if err := checkText(text); err != nil {
		return path{}, err
	}
	rest, err := cutScheme(text)
	if err != nil {
		return path{}, err
	}
	if err := checkRest(rest); err != nil {
		return path{}, err
	}
	host, names, err := cutAuthority(rest)
	if err != nil {
		return path{}, err
	}
	if payload, ok := strings.CutPrefix(names, opaqueNames); ok && host == "" {
		return parsePayload(payload)
	}
	return parseNames(host, names)
}

// checkText refuses characters that no part of a URI may hold.
func checkText(text string) error {
	if text == "" {
		return errors.New("it is empty: want a file: URI such as file:///home/me")
	}
	if !utf8.ValidString(text) {
		return errors.New("the URI is not UTF-8: write other bytes as escapes such as %FF")
	}
	if text[0] == ' ' || text[len(text)-1] == ' ' {
		return errors.New("blank before or after the URI: a blank in a name is %20")
	}
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == 0x7f {
			return fmt.Errorf("raw control character %q: in a name it is %%%02X, unless it is a NUL", c, c)
		}
	}
	return nil
}

// cutScheme drops "file:" in any case.
func cutScheme(text string) (string, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	switch {
	case ok && strings.EqualFold(scheme, "file"):
		return rest, nil
	case ok && isDrive(scheme+":"):
		return "", errors.New("this is a Windows path, not a URI: C:\\x is file:///C:/x")
	case ok && isScheme(scheme):
		return "", fmt.Errorf("scheme %q is not supported: want a file: URI", scheme)
	case text[0] == '\\':
		return "", errors.New("this is a Windows path, not a URI: \\\\server\\share is file://server/share")
	case text[0] == '/':
		return "", errors.New("this is a path, not a URI: /x is file:///x")
	}
	return "", errors.New("not a URI: want a file: URI such as file:///home/me")
}

func isScheme(s string) bool {
	for i := range len(s) {
		if c := s[i]; !isLetter(c) && (i == 0 || strings.IndexByte("0123456789+-.", c) < 0) {
			return false
		}
	}
	return s != ""
}

func checkRest(rest string) error {
	i := strings.IndexAny(rest, "\\?#")
	if i < 0 {
		return nil
	}
	switch rest[i] {
	case '?':
		return errors.New("a path URI has no query: a question mark in a name is %3F")
	case '#':
		return errors.New("a path URI has no fragment: a # in a name is %23")
	}
	return errors.New("raw backslash: separate with /; a backslash in a POSIX name is %5C")
}

// cutAuthority splits what follows the scheme into the canonical host, "" for none, and the names without the
// slash before them.
func cutAuthority(rest string) (host, names string, err error) {
	if rest == "" || rest[0] != '/' {
		return "", "", errors.New("no absolute path after file: - the root is file:///")
	}
	names = rest[1:]
	if strings.HasPrefix(names, "/") {
		var ok bool
		host, names, ok = strings.Cut(names[1:], "/")
		if host, err = parseHost(host); err != nil {
			return "", "", err
		}
		if host == "" && !ok {
			return "", "", errors.New("no path: the root is file:///")
		}
	}
	if strings.HasPrefix(names, "/") {
		return "", "", errors.New("too many slashes: a POSIX path is file:///x, a share file://server/share")
	}
	return host, names, nil
}

// parseNames decodes and resolves the segments and checks them against the convention they turn out to have.
func parseNames(host, names string) (path, error) {
	p := path{conv: Posix, host: host}
	if host != "" {
		p.conv = Windows
	}
	backslash, unicode := false, true
	for raw := range strings.SplitSeq(names, "/") {
		seg, err := unescape(raw)
		if err != nil {
			return path{}, err
		}
		if strings.IndexByte(seg, '/') >= 0 {
			return path{}, errors.New("%2F: a name cannot hold a slash")
		}
		backslash = backslash || strings.IndexByte(seg, '\\') >= 0
		unicode = unicode && utf8.ValidString(seg)
		if p.conv == Posix && len(p.segs) == 0 && isDrive(seg) {
			p.conv, seg = Windows, upperDrive(seg)
		}
		p.push(seg)
	}
	switch {
	case p.conv == Posix:
		return p, nil
	case backslash:
		return path{}, errors.New("%5C: a Windows name cannot hold a backslash")
	case !unicode:
		return path{}, errors.New("a Windows name is Unicode, and these escapes are not UTF-8")
	case len(p.segs) == 0:
		return path{}, errors.New("a host without a share: want file://server/share, or file:///x for a path without a host")
	}
	return p, nil
}
