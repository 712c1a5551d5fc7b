package pathuri

import (
	"errors"
	"fmt"
	"strings"
)

// windowsPath reads an absolute Windows path: X:\x, \\server\share\x, \\?\x or \\.\x.
func windowsPath(text string) (path, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return path{}, errNUL
	}
	text, ok := cleanWTF8(text)
	if !ok {
		return path{}, errors.New("a Windows path is Unicode, and this text is not")
	}
	p := path{conv: Windows}
	switch {
	case len(text) >= 2 && isSlash(text[0]) && isSlash(text[1]):
		if len(text) >= 3 && (text[2] == '?' || text[2] == '.') && (len(text) == 3 || isSlash(text[3])) {
			return devicePath(text)
		}
		return uncPath(text[2:])
	case len(text) >= 3 && isDrive(text[:2]) && isSlash(text[2]):
		p.segs = []string{upperDrive(text[:2])}
		return p, p.pushNames(text[3:])
	case len(text) >= 2 && isDrive(text[:2]):
		return path{}, fmt.Errorf("the path depends on the current directory of drive %s: write %s\\ for its root", text[:2], text[:2])
	}
	return path{}, errors.New(`not an absolute Windows path: it must start with a drive such as C:\ or with \\server\share`)
}

// uncPath reads what follows the two slashes of \\server\share\x.
func uncPath(text string) (path, error) {
	i := strings.IndexAny(text, `\/`)
	if i < 0 {
		i = len(text)
	}
	host, err := uncHost(text[:i])
	if err != nil {
		return path{}, err
	}
	p := path{conv: Windows, host: host}
	if err := p.pushNames(text[i:]); err != nil {
		return path{}, err
	}
	if len(p.segs) == 0 {
		return path{}, errors.New(`no share: want \\server\share`)
	}
	return p, nil
}

// uncHost makes the server of a UNC path canonical, in lower case. Unlike the host of a URI it is no DNS name: what
// is not ASCII stays as it is, and then travels in the opaque form.
func uncHost(name string) (string, error) {
	if name == "" {
		return "", errors.New(`no server after the slashes: want \\server\share`)
	}
	if err := checkChars(name); err != nil {
		return "", err
	}
	b := []byte(name)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 0x20
		}
	}
	return string(b), nil
}

// devicePath reads \\?\x and \\.\x. A verbatim path that means the same without its prefix loses it; every other is
// sealed, because Windows gives names and dots in it another meaning.
func devicePath(text string) (path, error) {
	if len(text) <= 4 {
		return path{}, errors.New("no device after the prefix")
	}
	verbatim := strings.HasPrefix(text, `\\?\`)
	text = `\\` + text[2:3] + `\` + text[4:]
	if !verbatim {
		text = strings.ReplaceAll(text, "/", `\`)
	}
	rest := text[4:]
	if text[2] == '?' {
		if p, ok := verbatimPath(rest); ok {
			return p, nil
		}
		if !verbatim {
			return path{}, errors.New(`a path that only \\?\ can carry must be written with backslashes`)
		}
		if isDrive(rest[:min(2, len(rest))]) {
			text = `\\?\` + upperDrive(rest[:2]) + rest[2:]
		}
	}
	units, _ := encodeUTF16(text)
	return path{conv: Windows, sealed: units}, nil
}

// verbatimPath reads what follows \\?\ if it is a drive or share path that means the same without: every name is
// legal, and nothing has to be resolved.
func verbatimPath(rest string) (path, bool) {
	if len(rest) > 4 && strings.EqualFold(rest[:4], `UNC\`) {
		rest = `\\` + rest[4:]
	} else if !isDrive(rest[:min(2, len(rest))]) {
		return path{}, false
	}
	p, err := windowsPath(rest)
	if err != nil || p.sealed != "" || strings.IndexByte(rest, '/') >= 0 {
		return path{}, false
	}
	return p, len(strings.TrimSuffix(p.windowsText(), `\`)) == len(strings.TrimSuffix(rest, `\`))
}

// pushNames adds the names of a Windows path text, checking each.
func (p *path) pushNames(text string) error {
	for name := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\\' || r == '/' }) {
		if name != "." && name != ".." {
			if err := checkName(name); err != nil {
				return err
			}
		}
		p.push(name)
	}
	return nil
}

// windowsText spells p as Windows does, unchecked. A root ends with a backslash.
func (p *path) windowsText() string {
	text := strings.Join(p.segs, `\`)
	if p.host != "" {
		text = `\\` + p.host + `\` + text
	}
	if len(p.segs) == 1 {
		text += `\`
	}
	return text
}

// checkWindows reports why Windows would not take p for this very file.
func (p *path) checkWindows() error {
	if isIPv6(p.host) {
		return fmt.Errorf("no Windows path can name the host %s: want its ipv6-literal.net name", p.host)
	}
	for i, name := range p.segs {
		if i == 0 && p.host == "" {
			continue // the drive
		}
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

// checkName reports why a name does not name just itself in a Windows path.
func checkName(name string) error {
	if err := checkChars(name); err != nil {
		return err
	}
	if isDevice(name) {
		return fmt.Errorf("%q is a device on Windows: a file of that name needs a path that starts with \\\\?\\", name)
	}
	return nil
}

func checkChars(name string) error {
	for i := range len(name) {
		if c := name[i]; c < ' ' || strings.IndexByte(`<>:"/\|?*`, c) >= 0 {
			return fmt.Errorf("a Windows name cannot hold %q, as %q does", c, name)
		}
	}
	if last := name[len(name)-1]; last == '.' || last == ' ' {
		return fmt.Errorf("on Windows the dots and blanks at the end of %q are dropped: a file of that name needs a path that starts with \\\\?\\", name)
	}
	return nil
}

// isDevice reports whether Windows, or an older Windows, takes name for a device in any directory.
func isDevice(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	base = strings.ToUpper(strings.TrimRight(base, " "))
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	port, ok := strings.CutPrefix(base, "COM")
	if !ok {
		port, ok = strings.CutPrefix(base, "LPT")
	}
	return ok && port != "" && strings.Contains("|1|2|3|4|5|6|7|8|9|¹|²|³|", "|"+port+"|")
}

func isSlash(b byte) bool { return b == '\\' || b == '/' }
