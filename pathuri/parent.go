package pathuri

import "iter"

// Base returns the last name of u, decoded: the drive ("C:") for a drive's root, the share for a share's. There is
// none for "/", for the zero value and for an opaque path without parts.
func (u URI) Base() (string, bool) {
	p := u.path()
	if len(p.segs) == 0 {
		return "", false
	}
	return p.segs[len(p.segs)-1], true
}

// Parent returns the directory that u is in, by spelling. There is none for "/", a drive's root, a share's root, the
// zero value and an opaque path without parts.
func (u URI) Parent() (URI, bool) {
	p := u.path()
	if len(p.segs) <= p.anchor() {
		return URI{}, false
	}
	p.segs = p.segs[:len(p.segs)-1]
	return p.uri(), true
}

// Ancestors yields u, its parent and so on up to the root, drive or share.
func (u URI) Ancestors() iter.Seq[URI] {
	return func(yield func(URI) bool) {
		for ok := !u.IsZero(); ok && yield(u); {
			u, ok = u.Parent()
		}
	}
}
