package pathuri

import (
	"encoding/base64"
	"errors"
	"strings"
)

// The opaque form is file:///%00/bad/path/ and a payload in unpadded base64url: the bytes of a POSIX path, or a
// Windows path in UTF-16LE. It carries what the plain form cannot: a POSIX path whose first name looks like a drive,
// Windows names with lone surrogates, hosts that no URI can spell, device and verbatim paths. The first three still
// have parts, so they can be joined to and compared; the others are names as a whole ("sealed").
//
// A payload that the plain form can carry is made plain, so that the opaque form is no second spelling.
const (
	opaqueNames  = "%00/bad/path/"
	opaquePrefix = noHost + opaqueNames
)

// opaqueCode refuses padding and left-over bits: one payload, one spelling.
var opaqueCode = base64.RawURLEncoding.Strict()

func opaqueURI(payload string) URI {
	return URI{opaquePrefix + opaqueCode.EncodeToString([]byte(payload))}
}

// payload returns the payload of an opaque URI.
func (u URI) payload() (string, bool) {
	code, ok := strings.CutPrefix(u.s, opaquePrefix)
	if !ok {
		return "", false
	}
	b, _ := opaqueCode.DecodeString(code) // checked by Parse
	return string(b), true
}

func parsePayload(code string) (path, error) {
	b, err := opaqueCode.DecodeString(code)
	if err != nil || len(b) == 0 {
		return path{}, errors.New("the payload of an opaque path is not canonical, unpadded base64url")
	}
	return payloadPath(string(b)), nil
}

// payloadPath takes the path that a payload holds apart, or seals it. A payload that is no path is sealed too: it
// can be passed on, but has no native form.
func payloadPath(payload string) path {
	conv := sniff(payload)
	var p path
	var err error
	switch conv {
	case Posix:
		p, err = posixPath(payload)
	case Windows:
		p, err = windowsPath(decodeUTF16(payload))
	default:
		return path{sealed: payload}
	}
	if err != nil {
		return path{conv: conv, sealed: payload}
	}
	return p
}

// sniff tells the convention of a payload from how it begins.
func sniff(payload string) Convention {
	if strings.HasPrefix(payload, "/") {
		return Posix
	}
	if len(payload) < 4 || len(payload)%2 != 0 || payload[1] != 0 || payload[3] != 0 {
		return 0
	}
	if start := string([]byte{payload[0], payload[2]}); start == `\\` || isDrive(start) {
		return Windows
	}
	return 0
}
