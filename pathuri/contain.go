package pathuri

import "strings"

// Contains reports whether other is u or below it, by spelling and whole segments; links are not followed.
//
// In doubt the answer is no: for URIs of two conventions, for opaque paths without parts that are not equal, and for
// Windows names that Windows would not take as spelled (it reads ".. " as ".."). Windows names are compared without
// regard to ASCII case only: what else a volume folds depends on the volume.
func (u URI) Contains(other URI) bool {
	_, ok := u.below(other)
	return ok
}

// Rel returns the names that lead from u to other, decoded and joined by slashes, if u contains other; "" if they
// are equal.
func (u URI) Rel(other URI) (string, bool) {
	if rest, ok := u.suffix(other); ok {
		return rest, true
	}
	names, ok := u.below(other)
	return strings.Join(names, "/"), ok
}

// below returns the segments of other that follow those of u.
func (u URI) below(other URI) ([]string, bool) {
	if u == other {
		return nil, !u.IsZero()
	}
	p, q := u.path(), other.path()
	if p.conv == 0 || p.conv != q.conv || p.sealed != "" || q.sealed != "" || p.host != q.host || len(p.segs) > len(q.segs) {
		return nil, false
	}
	for i, seg := range p.segs {
		if seg != q.segs[i] && (p.conv != Windows || !equalFoldASCII(seg, q.segs[i])) {
			return nil, false
		}
	}
	if q.conv == Windows && q.checkWindows() != nil {
		return nil, false
	}
	return q.segs[len(p.segs):], true
}

func equalFoldASCII(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && (a[i]|0x20 != b[i]|0x20 || !isLetter(a[i])) {
			return false
		}
	}
	return true
}

// suffix is Rel where the texts alone tell it.
func (u URI) suffix(other URI) (string, bool) {
	if _, opaque := u.payload(); opaque || u.IsZero() || other.IsZero() || plainConvention(u.s) != Posix || plainConvention(other.s) != Posix {
		return "", false
	}
	rest, ok := strings.CutPrefix(other.s, u.s)
	if ok && !strings.HasSuffix(u.s, "/") {
		rest, ok = strings.CutPrefix(rest, "/")
	}
	return rest, ok && rest != "" && strings.IndexByte(rest, '%') < 0
}
