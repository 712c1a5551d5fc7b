package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"waldo/wire/listen"
)

// A look is an examination of a state directory whose findings are kept.
type look struct {
	examination
	findings []finding
}

func newLook(dir string) *look {
	l := &look{examination: examination{stateDir: dir}}
	l.tell = func(f finding) { l.findings = append(l.findings, f) }
	return l
}

// want is the one finding, as text: its status, its detail and its remedy.
func (l *look) want(t *testing.T, pattern string) {
	t.Helper()
	if len(l.findings) != 1 {
		t.Fatalf("%d findings, want one: %+v", len(l.findings), l.findings)
	}
	f := l.findings[0]
	if text := f.Status + ": " + f.Detail + "; " + f.Remedy; !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("%s, want %s", text, pattern)
	}
	if (f.Remedy == "") != (f.Status == statusOK) {
		t.Errorf("%+v: a remedy belongs to what is not ok, and only there", f)
	}
	if l.failed != (f.Status == statusFail) {
		t.Errorf("%+v, and failed is %v", f, l.failed)
	}
}

func write(t *testing.T, path, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func posixModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes tell nothing on this system")
	}
}

func TestDoctorStateDirectory(t *testing.T) {
	posixModes(t)
	for _, test := range []struct {
		name, want string
		make       func(t *testing.T, dir string)
	}{
		{"missing", `^ok: .*is not there yet`, func(*testing.T, string) {}},
		{"private", `^ok: .*this user's alone, and writable`, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "token"), "x", 0o600)
		}},
		{"open and empty", `^ok: `, func(t *testing.T, dir string) {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			os.Chmod(dir, 0o755)
		}},
		{"open", `^fail: .*is open to others \(mode 0755\); chmod go= ".*state"`, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "token"), "x", 0o600)
			os.Chmod(dir, 0o755)
		}},
		{"file", `^fail: .*is not a directory; choose another`, func(t *testing.T, dir string) { write(t, dir, "", 0o600) }},
		{"below a file", `^fail: .*not a directory; choose another`, func(t *testing.T, dir string) {
			write(t, filepath.Dir(dir), "", 0o600)
		}},
		{"not writable", `^fail: .*is not writable.*; let this user write`, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "token"), "x", 0o600)
			os.Chmod(dir, 0o500)
			if err := writable(dir); err == nil {
				t.Skip("this user may write into every directory")
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "above", "state")
			if test.name != "below a file" {
				os.Mkdir(filepath.Dir(dir), 0o700)
			}
			t.Cleanup(func() { os.Chmod(dir, 0o700) })
			test.make(t, dir)
			before := below(t, filepath.Dir(filepath.Dir(dir)))
			l := newLook(dir)
			l.stateDirectory()
			l.want(t, test.want)
			if after := below(t, filepath.Dir(filepath.Dir(dir))); after != before {
				t.Errorf("it was\n%sand is\n%s", before, after)
			}
		})
	}
}

// What is in a directory that is not this user's cannot be judged, and is not.
func TestDoctorStateUnusable(t *testing.T) {
	l := newLook(write(t, filepath.Join(t.TempDir(), "file"), "", 0o600))
	l.state(t.Context())
	l.want(t, `^fail: .*is not a directory`)
	if runtime.GOOS == "windows" || os.Geteuid() != 0 {
		return // nobody else can give files away
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "token"), "secret", 0o600)
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Skipf("this user may not give files away: %v", err)
	}
	l = newLook(dir)
	l.state(t.Context())
	l.want(t, `^fail: .* belongs to user 12345, not to this one \(0\); run this as its owner, or chown ".*"$`)
}

// below is what there is below a directory.
func below(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			b.WriteString(info.Mode().String() + " " + path + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDoctorToken(t *testing.T) {
	posixModes(t)
	const secret = "secret-secret-secret"
	for _, test := range []struct {
		name, content, want string
		mode                os.FileMode
	}{
		{"none", "", `^ok: none yet`, 0},
		{"good", secret + "\n", `^ok: ".*token" is this user's alone`, 0o600},
		{"open", secret, `^fail: .*is open to others \(mode 0644\).*; remove it`, 0o644},
		{"empty", "", `^fail: .*is empty; remove it`, 0o600},
		{"two lines", secret + "\n" + secret, `^fail: .*more than one line`, 0o600},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLook(t.TempDir())
			if test.mode != 0 {
				write(t, filepath.Join(l.stateDir, "token"), test.content, test.mode)
			}
			l.token()
			l.want(t, test.want)
			if strings.Contains(l.findings[0].Detail, secret) {
				t.Error("the token is shown")
			}
		})
	}
}

