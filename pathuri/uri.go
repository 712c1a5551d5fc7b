// Package pathuri names a file on any machine.
//
// A URI is a canonical file: URI. It is comparable: two URIs that spell the same file are ==, and a URI can be a
// map key. The package does no I/O and knows nothing of the machine it runs on: path syntax is data, and the
// convention of a URI can be read off its text.
//
// A URI with a host, or whose first segment is a letter and a colon, names a file on a Windows machine; every
// other names a POSIX file. Paths that this rule or a URI's text cannot carry travel in an opaque form that holds
// the native path itself (see opaque.go), so that one URI never means two files.
//
// Case is kept and counts in ==, except that drive letters are upper-cased and hosts lower-cased; only
// [URI.Contains] and [URI.Rel] fold case, and only for Windows.
package pathuri

// Convention is the path syntax of a machine. Its zero value is "not known".
type Convention uint8

// The conventions.
const (
	Posix Convention = iota + 1
	Windows
)

// String returns "posix", "windows" or "unknown".
func (c Convention) String() string {
	switch c {
	case Posix:
		return "posix"
	case Windows:
		return "windows"
	}
	return "unknown"
}

// URI names a file on some machine. The zero value names none. Values come from [Parse], [FromNative] and the
// methods of other URIs, and are always canonical.
type URI struct {
	s string // canonical and pure ASCII, or "" for no URI
}

// IsZero reports whether u names no file. It lets the JSON option omitzero leave u out.
func (u URI) IsZero() bool { return u.s == "" }

// String returns the canonical text of u, which is pure ASCII; "" for the zero value.
func (u URI) String() string { return u.s }

// Convention returns the path syntax of the machine that u is for. It is unknown (zero) for the zero value and
// for an opaque URI whose payload is a path of neither kind.
func (u URI) Convention() Convention {
	if payload, ok := u.payload(); ok {
		return sniff(payload)
	}
	return plainConvention(u.s)
}

// plainConvention reads the convention off canonical text that is not opaque.
func plainConvention(s string) Convention {
	switch {
	case s == "":
		return 0
	case len(s) > len(noHost) && s[:len(noHost)] != noHost:
		return Windows
	case len(s) >= len(noHost)+2 && isDrive(s[len(noHost):len(noHost)+2]) && (len(s) == len(noHost)+2 || s[len(noHost)+2] == '/'):
		return Windows
	}
	return Posix
}
