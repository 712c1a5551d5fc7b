package main

import (
	"strings"
	"testing"
)

func TestCodexAccess(t *testing.T) {
	dir := t.TempDir()
	token := write(t, dir+"/token", "tok-1", 0o600)
	secret := write(t, dir+"/secret", strings.Repeat("x", 32), 0o600)
	const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	tests := map[string]struct {
		args string
		want string // in the error; "none" for flags that say nothing
	}{
		"nothing":           {"", "none"},
		"file":              {"--ws-auth capability-token --ws-token-file " + token, ""},
		"sum":               {"--ws-auth capability-token --ws-token-sha256 " + sum, ""},
		"signed":            {"--ws-auth signed-bearer-token --ws-shared-secret-file " + secret + " --ws-issuer me --ws-audience box --ws-max-clock-skew-seconds 0", ""},
		"file alone":        {"--ws-token-file " + token, "--ws-token-file goes with --ws-auth capability-token"},
		"skew alone":        {"--ws-max-clock-skew-seconds 30", "--ws-max-clock-skew-seconds goes with --ws-auth signed-bearer-token"},
		"issuer with token": {"--ws-auth capability-token --ws-issuer me", "--ws-issuer goes with --ws-auth signed-bearer-token"},
		"unknown":           {"--ws-auth none", `--ws-auth "none": want capability-token or signed-bearer-token`},
		"empty":             {"--ws-auth=", `--ws-auth "": want`},
		"no file":           {"--ws-auth capability-token", "needs either --ws-token-file or --ws-token-sha256"},
		"both":              {"--ws-auth capability-token --ws-token-sha256 " + sum + " --ws-token-file " + token, "needs either"},
		"no secret":         {"--ws-auth signed-bearer-token", "needs --ws-shared-secret-file"},
		"bad sum":           {"--ws-auth capability-token --ws-token-sha256 abc", "--ws-token-sha256: the SHA-256 of a token is 64 hexadecimal digits"},
		"no such file":      {"--ws-auth capability-token --ws-token-file " + dir + "/none", "token file: "},
		"short secret":      {"--ws-auth signed-bearer-token --ws-shared-secret-file " + token, "holds 5 bytes, at least 32 are needed"},
		"another token":     {"--ws-auth capability-token --ws-token-file " + token + " --token-file " + token, "give only one of them"},
		"no authentication": {"--ws-auth capability-token --ws-token-file " + token + " --no-auth", "give only one of them"},
		"stdio":             {"--listen stdio --ws-auth capability-token --ws-token-file " + token, "not stdio"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var s settings
			c := serveCommandOf(&s)
			if err := c.ParseFlags(strings.Fields(test.args)); err != nil {
				t.Fatal(err)
			}
			_, stdio, err := s.addresses()
			if err == nil {
				err = s.codex.apply(&s.access, stdio, nil)
			}
			switch {
			case test.want == "none":
				if err != nil || s.access.Auth != nil {
					t.Errorf("%v, %v", s.access.Auth, err)
				}
			case test.want == "":
				if err != nil || s.access.Auth == nil {
					t.Errorf("%v, %v", s.access.Auth, err)
				}
			case err == nil || !strings.Contains(err.Error(), test.want):
				t.Errorf("error is %v, want %q in it", err, test.want)
			}
		})
	}
	// Commands without these flags decide as they did.
	var s settings
	if err := s.codex.apply(&s.access, false, nil); err != nil || s.access.Auth != nil {
		t.Errorf("%v, %v", s.access.Auth, err)
	}
}