func TestDoctorCertificate(t *testing.T) {
	posixModes(t)
	now := time.Now()
	made := func(from, to time.Duration) string { return makeCertificate(t, now.Add(from), now.Add(to)) }
	const day = 24 * time.Hour
	for _, test := range []struct {
		name, content, want string
		mode                os.FileMode
	}{
		{"good", made(-day, 400*day), `^ok: pin sha256:[A-Za-z0-9+/]{43}=, good from [0-9-]{10} to [0-9-]{10}; $`, 0o600},
		{"open", made(-day, 400*day), `^fail: .*open to others \(mode 0640\); chmod go= "`, 0o640},
		{"expired", made(-9*day, -day), `^fail: expired: pin .*; remove it`, 0o600},
		{"about to expire", made(-9*day, 9*day), `^warn: about to expire: .*; remove it`, 0o600},
		{"not yet", made(day, 9*day), `^fail: not good yet: .*; set this machine's clock`, 0o600},
		{"broken", "nonsense", `^fail: .*certificate.pem": .*; remove it`, 0o600},
		{"no key", made(-day, day)[:200], `^fail: `, 0o600},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLook(t.TempDir())
			write(t, filepath.Join(l.stateDir, "certificate.pem"), test.content, test.mode)
			l.certificate()
			l.want(t, test.want)
		})
	}
	l := newLook(t.TempDir())
	l.certificate()
	if len(l.findings) != 0 {
		t.Errorf("there is none, and it says %+v", l.findings)
	}
}

func makeCertificate(t *testing.T, from, to time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// A listener that answers is seen in the story doctor.txtar; here are those that do not.
func TestDoctorListeners(t *testing.T) {
	posixModes(t)
	const secret = "secret-secret-secret"
	for _, test := range []struct {
		name, content, want string
		mode                os.FileMode
	}{
		{"none", "", `^ok: no server`, 0},
		{"gone", `{"url":"tcp://127.0.0.1:9","token":"` + secret + `"}`, `^warn: tcp://127.0.0.1:9: its server is gone.*; remove`, 0o600},
		{"every interface, gone", `{"url":"tcp://0.0.0.0:9","token":"` + secret + `"}`, `^warn: tcp://0.0.0.0:9: its server is gone`, 0o600},
		{"open", `{"url":"tcp://127.0.0.1:9","token":"` + secret + `"}`, `^fail: .*open to others`, 0o644},
		{"broken", `{"token":"` + secret, `^fail: .*does not hold what a server writes`, 0o600},
		{"no address", `{"url":"` + secret + `","token":""}`, `^fail: .*it has no scheme`, 0o600},
		{"elsewhere in the clear", `{"url":"tcp://192.0.2.1:9","token":"` + secret + `"}`, `^fail: .*nor encrypted`, 0o600},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLook(t.TempDir())
			if test.mode != 0 {
				write(t, filepath.Join(l.stateDir, "listeners", "127.0.0.1_9"), test.content, test.mode)
			}
			l.listeners(t.Context())
			l.want(t, test.want)
			if strings.Contains(l.findings[0].Detail, secret) {
				t.Error("the token is shown")
			}
		})
	}
}

// silent accepts connections and says nothing.
func silent(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestDoctorDaemon(t *testing.T) {
	if !daemonsWork {
		t.Skip("no daemons on this system")
	}
	// A test's own temporary directory may have too long a name for a socket.
	state := func(t *testing.T) string {
		dir, err := os.MkdirTemp("", "doctor")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		return dir
	}
	t.Run("none", func(t *testing.T) {
		l := newLook(state(t))
		l.daemon(t.Context())
		l.want(t, `^ok: none runs; `)
	})
	for name, dir := range map[string]string{"long": "", "long and missing": "missing"} {
		t.Run(name, func(t *testing.T) {
			long := filepath.Join(t.TempDir(), strings.Repeat("x", maxSocketPath))
			if err := os.Mkdir(long, 0o700); err != nil {
				t.Fatal(err)
			}
			l := newLook(filepath.Join(long, dir))
			l.daemon(t.Context())
			l.want(t, `^fail: none runs, and none can.*; choose a --state-dir .*shorter`)
		})
	}
	t.Run("dead", func(t *testing.T) {
		l := newLook(state(t))
		s := silent(t, "unix", filepath.Join(l.stateDir, daemonName("sock"))).(*net.UnixListener)
		s.SetUnlinkOnClose(false)
		s.Close()
		l.daemon(t.Context())
		l.want(t, `^ok: none runs; the socket that one has left`)
	})
	t.Run("mute", func(t *testing.T) {
		l := newLook(state(t))
		silent(t, "unix", filepath.Join(l.stateDir, daemonName("sock")))
		impatient := errors.New("the test does not wait")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, impatient)
		defer cancel()
		l.daemon(ctx)
		l.want(t, `^fail: .*daemon-.*sock" does not answer as it should: the test does not wait; end it .*daemon-.*log`)
	})
}

