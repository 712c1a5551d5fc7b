package pathuri

import (
	"errors"
	"strings"
)

var errSealed = errors.New("an opaque path has no directory to join to")

// Join returns u joined with native text of u's own convention, by spelling alone. Empty text leaves u as it is, an
// absolute path replaces it, a Windows path that starts with one slash keeps the drive or share, and ".." stops at
// the root, drive or share. A path relative to another drive's current directory is refused, and so is what no file
// can be called. A leading ~ is a name like any other.
func (u URI) Join(text string) (URI, error) {
	if u.IsZero() {
		return URI{}, fail(text, errNoURI)
	}
	if text == "" {
		return u, nil
	}
	p := u.path()
	var err error
	switch p.conv {
	case Posix:
		p, err = p.joinPosix(text)
	case Windows:
		p, err = p.joinWindows(text)
	default:
		err = errSealed
	}
	if err != nil {
		return URI{}, fail(text, err)
	}
	return p.uri(), nil
}

func (p path) joinPosix(text string) (path, error) {
	switch {
	case text[0] == '/':
		return posixPath(text)
	case p.sealed != "":
		return path{}, errSealed
	case strings.IndexByte(text, 0) >= 0:
		return path{}, errNUL
	}
	p.pushAll(text)
	return p, nil
}

func (p path) joinWindows(text string) (path, error) {
	if len(text) >= 2 && (isDrive(text[:2]) || isSlash(text[0]) && isSlash(text[1])) {
		return windowsPath(text)
	}
	if p.sealed != "" {
		return path{}, errSealed
	}
	text, ok := cleanWTF8(text)
	if !ok {
		return path{}, errors.New("a Windows path is Unicode, and this text is not")
	}
	if isSlash(text[0]) {
		p.segs = p.segs[:p.anchor()]
	}
	err := p.pushNames(text)
	return p, err
}

// JoinName returns the URI of the entry of directory u that is called name, exactly as a directory listing gives
// it: name is never interpreted. It refuses what cannot be an entry: an empty name, "." and "..", separators, NUL.
// It takes names that Windows tools cannot reach, such as "a."; [URI.Native] then fails.
func (u URI) JoinName(name string) (URI, error) {
	if u.appendable(name) {
		if strings.HasSuffix(u.s, "/") {
			return URI{u.s + name}, nil
		}
		return URI{u.s + "/" + name}, nil
	}
	p := u.path()
	switch {
	case u.IsZero():
		return URI{}, fail(name, errNoURI)
	case p.sealed != "":
		return URI{}, fail(name, errSealed)
	case name == "" || name == "." || name == "..":
		return URI{}, fail(name, errors.New("it is not the name of a directory entry"))
	case strings.IndexByte(name, 0) >= 0:
		return URI{}, fail(name, errNUL)
	case strings.IndexByte(name, '/') >= 0 || p.conv == Windows && strings.IndexByte(name, '\\') >= 0:
		return URI{}, fail(name, errors.New("a name cannot hold a separator"))
	}
	if p.conv == Windows {
		clean, ok := cleanWTF8(name)
		if !ok {
			return URI{}, fail(name, errors.New("a Windows name is Unicode, and this is not"))
		}
		name = clean
	}
	p.segs = append(p.segs, name)
	return p.uri(), nil
}

// appendable reports whether the text of u with a slash and name behind it is that of the joined URI, which most
// names are: a long list of them should not cost taking u apart for each.
func (u URI) appendable(name string) bool {
	if _, opaque := u.payload(); opaque || u.IsZero() || name == "" || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		if c := name[i]; mustEscape[c] || c == '/' || c == ':' { // a colon may make a drive
			return false
		}
	}
	return true
}
