package listen

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
)

// ErrUnauthenticated is what a missing or wrong token comes to.
var ErrUnauthenticated = errors.New("not authenticated")

// Auth decides on tokens.
type Auth interface {
	// Check returns nil for a good token. Its error is shown to the client, so it must not repeat the token.
	Check(token string) error
}

// tokenAuth is the Auth of one token, of which it keeps a hash.
type tokenAuth [sha256.Size]byte

func newTokenAuth(token string) tokenAuth { return sha256.Sum256([]byte(token)) }

// Check compares in constant time.
func (a tokenAuth) Check(token string) error {
	if token == "" {
		return fmt.Errorf("%w: a token is needed (a client on this machine finds it by itself; elsewhere give --token-file)", ErrUnauthenticated)
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], a[:]) != 1 {
		return fmt.Errorf("%w: the token is not the server's", ErrUnauthenticated)
	}
	return nil
}

// noToken is the Auth where only those get in who need no token.
type noToken struct{}

// Check refuses.
func (noToken) Check(string) error {
	return fmt.Errorf("%w: only processes of the server's user are let in here", ErrUnauthenticated)
}

// certificateOnly is the Auth where a client certificate is wanted.
type certificateOnly struct{}

// Check refuses.
func (certificateOnly) Check(string) error {
	return fmt.Errorf("%w: a client certificate is needed (give --client-cert and --client-key)", ErrUnauthenticated)
}

// refusal is the Auth of a client of which is known already why it is not let in.
type refusal struct{ why error }

// Check refuses.
func (r refusal) Check(string) error { return r.why }

// TokenFileAuth is the Auth of the token in a file, which has to be there. It may be open to others, as files are that
// an orchestrator mounts; the log gets a warning then.
func TokenFileAuth(path string, log *slog.Logger) (Auth, error) {
	token, open, err := readSecret(path)
	if err == nil {
		err = checkWord(token, path)
	}
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	warnOpen(log, "the token file is open to others", path, open)
	return newTokenAuth(token), nil
}

// TokenSumAuth is the Auth of a token of which only the SHA-256 is known, in hexadecimal digits. A token that people
// can guess is not safe that way: the sum can be tried out by whoever sees it.
func TokenSumAuth(sum string) (Auth, error) {
	var a tokenAuth
	if n, err := hex.Decode(a[:], []byte(sum)[:min(len(sum), 2*len(a))]); err != nil || n != len(a) || len(sum) != 2*len(a) {
		return nil, fmt.Errorf("the SHA-256 of a token is %d hexadecimal digits", 2*len(a))
	}
	return a, nil
}

func warnOpen(log *slog.Logger, message, path string, open error) {
	if open != nil && log != nil {
		log.Warn(message, "path", path, "reason", open)
	}
}

// maxTokenFile bounds what is read of a file that holds a token or a secret.
const maxTokenFile = 4096

// readToken reads a token file, which must be this user's alone: the token, and blanks around it.
func readToken(path string) (string, error) {
	token, open, err := readSecret(path)
	if err == nil {
		err = checkWord(token, path)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("token file: %w", err)
	case open != nil:
		return "", fmt.Errorf("token file %s %w", path, open)
	}
	return token, nil
}

// readSecret reads a file with a secret, and blanks around it. open says why the file is not this user's alone.
func readSecret(path string) (secret string, open, err error) {
	// Neither a FIFO nor a device may make us wait.
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", nil, err
	}
	if !info.Mode().IsRegular() {
		return "", nil, fmt.Errorf("%s is not a regular file", path)
	}
	open = checkPrivate(info)
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile+1))
	if err != nil {
		return "", nil, err
	}
	secret = strings.TrimSpace(string(text))
	switch {
	case len(text) > maxTokenFile:
		return "", nil, fmt.Errorf("%s is over %d bytes long", path, maxTokenFile)
	case secret == "":
		return "", nil, fmt.Errorf("%s is empty", path)
	}
	return secret, open, nil
}

// checkWord says why a secret cannot be the token of an HTTP header.
func checkWord(secret, path string) error {
	if strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%s holds more than one line or word, or what is not ASCII", path)
	}
	return nil
}

// ensureToken reads a token file and makes it, with a token of 32 random bytes, if it is not there.
func ensureToken(path string) (string, error) {
	token, err := readToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	var raw [32]byte
	rand.Read(raw[:])
	if err := createOnce(path, []byte(base64.RawURLEncoding.EncodeToString(raw[:])+"\n")); err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	return readToken(path)
}

// createOnce makes a file of mode 0600 that is never seen half written. If another process was faster, its file stays.
func createOnce(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	err = os.Link(f.Name(), path)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	// A file system without hard links.
	return os.Rename(f.Name(), path)
}

// PrivateDir makes sure that path is a directory of this user that nobody else may enter or read, and makes it if it is
// not there. An existing one is closed to others only while it is empty; else the error tells what to do, since it
// may be a directory that others need.
func PrivateDir(path string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err != nil {
		return err
	}
	err = os.Mkdir(path, 0o700)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "open", Path: path, Err: errors.New("not a directory")}
	}
	if made {
		return restrictNew(path)
	}
	if err := checkPrivate(info); err == nil {
		return nil
	} else if entries, readErr := os.ReadDir(path); readErr != nil || len(entries) > 0 || checkOwner(info) != nil || info.Mode()&fs.ModeSticky != 0 {
		return fmt.Errorf("directory %s %w", path, err)
	}
	return os.Chmod(path, 0o700)
}
