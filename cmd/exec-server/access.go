package main

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"waldo/wire/listen"
)

// The ways of --ws-auth.
const (
	capabilityToken   = "capability-token"
	signedBearerToken = "signed-bearer-token"
)

// codexAccess are the flags by which Codex's exec-server decides who gets in. They stand instead of --token-file, for
// every listener and both doors.
type codexAccess struct {
	flags      *pflag.FlagSet
	mode       string
	tokenFile  string
	tokenSum   string
	secretFile string
	issuer     string
	audience   string
	skew       uint32
}

func (a *codexAccess) register(f *pflag.FlagSet) {
	a.flags = f
	f.StringVar(&a.mode, "ws-auth", "", "as Codex has it: "+capabilityToken+" or "+signedBearerToken)
	f.StringVar(&a.tokenFile, "ws-token-file", "", "with "+capabilityToken+": file that holds the token")
	f.StringVar(&a.tokenSum, "ws-token-sha256", "", "with "+capabilityToken+": SHA-256 of the token, in hexadecimal digits")
	f.StringVar(&a.secretFile, "ws-shared-secret-file", "", "with "+signedBearerToken+": file that holds the secret of HS256 tokens")
	f.StringVar(&a.issuer, "ws-issuer", "", "with "+signedBearerToken+": the issuer that a token must have")
	f.StringVar(&a.audience, "ws-audience", "", "with "+signedBearerToken+": the audience that a token must have")
	f.Uint32Var(&a.skew, "ws-max-clock-skew-seconds", 30, "with "+signedBearerToken+": how far the clocks may be apart")
}

// goesWith says with which way of --ws-auth each flag goes.
var goesWith = map[string]string{
	"ws-token-file":             capabilityToken,
	"ws-token-sha256":           capabilityToken,
	"ws-shared-secret-file":     signedBearerToken,
	"ws-issuer":                 signedBearerToken,
	"ws-audience":               signedBearerToken,
	"ws-max-clock-skew-seconds": signedBearerToken,
}

// apply makes of the flags what decides in access.
func (a *codexAccess) apply(access *listen.Options, stdio bool, log *slog.Logger) (err error) {
	if a.flags == nil {
		return nil // not a command that has them
	}
	a.flags.Visit(func(f *pflag.Flag) {
		if way, ok := goesWith[f.Name]; ok && way != a.mode && err == nil {
			err = fmt.Errorf("--%s goes with --ws-auth %s", f.Name, way)
		}
	})
	switch {
	case err != nil:
		return err
	case !a.flags.Changed("ws-auth"):
		return nil
	case a.mode != capabilityToken && a.mode != signedBearerToken:
		return fmt.Errorf("--ws-auth %q: want %s or %s", a.mode, capabilityToken, signedBearerToken)
	case stdio:
		return errors.New("--ws-auth requires a listener that others can reach, not stdio")
	case access.TokenFile != "" || access.NoAuth:
		return errors.New("--ws-auth stands instead of --token-file and --no-auth; give only one of them")
	case a.mode == signedBearerToken && a.secretFile == "":
		return fmt.Errorf("--ws-auth %s needs --ws-shared-secret-file", a.mode)
	case a.mode == capabilityToken && (a.tokenFile == "") == (a.tokenSum == ""):
		return fmt.Errorf("--ws-auth %s needs either --ws-token-file or --ws-token-sha256", a.mode)
	}
	switch {
	case a.mode == signedBearerToken:
		access.Auth, err = listen.SignedTokens{
			SecretFile: a.secretFile,
			Issuer:     a.issuer,
			Audience:   a.audience,
			Skew:       time.Duration(a.skew) * time.Second,
			Log:        log,
		}.Auth()
	case a.tokenSum != "":
		if access.Auth, err = listen.TokenSumAuth(a.tokenSum); err != nil {
			err = fmt.Errorf("--ws-token-sha256: %w", err)
		}
	default:
		access.Auth, err = listen.TokenFileAuth(a.tokenFile, log)
	}
	return err
}
