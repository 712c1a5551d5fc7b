package listen

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// DefaultPort is the port of tcp and tls addresses that name none.
const DefaultPort = 7777

// Address is a parsed URL to listen on or to dial. It is comparable.
type Address struct {
	// Scheme is tcp, tls, ws, wss, unix or stdio.
	Scheme string
	// Host is a name in lower case or an IP address without brackets; "" for unix and stdio.
	Host string
	// Port is 0 where a listener may choose.
	Port uint16
	// Path is a unix socket's file, or the escaped path of a ws or wss URL ("/" if it has none).
	Path string
}

// ParseAddress parses tcp://HOST:PORT, tls://HOST:PORT, ws://HOST:PORT/PATH, wss://HOST:PORT/PATH, unix://PATH and
// stdio. A missing port is 7777 for tcp and tls, 80 for ws and 443 for wss. User information, queries and fragments
// are refused: no secret is ever part of an address, and none is repeated in the errors.
func ParseAddress(text string) (Address, error) {
	a, err := parseAddress(text)
	if err != nil {
		return Address{}, fmt.Errorf("address: %w", err)
	}
	return a, nil
}

func parseAddress(text string) (Address, error) {
	if text == "" {
		return Address{}, errors.New("it is empty; write for example tcp://127.0.0.1:7777")
	}
	for _, r := range text {
		if r < 0x20 || r == 0x7f {
			return Address{}, errors.New("it holds a control character")
		}
	}
	if text == "stdio" || text == "stdio://" {
		return Address{Scheme: "stdio"}, nil
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return Address{}, errors.New("it has no scheme; write for example tcp://127.0.0.1:7777, unix:///path.sock or stdio")
	}
	scheme = strings.ToLower(scheme)
	if strings.Contains(rest, "?") || strings.Contains(rest, "#") {
		return Address{}, errors.New("it has a query or a fragment; tokens go into a token file, never into a URL")
	}
	a := Address{Scheme: scheme}
	switch scheme {
	case "unix":
		a.Path = rest
		return a, nil
	case "tcp", "tls":
		a.Port = DefaultPort
	case "ws":
		a.Port = 80
	case "wss":
		a.Port = 443
	case "http", "https":
		return Address{}, fmt.Errorf("%s is not a scheme here; write %s", scheme, strings.Replace(scheme, "http", "ws", 1))
	case "stdio":
		return Address{}, errors.New("nothing may follow stdio")
	default:
		return Address{}, errors.New("its scheme is none of tcp, tls, ws, wss, unix and stdio")
	}

	authority, path, hasPath := strings.Cut(rest, "/")
	if strings.Contains(authority, "@") {
		return Address{}, errors.New("it has user information; tokens go into a token file, never into a URL")
	}
	switch {
	case scheme == "ws" || scheme == "wss":
		u, err := url.Parse("ws://h/" + path)
		if err != nil {
			return Address{}, errors.New("its path has a bad escape")
		}
		a.Path = u.EscapedPath()
	case hasPath && path != "":
		return Address{}, fmt.Errorf("a %s address has no path", scheme)
	}
	host, port, err := splitHostPort(authority)
	if err != nil {
		return Address{}, err
	}
	a.Host = host
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || port[0] == '+' {
			return Address{}, errors.New("its port is not a number from 0 to 65535")
		}
		a.Port = uint16(n)
	}
	return a, nil
}

// splitHostPort takes an authority apart. The port is "" if there is none.
func splitHostPort(authority string) (host, port string, err error) {
	if inside, ok := strings.CutPrefix(authority, "["); ok {
		text, after, ok := strings.Cut(inside, "]")
		if !ok {
			return "", "", errors.New("a bracket is not closed")
		}
		ip, err := netip.ParseAddr(strings.Replace(text, "%25", "%", 1))
		if err != nil || !ip.Is6() {
			return "", "", errors.New("what is in brackets is not an IPv6 address")
		}
		if after != "" && (after[0] != ':' || len(after) == 1) {
			return "", "", errors.New("only a port may follow the brackets")
		}
		if ip.Zone() != strings.Map(hostRune, ip.Zone()) {
			return "", "", errors.New("its zone has a character that zones do not have")
		}
		return ip.String(), strings.TrimPrefix(after, ":"), nil
	}
	host, port, hasPort := strings.Cut(authority, ":")
	switch {
	case strings.Contains(port, ":"):
		return "", "", errors.New("an IPv6 address is written in brackets, as in tcp://[::1]:7777")
	case hasPort && port == "":
		return "", "", errors.New("the port after the colon is missing")
	case host == "":
		return "", "", errors.New("the host is missing; every interface is 0.0.0.0 or [::]")
	}
	host = strings.ToLower(host)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return ip.String(), port, nil
	}
	if host != strings.Map(hostRune, host) || len(host) > 253 || strings.HasPrefix(host, ".") || strings.Contains(host, "..") {
		return "", "", errors.New("its host is not a name or an IP address")
	}
	// A name that ends in a number is taken for an IP address by some resolvers (127.1, 0x7f.1).
	last := strings.TrimSuffix(host, ".")
	last = last[strings.LastIndexByte(last, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || strings.Trim(last, "0123456789") == "" {
		return "", "", errors.New("its host looks like an IPv4 address and is none")
	}
	return host, port, nil
}

// hostRune drops what is not part of a host's name.
func hostRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_' {
		return r
	}
	return -1
}

// String is the URL. ParseAddress gives the same Address for it.
func (a Address) String() string {
	switch a.Scheme {
	case "":
		return ""
	case "stdio":
		return "stdio"
	case "unix":
		return "unix://" + a.Path
	}
	host := a.Host
	if strings.Contains(host, ":") {
		host = "[" + strings.Replace(host, "%", "%25", 1) + "]"
	}
	path := a.Path
	if path == "/" {
		path = ""
	}
	return a.Scheme + "://" + host + ":" + strconv.Itoa(int(a.Port)) + path
}

// TLS reports whether the connection is encrypted.
func (a Address) TLS() bool { return a.Scheme == "tls" || a.Scheme == "wss" }

// Mux reports whether the native protocol is spoken there: on tcp, tls, unix and stdio, and on ws and wss at /mux.
func (a Address) Mux() bool {
	return a.Scheme != "ws" && a.Scheme != "wss" || a.Path == muxPath
}

// Loopback reports whether only processes of this machine can be at the other end, as far as the text tells: a
// loopback IP address, localhost, a unix socket or stdio.
func (a Address) Loopback() bool {
	switch a.Scheme {
	case "unix", "stdio":
		return true
	}
	if a.Host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(a.Host)
	return err == nil && ip.Unmap().IsLoopback()
}

// hostPort is what package net takes.
func (a Address) hostPort() string { return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port))) }
