package codex

import (
	"errors"
	"fmt"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

// pathURI is a path as Codex spells it: as a browser would take a URL, where [pathuri.Parse] wants one that is clearly
// one path. What differs in meaning is refused; docs/codex.md has the list.
type pathURI struct{ pathuri.URI }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *pathURI) UnmarshalText(text []byte) (err error) {
	p.URI, err = parsePath(string(text))
	return err
}

// parsePath reads a path URI leniently.
func parsePath(text string) (pathuri.URI, error) {
	if uri, err := pathuri.Parse(text); err == nil {
		return uri, nil
	}
	canonical, err := canonicalPath(text)
	if err != nil {
		return pathuri.URI{}, err
	}
	uri, err := pathuri.Parse(canonical)
	if err != nil {
		return pathuri.URI{}, fmt.Errorf("invalid URI: %w", err)
	}
	return uri, nil
}

// canonicalPath brings a URL into the form that [pathuri.Parse] takes.
func canonicalPath(text string) (string, error) {
	text = strings.TrimFunc(text, func(r rune) bool { return r <= ' ' })
	text = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(text)
	scheme, rest, found := strings.Cut(text, ":")
	if !found || !isScheme(scheme) {
		return "", errors.New("invalid URI: relative URL without a base")
	}
	if scheme = strings.ToLower(scheme); scheme != "file" {
		return "", fmt.Errorf("unsupported path URI scheme `%s`", scheme)
	}
	before, _, fragment := strings.Cut(rest, "#")
	switch {
	case strings.Contains(before, "?"):
		return "", errors.New("query parameters are not allowed in path URIs")
	case fragment:
		return "", errors.New("fragments are not allowed in path URIs")
	}
	rest = strings.ReplaceAll(rest, `\`, "/")
	host := ""
	if after, has := strings.CutPrefix(rest, "//"); has {
		authority, names, _ := strings.Cut(after, "/")
		switch {
		case len(authority) == 2 && isLetter(authority[0]) && strings.ContainsRune(":|", rune(authority[1])):
			names = authority + "/" + names
		case strings.ContainsAny(authority, "@ ") || strings.Contains(strings.TrimLeft(authority, "[0123456789abcdefABCDEF:]"), ":"):
			return "", errors.New("invalid URI: invalid international domain name")
		case !strings.EqualFold(authority, "localhost"):
			host = authority
		}
		rest = names
	}
	rest = strings.TrimLeft(rest, "/")
	if strings.HasPrefix(rest, "%00/bad/path/") {
		return "file:///" + rest, nil
	}
	return "file://" + host + "/" + strings.Join(resolved(strings.Split(rest, "/"), host != ""), "/"), nil
}

// resolved resolves dots, drops empty names, and escapes what may not stand as it is.
func resolved(names []string, share bool) []string {
	var kept []string
	for _, name := range names {
		switch strings.ReplaceAll(strings.ToLower(name), "%2e", ".") {
		case "", ".":
			continue
		case "..":
			if last := len(kept) - 1; last >= 0 && !(last == 0 && (share || isDrive(kept[0]))) {
				kept = kept[:last]
			}
			continue
		}
		kept = append(kept, escaped(name))
	}
	return kept
}

// escaped escapes controls, blanks, what is not ASCII, and a percent sign that begins no escape.
func escaped(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c == '%' && (i+2 >= len(name) || !isHex(name[i+1]) || !isHex(name[i+2])):
			b.WriteString("%25")
		case c <= ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isScheme(s string) bool {
	for i := range len(s) {
		if !isLetter(s[i]) && (i == 0 || strings.IndexByte("0123456789+-.", s[i]) < 0) {
			return false
		}
	}
	return s != ""
}

func isDrive(name string) bool { return len(name) == 2 && isLetter(name[0]) && name[1] == ':' }
func isLetter(c byte) bool     { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isHex(c byte) bool        { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// local tells why a path cannot be one of this machine.
func (d *Door) local(paths ...pathURI) error {
	for _, path := range paths {
		if path.Convention() != d.info.Paths {
			return fmt.Errorf("%w: '%s' is invalid on '%s'", env.ErrInvalid, path.URI, d.platform())
		}
	}
	return nil
}
