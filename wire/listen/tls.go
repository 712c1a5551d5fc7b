package listen

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The protocols that ALPN names. HTTP/2 is not among them: a WebSocket needs HTTP/1.1.
const (
	alpnNative = "waldo/1"
	alpnHTTP   = "http/1.1"
)

// pinPrefix starts a pin. What follows is the standard base64 of the SHA-256 of the certificate's
// SubjectPublicKeyInfo, as curl and others write it, so a pin outlives a renewed certificate with the same key.
const pinPrefix = "sha256:"

// pinOf is the pin of a certificate.
func pinOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return pinPrefix + base64.StdEncoding.EncodeToString(sum[:])
}

// normalPin gives a pin in the one form that pinOf writes. It takes base64 of both alphabets, with padding or without,
// and hexadecimal digits, with colons or without.
func normalPin(pin string) (string, error) {
	pin = strings.TrimSpace(pin)
	text, ok := strings.CutPrefix(pin, pinPrefix)
	if !ok {
		text, ok = strings.CutPrefix(pin, "sha256//") // as curl writes it
	}
	if !ok {
		return "", fmt.Errorf("TLS pin: it does not start with %q", pinPrefix)
	}
	sum, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
	if err != nil || len(sum) != sha256.Size {
		text = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
		sum, err = base64.RawStdEncoding.DecodeString(text)
	}
	if err != nil || len(sum) != sha256.Size {
		return "", errors.New("TLS pin: what follows sha256: is not the base64 of 32 bytes")
	}
	return pinPrefix + base64.StdEncoding.EncodeToString(sum), nil
}

// CheckPin says what is wrong with the text of a TLS pin; see DialOptions.
func CheckPin(pin string) error {
	_, err := normalPin(pin)
	return err
}

// serverTLS is the configuration of a listener, with the leaf certificate in it.
func serverTLS(o Options) (*tls.Config, *x509.Certificate, error) {
	var cert tls.Certificate
	var err error
	switch {
	case o.TLSCert != "" && o.TLSKey != "":
		cert, err = tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
		if err != nil {
			err = fmt.Errorf("TLS certificate: %w", err)
		}
	case o.TLSCert != "" || o.TLSKey != "":
		err = errors.New("TLS certificate: a certificate and its key are given together")
	case o.StateDir == "":
		err = errors.New("TLS certificate: none is given, and there is no state directory to make one in")
	default:
		cert, err = ensureCertificate(filepath.Join(o.StateDir, "certificate.pem"))
	}
	if err != nil {
		return nil, nil, err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{alpnNative, alpnHTTP},
		MinVersion:   tls.VersionTLS13,
	}
	if o.ClientCA != "" {
		config.ClientCAs, err = readPool(o.ClientCA)
		if err != nil {
			return nil, nil, fmt.Errorf("client CA: %w", err)
		}
		// The handshake proves that the client has the key. Whether the certificate counts is judged after it, so that
		// a client whose certificate does not is told why, in words.
		config.ClientAuth = tls.RequestClientCert
	}
	return config, cert.Leaf, nil
}

// ensureCertificate reads a certificate and its key from one file, and makes both for ten years if it is not there.
func ensureCertificate(path string) (tls.Certificate, error) {
	cert, err := readCertificate(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return cert, err
	}
	content, err := makeCertificate(time.Now())
	if err == nil {
		err = createOnce(path, content)
	}
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate: %w", err)
	}
	return readCertificate(path)
}

func readCertificate(path string) (tls.Certificate, error) {
	info, err := os.Stat(path)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate: %w", err)
	}
	if err := checkPrivate(info); err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate %s %w", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate: %w", err)
	}
	cert, err := tls.X509KeyPair(content, content)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("TLS certificate %s: %w (remove it and a new one is made, with another pin)", path, err)
	}
	return cert, nil
}

// makeCertificate makes a self-signed certificate with an ECDSA P-256 key: what clients trust is its pin.
func makeCertificate(now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "waldo"},
		NotBefore:             now.Add(-time.Hour), // clocks differ
		NotAfter:              now.AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if name, err := os.Hostname(); err == nil && name != "localhost" && name == strings.Map(hostRune, name) && name != "" {
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), crypto.Signer(key))
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = errors.Join(
		pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.Encode(&out, &pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	return out.Bytes(), err
}

// readPool reads the certificates of a PEM file.
func readPool(path string) (*x509.CertPool, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}

// clientTLS is the configuration to dial an encrypted address with. The pin may come from the option or from what a
// local server left for its user; with a pin and no CA, nothing but the pin counts.
func clientTLS(addr Address, o DialOptions, pin string) (*tls.Config, error) {
	config := &tls.Config{
		ServerName: strings.TrimSuffix(addr.Host, "."),
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{alpnNative},
	}
	if addr.Scheme == "wss" {
		config.NextProtos = []string{alpnHTTP}
	}
	if i := strings.IndexByte(config.ServerName, '%'); i >= 0 {
		config.ServerName = config.ServerName[:i] // an IPv6 zone means something on this machine only
	}
	if o.TLSCA != "" {
		pool, err := readPool(o.TLSCA)
		if err != nil {
			return nil, fmt.Errorf("TLS CA: %w", err)
		}
		config.RootCAs = pool
	}
	switch {
	case o.ClientCert != "" && o.ClientKey != "":
		cert, err := tls.LoadX509KeyPair(o.ClientCert, o.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		// Sent whatever authorities the server names, so that it can say what is wrong with it.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	case o.ClientCert != "" || o.ClientKey != "":
		return nil, errors.New("client certificate: a certificate and its key are given together")
	}
	if pin != "" {
		want, err := normalPin(pin)
		if err != nil {
			return nil, err
		}
		// Without a CA, the pin takes the place of the usual verification; it does not follow it.
		config.InsecureSkipVerify = o.TLSCA == ""
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errors.New("the server sent no certificate")
			}
			if got := pinOf(state.PeerCertificates[0]); got != want {
				return fmt.Errorf("the server's pin is %s, not %s: it is another server, or has a new key", got, want)
			}
			return nil
		}
	}
	return config, nil
}

// judgeClient says how a client with these certificates is let in: nil lets it in without a token, errNoCertificate
// leaves it to the token.
func judgeClient(authorities *x509.CertPool, certs []*x509.Certificate) error {
	if authorities == nil || len(certs) == 0 {
		return errNoCertificate
	}
	intermediates := x509.NewCertPool()
	for _, c := range certs[1:] {
		intermediates.AddCert(c)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err == nil {
		return nil
	}
	why := err.Error()
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	now := time.Now()
	switch {
	case errors.As(err, &unknown):
		why = "it is signed by no authority of the server's --client-ca"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.Before(certs[0].NotBefore):
		why = "it is not valid before " + certs[0].NotBefore.UTC().Format(time.RFC3339)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.After(certs[0].NotAfter):
		why = "it expired at " + certs[0].NotAfter.UTC().Format(time.RFC3339)
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		why = "it is not made for clients (its extended key usage lacks client authentication)"
	}
	return fmt.Errorf("%w: the client certificate of %q does not count: %s", ErrUnauthenticated, certs[0].Subject.String(), why)
}

var errNoCertificate = errors.New("no client certificate")

// explainTLS adds to a failed verification what the user can do about it.
func explainTLS(err error) error {
	var failed *tls.CertificateVerificationError
	if errors.As(err, &failed) && len(failed.UnverifiedCertificates) > 0 {
		return fmt.Errorf("%w; its pin is %s: if that is what the server printed when it started, give it with --tls-pin", err, pinOf(failed.UnverifiedCertificates[0]))
	}
	return err
}
