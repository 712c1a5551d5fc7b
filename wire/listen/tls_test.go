package listen

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// authority makes certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.file, _ = a.issue("ca")
	return a
}

// issue makes a certificate and its key, changed as change says; the first is the authority's own.
func (a *authority) issue(name string, change ...func(*x509.Certificate)) (cert, key string) {
	a.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{name},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, c := range change {
		c(template)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		template.Subject.CommonName += " " + a.dir // two authorities have two names
		template.IsCA, template.BasicConstraintsValid = true, true
		parent, signer = template, k
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, k.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
		a.key = k
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	cert = write(a.t, filepath.Join(a.dir, name+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o600)
	key = write(a.t, filepath.Join(a.dir, name+"-key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})), 0o600)
	return cert, key
}

func TestPins(t *testing.T) {
	state := t.TempDir()
	l, addr := start(t, "tls://127.0.0.1:0", Options{StateDir: state}, allDoors)
	right := token(t, state)
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(l.Pin(), "sha256:"))
	if err != nil || len(sum) != 32 {
		t.Fatalf("pin %q: %v", l.Pin(), err)
	}
	for _, pin := range []string{
		l.Pin(),
		" " + strings.TrimRight(l.Pin(), "=") + "\n",
		"sha256:" + hex.EncodeToString(sum),
		"sha256:" + strings.ToUpper(hex.EncodeToString(sum)),
		"sha256:" + base64.RawURLEncoding.EncodeToString(sum),
	} {
		if answer, _ := hello(t, dialed(t, addr, DialOptions{TLSPin: pin}), right); answer != "ok trusted=false" {
			t.Errorf("pin %q: %s", pin, answer)
		}
	}
	wrong := "sha256:" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, test := range []struct {
		o    DialOptions
		want string
	}{
		{DialOptions{TLSPin: wrong}, "the server's pin is " + l.Pin()},
		{DialOptions{TLSPin: wrong, StateDir: state}, "the server's pin is " + l.Pin()},
		{DialOptions{}, "its pin is " + l.Pin()},
		{DialOptions{TLSPin: "x"}, "does not start with"},
		{DialOptions{TLSPin: "sha256:"}, "not the base64 of 32 bytes"},
		{DialOptions{TLSPin: l.Pin()[:20]}, "not the base64 of 32 bytes"},
		{DialOptions{TLSPin: l.Pin(), ClientCert: "x"}, "given together"},
		{DialOptions{TLSCA: os.DevNull}, "no PEM certificate"},
	} {
		c, err := Dial(t.Context(), addr, test.o)
		if err == nil {
			c.Close()
		}
		wantErr(t, err, test.want)
	}
	// On the server's own machine its user needs to say nothing.
	if answer, _ := hello(t, dialed(t, addr, DialOptions{StateDir: state}), right); answer != "ok trusted=false" {
		t.Error(answer)
	}
	// An encrypted port is not spoken to in the clear, nor a plain one with a pin.
	plainAddr := addr
	plainAddr.Scheme = "tcp"
	_, err = Dial(t.Context(), plainAddr, DialOptions{TLSPin: l.Pin()})
	wantErr(t, err, "not encrypted")
	if token, err := FindToken(plainAddr, DialOptions{StateDir: state}); token != "" || err != nil {
		t.Errorf("a token for a plain connection to an encrypted port: %q, %v", token, err)
	}
}

// Every way to write a pin comes to the one, whatever its digits are.
func TestNormalPin(t *testing.T) {
	for _, fill := range []byte{0x00, 0xff, 0xfb, 0x5a, 0xd0} {
		sum := bytes.Repeat([]byte{fill}, 32)
		want := "sha256:" + base64.StdEncoding.EncodeToString(sum)
		for _, text := range []string{
			"sha256:" + base64.StdEncoding.EncodeToString(sum),
			"sha256:" + base64.RawStdEncoding.EncodeToString(sum),
			"sha256:" + base64.URLEncoding.EncodeToString(sum),
			"sha256:" + base64.RawURLEncoding.EncodeToString(sum),
			"sha256//" + base64.StdEncoding.EncodeToString(sum), // as curl writes it
			"sha256:" + hex.EncodeToString(sum),
			"sha256:" + strings.ToUpper(hex.EncodeToString(sum)),
			"sha256:" + strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":"), // as openssl writes it
			"\t" + want + "\n",
		} {
			if got, err := normalPin(text); got != want || err != nil {
				t.Errorf("normalPin(%q) = %q, %v; want %q", text, got, err, want)
			}
		}
	}
	for _, text := range []string{"", "sha256", "sha256:", "sha256//", "sha256:////", "sha1:" + strings.Repeat("00", 32), "sha256:" + strings.Repeat("00", 31), "sha256:" + strings.Repeat("00", 33), strings.Repeat("00", 32)} {
		if got, err := normalPin(text); err == nil {
			t.Errorf("normalPin(%q) = %q", text, got)
		}
	}
}

// The certificate that was made stays, so the pin does.
func TestCertificateStays(t *testing.T) {
	state := t.TempDir()
	first, _ := start(t, "tls://127.0.0.1:0", Options{StateDir: state}, allDoors)
	second, _ := start(t, "wss://127.0.0.1:0", Options{StateDir: state}, allDoors)
	if first.Pin() != second.Pin() || first.Pin() == "" {
		t.Errorf("pins %q and %q", first.Pin(), second.Pin())
	}
	path := filepath.Join(state, "certificate.pem")
	config, leaf, err := serverTLS(Options{StateDir: state})
	if err != nil || leaf.NotAfter.Before(time.Now().AddDate(9, 11, 0)) {
		t.Errorf("valid until %v, %v", leaf.NotAfter, err)
	}
	if key, ok := config.Certificates[0].PrivateKey.(*ecdsa.PrivateKey); !ok || key.Curve != elliptic.P256() {
		t.Errorf("key %T", config.Certificates[0].PrivateKey)
	}
	write(t, path, "broken", 0o600)
	_, err = ensureCertificate(path)
	wantErr(t, err, "remove it")
	needModes(t)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = ensureCertificate(path)
	wantErr(t, err, "is open to others")
}

func TestALPN(t *testing.T) {
	l, _ := start(t, "tls://127.0.0.1:0", Options{}, allDoors)
	tests := []struct {
		offer   []string
		version uint16
		want    string // "-" for a failure
	}{
		{nil, tls.VersionTLS13, ""},
		{[]string{"waldo/1"}, tls.VersionTLS13, "waldo/1"},
		{[]string{"h2", "http/1.1"}, tls.VersionTLS13, "http/1.1"},
		{[]string{"h2"}, tls.VersionTLS13, "-"},
		{nil, tls.VersionTLS12, "-"},
	}
	for _, test := range tests {
		c := tls.Client(plain(t, l), &tls.Config{InsecureSkipVerify: true, NextProtos: test.offer, MinVersion: test.version, MaxVersion: test.version})
		err := c.HandshakeContext(t.Context())
		if test.want == "-" {
			if err == nil {
				t.Errorf("%v in version %x was taken", test.offer, test.version)
			}
			continue
		}
		if err != nil || c.ConnectionState().NegotiatedProtocol != test.want {
			t.Errorf("%v: %q, %v", test.offer, c.ConnectionState().NegotiatedProtocol, err)
		}
	}
}

func TestClientCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.issue("server.example")
	mine, mineKey := ca.issue("me")
	foreign, foreignKey := other.issue("stranger")
	l, addr := start(t, "tls://127.0.0.1:0", Options{TLSCert: cert, TLSKey: key, ClientCA: ca.file}, allDoors)

	if answer, _ := hello(t, dialed(t, addr, DialOptions{TLSCA: ca.file, ClientCert: mine, ClientKey: mineKey}), ""); answer != "ok trusted=true" {
		t.Error(answer)
	}
	if answer, _ := hello(t, dialed(t, addr, DialOptions{TLSCA: ca.file}), ""); !strings.HasPrefix(answer, "refused") {
		t.Error(answer)
	}
	// Without our certificate's authority, with another's certificate, and by a name that is not in it.
	for _, o := range []DialOptions{{}, {TLSCA: other.file}, {TLSCA: ca.file, TLSPin: "sha256:" + strings.Repeat("00", 32)}} {
		c, err := Dial(t.Context(), addr, o)
		if err == nil {
			c.Close()
		}
		wantErr(t, err, "pin is "+l.Pin())
	}
	// TLS 1.3 tells a client of a refused certificate with its first read.
	c := dialed(t, addr, DialOptions{TLSCA: ca.file, ClientCert: foreign, ClientKey: foreignKey})
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a stranger's certificate: %v", err)
	}
	// The certificate's own name is one for the Host header; HTTP needs no token then either.
	client, err := Client(Address{Scheme: "wss", Host: "127.0.0.1", Port: addr.Port, Path: "/"}, DialOptions{TLSCA: ca.file, ClientCert: mine, ClientKey: mineKey})
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]int{"https://server.example/x": 200, "https://evil.test/x": 403} {
		response, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s", url, response.Status)
		}
	}
}

