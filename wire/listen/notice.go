package listen

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// notice is what a server tells local clients of its user about a port. It lies in a file that the server keeps locked
// as long as it has the port, and counts only then.
type notice struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	Pin   string `json:"pin,omitempty"`
}

// noticeFile is where the notice of a bound address is.
func noticeFile(stateDir string, ip netip.Addr, port uint16) string {
	// A colon is not possible in a Windows file name.
	name := strings.NewReplacer(":", "-", "%", "-").Replace(ip.Unmap().String())
	return filepath.Join(stateDir, "listeners", name+"_"+strconv.Itoa(int(port)))
}

// publish writes a notice and keeps it locked. withdraw takes it back.
func publish(stateDir string, at netip.AddrPort, n notice) (withdraw func(), err error) {
	path := noticeFile(stateDir, at.Addr(), at.Port())
	if err := PrivateDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	content, err := json.Marshal(n)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	ok, err := tryLock(f, false)
	// A client that is just looking has the lock for a moment.
	for deadline := time.Now().Add(2 * time.Second); err == nil && !ok && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
		ok, err = tryLock(f, false)
	}
	if err == nil && !ok {
		err = fmt.Errorf("%s is locked by another server, though this one has the port", path)
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(content, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		f.Close()
		os.Remove(path)
	}, nil
}

// readNotice reads a notice whose server is alive.
func readNotice(path string) (notice, bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return notice{}, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || checkPrivate(info) != nil {
		return notice{}, false
	}
	// Shared, so that a client never takes another one that is looking for the server.
	if got, err := tryLock(f, true); got || err != nil {
		return notice{}, false // its server is gone
	}
	content, err := io.ReadAll(io.LimitReader(f, 2*maxTokenFile))
	if err != nil {
		return notice{}, false
	}
	var n notice
	if json.Unmarshal(content, &n) != nil || n.Token == "" {
		return notice{}, false
	}
	return n, true
}

// local is a live server of this user at a loopback address.
type local struct {
	notice
	path string
	ip   netip.Addr // to dial, so that a name cannot lead elsewhere
}

// alive reports whether the server is still the same.
func (l local) alive() bool {
	n, ok := readNotice(l.path)
	return ok && n == l.notice
}

// findLocal looks for this user's own server at a loopback address.
func findLocal(addr Address, stateDir string) (local, bool) {
	if stateDir == "" || addr.Scheme == "unix" || addr.Scheme == "stdio" || !addr.Loopback() {
		return local{}, false
	}
	info, err := os.Stat(stateDir)
	if err != nil || checkPrivate(info) != nil {
		return local{}, false
	}
	ips := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	if ip, err := netip.ParseAddr(addr.Host); err == nil {
		ips = []netip.Addr{ip.Unmap()}
	}
	for _, ip := range ips {
		bound := []netip.Addr{ip, netip.IPv6Unspecified()}
		if ip.Is4() {
			bound = append(bound, netip.IPv4Unspecified())
		}
		for _, b := range bound {
			path := noticeFile(stateDir, b, addr.Port)
			n, ok := readNotice(path)
			if !ok {
				continue
			}
			// A plain client of an encrypted port would give the token to whoever listens, and fail anyway.
			if a, err := ParseAddress(n.URL); err != nil || a.TLS() != addr.TLS() || a.TLS() != (n.Pin != "") {
				continue
			}
			return local{notice: n, path: path, ip: ip}, true
		}
	}
	return local{}, false
}
