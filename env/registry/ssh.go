package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// SSH is a box as a person would name it to ssh. It is comparable.
type SSH struct {
	// Destination is [USER@]BOX: a host, or a name of ssh's own configuration, so its case counts.
	Destination string
	// Port is 0 where ssh is to know it.
	Port uint16
}

const sshScheme = "ssh://"

func isSSH(text string) bool {
	return len(text) >= len(sshScheme) && strings.EqualFold(text[:len(sshScheme)], sshScheme)
}

// parseSSH reads ssh://[USER@]BOX[:PORT]. Users and boxes are words that neither ssh nor a shell, which ssh's
// configuration may hand them to, can take for something else.
func parseSSH(text string) (SSH, error) {
	rest := strings.TrimSuffix(text[len(sshScheme):], "/")
	user, box, hasUser := "", rest, false
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, box, hasUser = rest[:i], rest[i+1:], true
	}
	s := SSH{}
	host, port, hasPort := box, "", false
	if inside, ok := strings.CutPrefix(box, "["); ok {
		var after string
		host, after, ok = strings.Cut(inside, "]")
		ip, err := netip.ParseAddr(host)
		if !ok || err != nil || !ip.Is6() {
			return s, errors.New("ssh: what is in brackets is not an IPv6 address")
		}
		if zone := ip.Zone(); zone != strings.Map(boxRune, zone) {
			return s, errors.New("ssh: the zone of the address has a character that zones do not have")
		}
		if port, hasPort = strings.CutPrefix(after, ":"); !hasPort && after != "" {
			return s, errors.New("ssh: only a port may follow the brackets")
		}
	} else {
		host, port, hasPort = strings.Cut(box, ":")
		if host != strings.Map(boxRune, host) {
			return s, errors.New("ssh: the box's name may have letters, digits, dots, - and _ in it; write ssh://[USER@]BOX[:PORT]")
		}
	}
	switch {
	case strings.Contains(user, ":"):
		return s, errors.New("ssh: a password is never part of a URL; ssh asks for it, better is a key")
	case hasUser && user == "", strings.HasPrefix(user, "-"), user != strings.Map(userRune, user):
		return s, errors.New("ssh: the user's name is none; write ssh://[USER@]BOX[:PORT]")
	case host == "":
		return s, errors.New("ssh: the box is missing; write ssh://[USER@]BOX[:PORT]")
	case strings.HasPrefix(host, "-"):
		return s, errors.New("ssh: the box's name begins with a dash, as an option of ssh would")
	}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return s, errors.New("ssh: the port is not a number from 1 to 65535")
		}
		s.Port = uint16(n)
	}
	s.Destination = host
	if hasUser {
		s.Destination = user + "@" + host
	}
	return s, nil
}

// boxRune drops what is not part of a box's name, userRune what is not part of a user's.
func boxRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_' {
		return r
	}
	return -1
}

func userRune(r rune) rune {
	if r == '+' || r == '@' {
		return r
	}
	return boxRune(r)
}

// String is the URL.
func (s SSH) String() string {
	user, host, hasUser := "", s.Destination, false
	if i := strings.LastIndexByte(s.Destination, '@'); i >= 0 {
		user, host, hasUser = s.Destination[:i], s.Destination[i+1:], true
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	text := sshScheme
	if hasUser {
		text += user + "@"
	}
	text += host
	if s.Port != 0 {
		text += ":" + strconv.Itoa(int(s.Port))
	}
	return text
}

// The scripts that a box runs. The login shell there may be sh, csh or fish, so it is told nothing but to run sh
// with one word in single quotes, in which there is no quote, no backslash, no exclamation mark and no new line.
const (
	missingMarker = "waldo-no-exec-server: "
	systemMarker  = "waldo-system: "
	serverMarker  = "waldo-server: "
	doneMarker    = "waldo-installed: "

	withOwnPath = `PATH="$PATH:$HOME/.waldo/bin"; `

	// serveScript becomes the server, or says what machine has none.
	serveScript = withOwnPath +
		`if command -v exec-server >/dev/null 2>&1; then exec exec-server --listen stdio; fi; ` +
		`echo "` + missingMarker + `$(uname -sm)"; exit 127`

	// probeScript says what machine it is, and where its server is.
	probeScript = withOwnPath +
		`echo "` + systemMarker + `$(uname -sm)"; ` +
		`if command -v exec-server >/dev/null 2>&1; then echo "` + serverMarker + `$(command -v exec-server)"; fi; exit 0`
)

// remote is a script as the command line of a login shell.
func remote(script string) string { return "exec sh -c '" + script + "'" }

// command is the ssh that runs a script on the box. Without ask, ssh fails where it would have to ask a person.
func (s SSH) command(script string, ask bool) []string {
	argv := []string{"ssh", "-T"}
	if !ask {
		argv = append(argv, "-o", "BatchMode=yes")
	}
	if s.Port != 0 {
		argv = append(argv, "-p", strconv.Itoa(int(s.Port)))
	}
	return append(argv, "--", s.Destination, remote(script))
}

// shown is that command for people.
func (s SSH) shown() []string {
	argv := []string{"ssh"}
	if s.Port != 0 {
		argv = append(argv, "-p", strconv.Itoa(int(s.Port)))
	}
	return append(argv, s.Destination)
}

// NoServerError says that a box that ssh leads to has no exec-server.
type NoServerError struct {
	// Box is where it was looked for, System what "uname -sm" says there.
	Box, System string
}

// Error tells where it was looked for, and what to do.
func (e *NoServerError) Error() string {
	return fmt.Sprintf("%s (%s) has no exec-server: it is neither on the PATH that ssh gives to commands there nor in ~/.waldo/bin; --install copies one there",
		e.Box, quoteShown([]byte(e.System)))
}

// sshNoiseWithin is how long a box's start-up files may go on printing before the script says what it has to say.
const sshNoiseWithin = 5 * time.Second

// findMarker finds what a script said behind a marker, whatever start-up files printed before it.
func findMarker(text, marker string) (string, bool) {
	_, rest, found := strings.Cut(text, marker)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line), found
}
