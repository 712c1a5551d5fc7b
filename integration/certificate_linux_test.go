package integration

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// issuer signs certificates for a test.
type issuer struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue makes NAME.pem and NAME-key.pem; the first is the authority's own.
func (i *issuer) issue(name string, until time.Time) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if i.cert == nil {
		template.IsCA, template.BasicConstraintsValid = true, true
		i.cert, i.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, key.Public(), i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		i.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + "-key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(i.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			i.t.Fatal(err)
		}
	}
}

// TestClientCertificates: under --client-ca a certificate of that authority lets in, and nothing else; both sides
// say why.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, dir: programs(t), home: t.TempDir()}
	tomorrow := time.Now().Add(24 * time.Hour)
	mine := &issuer{t: t, dir: r.home}
	mine.issue("ca", tomorrow)
	mine.issue("me", tomorrow)
	mine.issue("late", time.Now().Add(-time.Hour))
	(&issuer{t: t, dir: r.home}).issue("stranger", tomorrow)

	r.server = r.command("exec-server", "--listen", "tls://127.0.0.1:0", "--client-ca", "ca.pem", "--state-dir", filepath.Join(r.home, "state"))
	said := &lockedBuffer{}
	r.server.Stderr = said
	stdout, err := r.server.StdoutPipe()
	if err == nil {
		err = r.server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("%v %s", err, said)
	}
	pin := ""
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(storyPatience); pin == ""; {
		select {
		case <-again.C: // it was said before the URL, but may have to be read yet
		case <-deadline:
			t.Fatalf("no pin: %s", said)
		}
		pin = regexp.MustCompile(`sha256:\S+`).FindString(said.String())
	}
	for _, c := range []struct{ client, want string }{
		{"me", ""},
		{"late", `the client certificate of "CN=late" does not count: it expired at `},
		{"stranger", `the client certificate of "CN=stranger" does not count: it is signed by no authority of the server's --client-ca`},
		{"", "a client certificate is needed (give --client-cert and --client-key)"},
	} {
		args := []string{"run", "-e", strings.TrimSpace(url), "--tls-pin", pin}
		if c.client != "" {
			args = append(args, "--client-cert", c.client+".pem", "--client-key", c.client+"-key.pem")
		}
		command := r.command("app-server", append(args, "--", "echo", "in")...)
		out, err := command.CombinedOutput()
		if c.want == "" {
			if err != nil || string(out) != "in\n" {
				t.Errorf("%v %s", err, out)
			}
			continue
		}
		if command.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), c.want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%q: %v %s", c.client, err, out)
		}
		if !strings.Contains(strings.ReplaceAll(said.String(), `\"`, `"`), c.want) {
			t.Errorf("%q: the server said %s", c.client, said)
		}
	}
	r.stop(syscall.SIGTERM)
	if strings.Contains(said.String(), "DATA RACE") {
		t.Error(said)
	}
}
