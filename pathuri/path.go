package pathuri

import (
	"strings"
	"unicode/utf8"
)

const (
	authority = "file://"
	noHost    = "file:///"
)

// path is a URI taken apart: what all operations work on. Either sealed is set, or the rest is.
type path struct {
	conv   Convention
	host   string   // UNC server, canonical; "" if none
	segs   []string // decoded names; the first is the drive ("C:") or the share if conv is Windows
	sealed string   // payload of an opaque URI whose path has no parts: a device, or no path at all
}

// anchor is the number of leading segments that no ".." and no parent removes.
func (p *path) anchor() int {
	if p.conv == Windows {
		return 1
	}
	return 0
}

// push adds one segment of a path text, resolving dots by spelling; ".." stops at the anchor.
func (p *path) push(seg string) {
	switch seg {
	case "", ".":
	case "..":
		if len(p.segs) > p.anchor() {
			p.segs = p.segs[:len(p.segs)-1]
		}
	default:
		p.segs = append(p.segs, seg)
	}
}

// uri returns the one URI of p: the plain form where it can carry p, else the opaque form.
func (p *path) uri() URI {
	switch {
	case p.sealed != "":
		return opaqueURI(p.sealed)
	case p.plain():
		return URI{p.plainText()}
	case p.conv == Posix:
		return opaqueURI(p.posixText())
	}
	units, _ := encodeUTF16(p.windowsText())
	return opaqueURI(units)
}

// plain reports whether the plain form can carry p and would be read back as p.
func (p *path) plain() bool {
	if p.conv == Posix {
		return len(p.segs) == 0 || !isDrive(p.segs[0])
	}
	for _, seg := range p.segs {
		if !utf8.ValidString(seg) {
			return false
		}
	}
	if p.host == "" || isIPv6(p.host) {
		return true
	}
	host, err := plainHost(p.host)
	return err == nil && host == p.host && host != localhost // the latter would be read as no host
}

func (p *path) plainText() string {
	n := len(authority) + len(p.host) + 1
	for _, seg := range p.segs {
		n += 1 + len(seg)
	}
	b := make([]byte, 0, n)
	b = append(b, authority...)
	b = append(b, p.host...)
	for _, seg := range p.segs {
		b = append(b, '/')
		b = appendEscaped(b, seg)
	}
	if len(p.segs) == 0 || p.host == "" && p.conv == Windows && len(p.segs) == 1 {
		b = append(b, '/') // "/" and "C:/": a root is a directory
	}
	return string(b)
}

// path takes a canonical URI apart.
func (u URI) path() path {
	if payload, ok := u.payload(); ok {
		return payloadPath(payload)
	}
	if u.s == "" {
		return path{}
	}
	host, rest, _ := strings.Cut(u.s[len(authority):], "/")
	p := path{conv: plainConvention(u.s), host: host}
	if rest = strings.TrimSuffix(rest, "/"); rest == "" {
		return p
	}
	p.segs = strings.Split(rest, "/")
	for i, seg := range p.segs {
		p.segs[i], _ = unescape(seg)
	}
	return p
}

// isDrive reports whether seg is a letter and a colon.
func isDrive(seg string) bool {
	return len(seg) == 2 && seg[1] == ':' && isLetter(seg[0])
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// upperDrive upper-cases a drive segment.
func upperDrive(seg string) string {
	if seg[0] >= 'a' {
		return string([]byte{seg[0] - 0x20, ':'})
	}
	return seg
}
