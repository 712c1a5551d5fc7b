package listen

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"hash"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const sharedSecret = "a secret of more than thirty-two bytes"

// sign makes a token by hand.
func sign(header string, claims any, secret string, h func() hash.Hash) string {
	body, ok := claims.(string)
	if !ok {
		text, err := json.Marshal(claims)
		if err != nil {
			panic(err)
		}
		body = string(text)
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(header)) + "." + encode([]byte(body))
	mac := hmac.New(h, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

func TestSignedTokens(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "secret"), "\n "+sharedSecret+"\t\n", 0o600)
	const header = `{"alg":"HS256","typ":"JWT"}`
	type object = map[string]any
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().Unix()
		plain := SignedTokens{SecretFile: file, Skew: 30 * time.Second}
		strict := plain
		strict.Issuer, strict.Audience = "me", "box"
		tests := map[string]struct {
			tokens SignedTokens
			token  string
			want   string // in the error
		}{
			"good":                  {plain, sign(header, object{"exp": now + 60}, sharedSecret, sha256.New), ""},
			"more claims":           {plain, sign(header, object{"exp": now + 60, "sub": "x", "iss": "anybody", "aud": "anything", "x": 1}, sharedSecret, sha256.New), ""},
			"issued later":          {plain, sign(header, object{"exp": now + 60, "iat": now + 1000}, sharedSecret, sha256.New), ""},
			"just expired":          {plain, sign(header, object{"exp": now - 29}, sharedSecret, sha256.New), ""},
			"expired":               {plain, sign(header, object{"exp": now - 30}, sharedSecret, sha256.New), "expired websocket jwt"},
			"nearly valid":          {plain, sign(header, object{"exp": now + 99, "nbf": now + 30}, sharedSecret, sha256.New), ""},
			"not yet valid":         {plain, sign(header, object{"exp": now + 99, "nbf": now + 31}, sharedSecret, sha256.New), "not valid yet"},
			"no skew":               {SignedTokens{SecretFile: file}, sign(header, object{"exp": now}, sharedSecret, sha256.New), "expired"},
			"no exp":                {plain, sign(header, object{"nbf": now}, sharedSecret, sha256.New), "invalid websocket jwt"},
			"exp with a fraction":   {plain, sign(header, object{"exp": float64(now) + 60.5}, sharedSecret, sha256.New), "invalid websocket jwt"},
			"exp is text":           {plain, sign(header, object{"exp": "never"}, sharedSecret, sha256.New), "invalid websocket jwt"},
			"exp past everything":   {plain, sign(header, `{"exp":9223372036854775808}`, sharedSecret, sha256.New), "invalid websocket jwt"},
			"exp null":              {plain, sign(header, `{"exp":null}`, sharedSecret, sha256.New), "invalid websocket jwt"},
			"issuer and audience":   {strict, sign(header, object{"exp": now + 60, "iss": "me", "aud": "box"}, sharedSecret, sha256.New), ""},
			"one of the audiences":  {strict, sign(header, object{"exp": now + 60, "iss": "me", "aud": []string{"a", "box"}}, sharedSecret, sha256.New), ""},
			"other issuer":          {strict, sign(header, object{"exp": now + 60, "iss": "mee", "aud": "box"}, sharedSecret, sha256.New), "issuer mismatch"},
			"no issuer":             {strict, sign(header, object{"exp": now + 60, "aud": "box"}, sharedSecret, sha256.New), "issuer mismatch"},
			"other audience":        {strict, sign(header, object{"exp": now + 60, "iss": "me", "aud": []string{"a"}}, sharedSecret, sha256.New), "audience mismatch"},
			"no audience":           {strict, sign(header, object{"exp": now + 60, "iss": "me"}, sharedSecret, sha256.New), "audience mismatch"},
			"audience is a number":  {strict, sign(header, object{"exp": now + 60, "iss": "me", "aud": 5}, sharedSecret, sha256.New), "invalid websocket jwt"},
			"other secret":          {plain, sign(header, object{"exp": now + 60}, sharedSecret+"x", sha256.New), "invalid websocket jwt"},
			"other secret, expired": {plain, sign(header, object{"exp": now - 60}, sharedSecret+"x", sha256.New), "invalid websocket jwt"},
			"HS512":                 {plain, sign(`{"alg":"HS512"}`, object{"exp": now + 60}, sharedSecret, sha512.New), "invalid websocket jwt"},
			"another's name":        {plain, sign(`{"alg":"RS256"}`, object{"exp": now + 60}, sharedSecret, sha256.New), "invalid websocket jwt"},
			"none":                  {plain, strings.TrimSuffix(sign(`{"alg":"none"}`, object{"exp": now + 60}, "", sha256.New), "x"), "invalid websocket jwt"},
			"critical":              {plain, sign(`{"alg":"HS256","crit":["b64"],"b64":false}`, object{"exp": now + 60}, sharedSecret, sha256.New), "invalid websocket jwt"},
			"no token":              {plain, "", "a token is needed"},
			"no JSON":               {plain, "tok-SENTINEL-123", "invalid websocket jwt"},
			"dots":                  {plain, "a.b.c.d", "invalid websocket jwt"},
			"signature cut off":     {plain, strings.TrimRight(sign(header, object{"exp": now + 60}, sharedSecret, sha256.New), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"), "invalid websocket jwt"},
		}
		for name, test := range tests {
			auth, err := test.tokens.Auth()
			if err != nil {
				t.Fatal(err)
			}
			err = auth.Check(test.token)
			if test.want == "" {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: error is %v, want %q in it", name, err, test.want)
			}
			for _, part := range strings.Split(test.token, ".") {
				if len(part) > 5 && strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error repeats the token: %v", name, err)
				}
			}
		}
	})
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string { return write(t, filepath.Join(dir, name), content, 0o600) }
	_, err := SignedTokens{SecretFile: file("short", strings.Repeat("x", 31)+"\n")}.Auth()
	wantErr(t, err, "holds 31 bytes, at least 32 are needed")
	_, err = SignedTokens{SecretFile: filepath.Join(dir, "none")}.Auth()
	wantErr(t, err, "shared secret file: ")
	_, err = TokenFileAuth(file("empty", " \n"), nil)
	wantErr(t, err, "is empty")
	_, err = TokenFileAuth(file("two", "one two"), nil)
	wantErr(t, err, "more than one line or word")
	_, err = TokenFileAuth(dir, nil)
	wantErr(t, err, "not a regular file")

	a, err := TokenFileAuth(file("good", "  tok-1\r\n"), nil)
	if err != nil || a.Check("tok-1") != nil || a.Check("tok-2") == nil || a.Check("") == nil {
		t.Errorf("the token of a file: %v", err)
	}
}

// An orchestrator mounts files that others may read; that is warned of and no fault.
func TestSecretFileOpenToOthers(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "token"), "tok-SENTINEL-123", 0o644)
	if _, open, err := readSecret(path); err != nil || open == nil {
		t.Skipf("modes tell nothing here: %v", err)
	}
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	if _, err := TokenFileAuth(path, log); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); !strings.Contains(got, "open to others") || strings.Contains(got, "SENTINEL") {
		t.Errorf("the log has %q", got)
	}
}

func TestTokenSum(t *testing.T) {
	const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" // of "test"
	for _, text := range []string{sum, strings.ToUpper(sum)} {
		a, err := TokenSumAuth(text)
		if err != nil || a.Check("test") != nil || a.Check("Test") == nil || a.Check(sum) == nil || a.Check("") == nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "9f", sum + "00", sum[1:], sum[:63] + "g", sum[:62] + " 8"} {
		if _, err := TokenSumAuth(text); err == nil {
			t.Errorf("%q is taken for a sum", text)
		}
	}
}
