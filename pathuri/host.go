package pathuri

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// localhost as an authority means none.
const localhost = "localhost"

// maxHost bounds a host name, as DNS does.
const maxHost = 255

// parseHost makes the authority of a URI canonical; localhost becomes "".
func parseHost(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	if strings.IndexByte(text, '@') >= 0 {
		return "", errors.New("a path URI has no user name")
	}
	if text[0] == '[' {
		return parseIPv6(text)
	}
	if isDrive(text) {
		return "", fmt.Errorf("the drive stands where the host goes: want file:///%s/", text)
	}
	if strings.IndexByte(text, ':') >= 0 {
		return "", errors.New("a path URI has no port")
	}
	text, err := unescape(text)
	if err != nil {
		return "", err
	}
	host, err := plainHost(text)
	if host == localhost {
		host = ""
	}
	return host, err
}

func parseIPv6(text string) (string, error) {
	inner, ok := strings.CutSuffix(text[1:], "]")
	addr, err := netip.ParseAddr(inner)
	if !ok || err != nil || !addr.Is6() || addr.Zone() != "" {
		return "", fmt.Errorf("host %q is no IPv6 address", text)
	}
	return "[" + addr.String() + "]", nil
}

// isIPv6 reports whether a canonical host is an address in brackets; no other holds a colon.
func isIPv6(host string) bool { return strings.IndexByte(host, ':') >= 0 }

// plainHost returns the one spelling that a host name has in a URI: lower case, labels that are not ASCII in
// Punycode. It knows no Unicode normalisation, so it refuses marks, which could need it; such a name can be written
// in its xn-- form.
func plainHost(name string) (string, error) {
	if len(name) > maxHost || !utf8.ValidString(name) {
		return "", errors.New("the host name is too long or not UTF-8")
	}
	labels := strings.Split(name, ".")
	for i, label := range labels {
		if label == "" {
			return "", fmt.Errorf("host %q has an empty label", name)
		}
		ascii := true
		runes := []rune(label)
		for j, r := range runes {
			low := unicode.ToLower(r)
			if !hostRune(r, low) {
				return "", fmt.Errorf("host %q: %q cannot stand in a host", name, r)
			}
			runes[j], ascii = low, ascii && low < 0x80
		}
		if labels[i] = string(runes); !ascii {
			labels[i] = acePrefix + punyEncode(runes)
		}
	}
	host := strings.Join(labels, ".")
	if len(host) > maxHost {
		return "", errors.New("the host name is too long")
	}
	return host, nil
}

func hostRune(r, low rune) bool {
	if r < 0x80 {
		return isLetter(byte(r)) || strings.IndexByte("0123456789-._~!$&'()+,;=", byte(r)) >= 0
	}
	return low >= 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r))
}
