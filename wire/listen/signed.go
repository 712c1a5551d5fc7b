package listen

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// minSecret is the shortest secret that tokens may be signed with; a shorter one could be guessed from a token.
const minSecret = 32

// SignedTokens are tokens that somebody else issues for a time: JSON Web Tokens, signed with HMAC and SHA-256.
type SignedTokens struct {
	SecretFile string        // holds the secret that is shared with the issuer, at least 32 bytes
	Issuer     string        // the value of iss; "" does not ask for one
	Audience   string        // a value of aud; "" does not ask for one
	Skew       time.Duration // how far the clocks may be apart
	Log        *slog.Logger  // is warned of a secret file that is open to others; may be nil
}

// Auth reads the secret and makes an Auth of it. A token has to have exp, nbf is heeded, iat is not.
func (t SignedTokens) Auth() (Auth, error) {
	secret, open, err := readSecret(t.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("shared secret file: %w", err)
	}
	if len(secret) < minSecret {
		return nil, fmt.Errorf("shared secret file %s holds %d bytes, at least %d are needed", t.SecretFile, len(secret), minSecret)
	}
	warnOpen(t.Log, "the shared secret file is open to others", t.SecretFile, open)
	options := []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(t.Skew),
	}
	if t.Issuer != "" {
		options = append(options, jwt.WithIssuer(t.Issuer))
	}
	if t.Audience != "" {
		options = append(options, jwt.WithAudience(t.Audience))
	}
	return &signedAuth{secret: []byte(secret), issuer: t.Issuer != "", parser: jwt.NewParser(options...)}, nil
}

type signedAuth struct {
	secret []byte
	issuer bool // is asked for
	parser *jwt.Parser
}

// Check verifies the signature and the claims. Its words are those that Codex's server has.
func (a *signedAuth) Check(token string) error {
	if token == "" {
		return fmt.Errorf("%w: a token is needed, signed with the server's shared secret", ErrUnauthenticated)
	}
	var found claims
	_, err := a.parser.ParseWithClaims(token, &found, func(t *jwt.Token) (any, error) {
		if _, critical := t.Header["crit"]; critical {
			return nil, errors.New("critical extensions are not known here")
		}
		return a.secret, nil
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrTokenExpired):
		err = errors.New("expired websocket jwt")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		err = errors.New("websocket jwt is not valid yet")
	case errors.Is(err, jwt.ErrTokenInvalidIssuer), missing(err) && found.Expires != nil && a.issuer && found.Issuer == "":
		err = errors.New("websocket jwt issuer mismatch")
	case errors.Is(err, jwt.ErrTokenInvalidAudience), missing(err) && found.Expires != nil:
		err = errors.New("websocket jwt audience mismatch")
	default:
		err = errors.New("invalid websocket jwt") // whatever it was, it may hold a part of the token
	}
	return fmt.Errorf("%w: %w", ErrUnauthenticated, err)
}

func missing(err error) bool { return errors.Is(err, jwt.ErrTokenRequiredClaimMissing) }

// claims are what counts of a token. Times are whole seconds.
type claims struct {
	Expires   *int64           `json:"exp"`
	NotBefore *int64           `json:"nbf"`
	Issuer    string           `json:"iss"`
	Audience  jwt.ClaimStrings `json:"aud"`
}

func date(seconds *int64) (*jwt.NumericDate, error) {
	if seconds == nil {
		return nil, nil
	}
	return jwt.NewNumericDate(time.Unix(*seconds, 0)), nil
}

func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return date(c.Expires) }
func (c *claims) GetNotBefore() (*jwt.NumericDate, error)      { return date(c.NotBefore) }
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error)       { return nil, nil }
func (c *claims) GetIssuer() (string, error)                   { return c.Issuer, nil }
func (c *claims) GetSubject() (string, error)                  { return "", nil }
func (c *claims) GetAudience() (jwt.ClaimStrings, error)       { return c.Audience, nil }
