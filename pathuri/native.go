package pathuri

import (
	"errors"
	"fmt"
	"strings"
)

// FromNative returns the URI of an absolute native path. Dots are resolved by spelling and a trailing separator is
// dropped; nothing is looked up. Bytes that are not UTF-8 are legal in a POSIX path, and lone surrogates, in WTF-8,
// in a Windows path.
func FromNative(text string, c Convention) (URI, error) {
	var p path
	var err error
	switch c {
	case Posix:
		p, err = posixPath(text)
	case Windows:
		p, err = windowsPath(text)
	default:
		err = errors.New("the path convention of its machine is not known")
	}
	if err != nil {
		return URI{}, fail(text, err)
	}
	return p.uri(), nil
}

// Native returns the path as the machine of u's own convention writes it. It fails if that machine could not take
// it for exactly this file: on Windows a name with a reserved character, a control or a trailing dot or blank, or
// the name of a device.
func (u URI) Native() (string, error) {
	text, err := u.native()
	if err != nil {
		return "", fail(u.s, err)
	}
	return text, nil
}

// NativeFor is Native at the door of a machine, whose own convention c decides: a URI of another convention is an
// error in which [errors.Is] finds [ErrConvention].
func (u URI) NativeFor(c Convention) (string, error) {
	if has := u.Convention(); has != c && !u.IsZero() {
		reason := fmt.Sprintf("this is a %s path, but it was given to a machine with %s paths", has, c)
		if has == 0 {
			reason = "the opaque payload is a path on no known machine"
		}
		return "", &Error{Input: u.s, Reason: reason, kind: ErrConvention}
	}
	return u.Native()
}

// Display returns the path for people: native text if there is one, else the URI. It does not escape controls.
func (u URI) Display() string {
	if text, err := u.native(); err == nil {
		return text
	}
	return u.s
}

func (u URI) native() (string, error) {
	if u.IsZero() {
		return "", errNoURI
	}
	p := u.path()
	switch {
	case p.sealed != "":
		return p.sealedText()
	case p.conv == Posix:
		return p.posixText(), nil
	}
	if err := p.checkWindows(); err != nil {
		return "", err
	}
	return p.windowsText(), nil
}

// sealedText returns the native text of a device or verbatim path.
func (p *path) sealedText() (string, error) {
	switch p.conv {
	case Posix:
		return "", errNUL // nothing else keeps a POSIX path from having parts
	case Windows:
		text := decodeUTF16(p.sealed)
		if _, err := windowsPath(text); err != nil {
			return "", err
		}
		return text, nil
	}
	return "", errors.New("the opaque payload is a path on no known machine")
}

func (p *path) posixText() string {
	return "/" + strings.Join(p.segs, "/")
}

// posixPath reads an absolute POSIX path.
func posixPath(text string) (path, error) {
	switch {
	case strings.IndexByte(text, 0) >= 0:
		return path{}, errNUL
	case text == "" || text[0] != '/':
		return path{}, errors.New("not an absolute POSIX path: it must start with /")
	}
	p := path{conv: Posix}
	p.pushAll(text)
	return p, nil
}

// pushAll adds every segment of a POSIX path text.
func (p *path) pushAll(text string) {
	for seg := range strings.SplitSeq(text, "/") {
		p.push(seg)
	}
}
