package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"waldo/wire/listen"
)

const (
	enoughSpace = 1 << 30  // below it, output that nobody reads may be lost
	leastSpace  = 16 << 20 // below it, not much works
	renewWithin = 30 * 24 * time.Hour
)

// state looks at the state directory and, where this user may, into it.
func (x *examination) state(ctx context.Context) {
	if !x.stateDirectory() {
		return
	}
	x.space("state space", existing(x.stateDir))
	x.token()
	x.certificate()
	x.listeners(ctx)
	x.daemon(ctx)
}

// stateDirectory looks at the directory of the server's own files: the server refuses one that others may enter. usable
// says that it is this user's, or will be.
func (x *examination) stateDirectory() (usable bool) {
	const what = "state directory"
	info, err := os.Stat(x.stateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		above := existing(x.stateDir)
		if err := writable(above); err != nil {
			x.fail(what, "choose another with --state-dir or WALDO_HOME", "%q is not there and cannot be made: %v", x.stateDir, err)
			return false
		}
		x.ok(what, "%q is not there yet; the server makes it", x.stateDir)
		return true
	case err != nil:
		x.fail(what, "choose another with --state-dir or WALDO_HOME", "%v", err)
		return false
	case !info.IsDir():
		x.fail(what, "choose another with --state-dir or WALDO_HOME", "%q is not a directory", x.stateDir)
		return false
	}
	if remedy, err := private(info); err != nil {
		// The server closes one that is empty to others; an open one with something in it may be needed by them.
		if entries, readErr := os.ReadDir(x.stateDir); readErr != nil || len(entries) > 0 || !owned(info) {
			x.fail(what, fmt.Sprintf("%s %q", remedy, x.stateDir), "%q %v", x.stateDir, err)
			return owned(info)
		}
	}
	if err := writable(x.stateDir); err != nil {
		x.fail(what, "let this user write there, or choose another with --state-dir", "%v", err)
		return true
	}
	x.ok(what, "%q is this user's alone, and writable", x.stateDir)
	return true
}

// existing is path, or what there is of it.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// writable tries to make a file in a directory. Nothing is left there.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return fmt.Errorf("%q is not writable: %w", dir, err)
	}
	_, err = f.Write([]byte("x"))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// temporary looks at the directory where output that nobody reads is kept.
func (x *examination) temporary() {
	const what = "temporary files"
	dir := os.TempDir()
	if err := writable(dir); err != nil {
		x.fail(what, "make it writable, or set "+temporaryVariable+" for the server", "%v", err)
		return
	}
	x.space(what, dir)
}

// space looks at the free space of a directory's file system.
func (x *examination) space(what, dir string) {
	free, err := freeSpace(dir)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		x.warn(what, "look at the file system", "free space of %q: %v", dir, err)
	case free < leastSpace:
		x.fail(what, "free some space", "%s free at %q", size(free), dir)
	case free < enoughSpace:
		x.warn(what, "free some space, or lower --retain-spill: output that nobody reads is kept on disk", "%s free at %q", size(free), dir)
	default:
		x.ok(what, "%s free at %q", size(free), dir)
	}
}

// token looks at the token as the server does, and shows nothing of it.
func (x *examination) token() {
	const what = "token"
	path := filepath.Join(x.stateDir, "token")
	_, err := listen.FindToken(listen.Address{}, listen.DialOptions{TokenFile: path})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.ok(what, "none yet; the server makes one when it first listens on TCP")
	case err != nil:
		x.fail(what, "remove it, and the server makes a new one", "%v", err)
	default:
		x.ok(what, "%q is this user's alone", path)
	}
}

// certificate looks at the certificate that a tls:// listener has made, if there is one.
func (x *examination) certificate() {
	const what = "TLS certificate"
	const renew = "remove it: the server makes a new one, with another pin, which its clients must be given"
	path := filepath.Join(x.stateDir, "certificate.pem")
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		x.fail(what, renew, "%v", err)
		return
	}
	if remedy, err := private(info); err != nil {
		x.fail(what, fmt.Sprintf("%s %q", remedy, path), "%q %v", path, err)
		return
	}
	content, err := os.ReadFile(path)
	if err != nil {
		x.fail(what, renew, "%v", err)
		return
	}
	certificate, err := tls.X509KeyPair(content, content)
	if err != nil {
		x.fail(what, renew, "%q: %v", path, err)
		return
	}
	leaf := certificate.Leaf
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	detail := fmt.Sprintf("pin sha256:%s, good from %s to %s", base64.StdEncoding.EncodeToString(sum[:]),
		leaf.NotBefore.UTC().Format(time.DateOnly), leaf.NotAfter.UTC().Format(time.DateOnly))
	switch now := time.Now(); {
	case now.Before(leaf.NotBefore):
		x.fail(what, "set this machine's clock", "not good yet: %s", detail)
	case now.After(leaf.NotAfter):
		x.fail(what, renew, "expired: %s", detail)
	case now.Add(renewWithin).After(leaf.NotAfter):
		x.warn(what, renew, "about to expire: %s", detail)
	default:
		x.ok(what, "%s", detail)
	}
}