func TestDoctorPort(t *testing.T) {
	held := silent(t, "tcp", "127.0.0.1:0")
	address := listen.Address{Scheme: "tcp", Host: "127.0.0.1", Port: uint16(held.Addr().(*net.TCPAddr).Port)}
	l := newLook(t.TempDir())
	l.port(t.Context(), address)
	want := `^warn: tcp://127.0.0.1:[0-9]+ is not free: .*`
	if runtime.GOOS == "linux" {
		want += `: process [0-9]+ \(exec-server[.a-z]*\) of user [0-9]+ has it; end what is there`
	}
	l.want(t, want)

	l = newLook(t.TempDir())
	l.answered = map[uint16]bool{address.Port: true}
	l.port(t.Context(), address)
	l.want(t, `^ok: .*this user's own server`)

	held.Close()
	l = newLook(t.TempDir())
	l.port(t.Context(), address)
	l.want(t, `^ok: .* is free`)
}

func TestDoctorSpace(t *testing.T) {
	l := newLook(t.TempDir())
	l.space("space", filepath.Join(l.stateDir, "missing"))
	if len(l.findings) > 0 { // not every system tells it
		l.want(t, `^warn: free space of ".*missing": .*; look at`)
	}
}

func TestExisting(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                                   dir,
		filepath.Join(dir, "a"):               dir,
		filepath.Join(dir, "a", "b"):          dir,
		string(filepath.Separator) + "\x01no": string(filepath.Separator),
	} {
		if got := existing(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}

func TestDoctorLine(t *testing.T) {
	plain := paintFor(&bytes.Buffer{})
	for _, test := range []struct {
		finding finding
		want    string
	}{
		{finding{statusOK, "what", "it is", ""}, "ok    what               it is\n"},
		{finding{statusFail, "what", "it is", "do that"}, "fail  what               it is; do that\n"},
		{finding{statusWarn, "what", "a\x1b[31m\n\xffé\u0090", "b"}, `warn  what               a\x1b[31m | \xffé\u0090; b` + "\n"},
	} {
		if got := line(test.finding, plain); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 29: "1.5 GiB", 1 << 62: "4194304.0 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no paper") }

// The whole of it, as JSON and as text: the same findings, and the exit code that goes with them.
func TestDoctorOutput(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only a Linux machine is served so far")
	}
	for _, broken := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "state")
		if broken {
			write(t, filepath.Join(dir, "token"), "", 0o600)
		}
		var text, document bytes.Buffer
		textErr := examine(t.Context(), dir, false, &text)
		jsonErr := examine(t.Context(), dir, true, &document)
		var got struct {
			Version  string
			Failed   bool
			Findings []finding
		}
		if err := json.Unmarshal(document.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		failed := false
		statuses := map[string]bool{statusOK: true, statusWarn: true, statusFail: true}
		lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
		if len(lines) != len(got.Findings) {
			t.Fatalf("%d lines and %d findings:\n%s%s", len(lines), len(got.Findings), text.String(), document.String())
		}
		for i, f := range got.Findings {
			failed = failed || f.Status == statusFail
			if !statuses[f.Status] || f.What == "" || f.Detail == "" || (f.Status == statusOK) != (f.Remedy == "") {
				t.Errorf("%+v", f)
			}
			if fields := strings.Fields(lines[i]); fields[0] != f.Status || !strings.Contains(lines[i], f.What) {
				t.Errorf("%q is not %+v", lines[i], f)
			}
		}
		var code *exitError
		if got.Failed != failed || errors.As(jsonErr, &code) != failed || errors.As(textErr, &code) != failed || failed && code.code != 1 || broken && !failed || got.Version != version {
			t.Errorf("failed is %v, the errors are %v and %v:\n%s", got.Failed, jsonErr, textErr, document.String())
		}
		if strings.Contains(text.String(), "\x1b") {
			t.Error("colours in what is no terminal")
		}
	}
	if err := examine(t.Context(), t.TempDir(), false, brokenWriter{}); err == nil || !strings.Contains(err.Error(), "no paper") {
		t.Errorf("nothing could be printed, and the error is %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := examine(ctx, t.TempDir(), true, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("it was told to end, and the error is %v", err)
	}
}

// Whatever is found, nothing reaches the terminal that it would obey, and what is printable is shown as it is.
func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"", "plain é", "a\x1b[31m\n", "\xff\xc3", "\u0090\u202e\ufffd", "\U000e0001"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := printable(text)
		plain := utf8.ValidString(text)
		for _, r := range text {
			plain = plain && unicode.IsPrint(r)
		}
		if plain != (got == text) {
			t.Errorf("%q became %q", text, got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) {
				t.Errorf("%q became %q, with %q in it", text, got, r)
			}
		}
	})
}