// TestRefusedClientsAreTold: who has no certificate, or one that does not count, is told so, and so is the log.
func TestRefusedClientsAreTold(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	now := time.Now()
	type pair struct{ cert, key string }
	issue := func(a *authority, name string, change ...func(*x509.Certificate)) pair {
		cert, key := a.issue(name, change...)
		return pair{cert, key}
	}
	token := write(t, filepath.Join(t.TempDir(), "token"), "right", 0o600)
	for _, test := range []struct {
		name   string
		client pair
		token  string // sent
		file   bool   // the server has a token file as well
		want   string // of the answer
	}{
		{"a certificate", issue(ca, "me"), "", false, "ok trusted=true"},
		{"a certificate beside a token", issue(ca, "me"), "", true, "ok trusted=true"},
		{"a token beside certificates", pair{}, "right", true, "ok trusted=false"},
		{"none", pair{}, "", false, "refused: not authenticated: a client certificate is needed (give --client-cert and --client-key)"},
		{"a token where none is taken", pair{}, "right", false, "refused: not authenticated: a client certificate is needed (give --client-cert and --client-key)"},
		{"no token", pair{}, "", true, "refused: not authenticated: a token is needed"},
		{"a wrong token", pair{}, "wrong", true, "refused: not authenticated: the token is not the server's"},
		{"a stranger's", issue(other, "stranger"), "", false, `refused: not authenticated: the client certificate of "CN=stranger" does not count: it is signed by no authority of the server's --client-ca`},
		{"a stranger's and the token", issue(other, "stranger"), "right", true, `refused: not authenticated: the client certificate of "CN=stranger"`},
		{"an expired one", issue(ca, "late", func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }), "", false,
			`refused: not authenticated: the client certificate of "CN=late" does not count: it expired at ` + now.Add(-time.Minute).UTC().Format(time.RFC3339)},
		{"one of tomorrow", issue(ca, "early", func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }), "", false,
			`refused: not authenticated: the client certificate of "CN=early" does not count: it is not valid before ` + now.Add(time.Minute).UTC().Format(time.RFC3339)},
		{"a server's", issue(ca, "server", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }), "", false,
			`refused: not authenticated: the client certificate of "CN=server" does not count: it is not made for clients`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log lockedLog
			o := Options{ClientCA: ca.file, Log: slog.New(slog.NewTextHandler(&log, nil))}
			if test.file {
				o.TokenFile = token
			}
			l, addr := start(t, "tls://127.0.0.1:0", o, allDoors)
			c := dialed(t, addr, DialOptions{TLSPin: l.Pin(), ClientCert: test.client.cert, ClientKey: test.client.key})
			answer, _ := hello(t, c, test.token)
			if !strings.HasPrefix(answer, test.want) {
				t.Errorf("%s; want %s", answer, test.want)
			}
			if refused := strings.Contains(log.String(), "refused a client"); refused != strings.HasPrefix(test.want, "refused") {
				t.Errorf("the log: %s", log.String())
			}
			if strings.Contains(log.String()+answer, "right") {
				t.Error("a token was told")
			}
		})
	}
}

// TestWrongPinIsLogged: the client says what is wrong, and the server that somebody did not trust it.
func TestWrongPinIsLogged(t *testing.T) {
	var log lockedLog
	l, addr := start(t, "tls://127.0.0.1:0", Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, allDoors)
	_, err := Dial(t.Context(), addr, DialOptions{TLSPin: pinPrefix + strings.Repeat("00", 32)})
	wantErr(t, err, "the server's pin is "+l.Pin())
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for late := time.After(30 * time.Second); !strings.Contains(log.String(), "the client did not accept the certificate or its pin"); {
		select {
		case <-ticker.C: // what the client said is under way
		case <-late:
			t.Fatalf("the log: %s", log.String())
		}
	}
}

// lockedLog is a log that a listener writes and a test reads.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
