// Package registry knows environments by what people call them and opens them: those that environments.toml
// names, a URL, a box that ssh leads to, a program that speaks the protocol on its standard streams, or the
// machine this program runs on.
package registry

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"waldo/wire/listen"
)

// Local is the name of the environment that is this machine.
const Local = "local"

// Spec says which environment to open, and how. Of Address, SSH, Program and none, which is this machine, one
// counts.
type Spec struct {
	// Name is what people call the environment; empty: by where it is.
	Name string
	// Address is where a server listens.
	Address listen.Address
	// SSH is a box that the user's own ssh leads to.
	SSH SSH
	// Program is the argv of a child whose standard input and output speak the native protocol. Environ, of
	// NAME=VALUE, is added to our own environment, and Directory is its working directory, if they are given.
	Program   []string
	Environ   []string
	Directory string
	// Access is how a client comes to an Address.
	Access listen.DialOptions
	// ConnectWithin bounds the way to an Address, InitializeWithin what follows until the server has accepted us.
	// Zero is the default, a negative one no bound.
	ConnectWithin, InitializeWithin time.Duration
	// MayAsk says that ssh may ask the person at the terminal, when it connects for the first time.
	MayAsk bool

	// Client names this program and its version to the server.
	Client string
	// Session names the session to open; empty: a new one.
	Session string
	// Lease is how long the session outlives its connection; zero is the server's default.
	Lease time.Duration
	// Log gets what happens to the connection; nil: nothing.
	Log *slog.Logger
	// Status, if not nil, is told when the connection is lost (with why) and when it is back (nil). It must not wait.
	Status func(lost error)
	// Spawn starts the children that local environments, programs and ssh are.
	Spawn Spawn
}

// The bounds where nothing else is said. A program may have to wait 10 s until it knows why there is no daemon to
// join; ssh has hosts to look up, proxies to pass and keys to ask for.
const (
	connectWithin    = 10 * time.Second
	initializeWithin = 10 * time.Second
	programWithin    = 15 * time.Second
	sshWithin        = 60 * time.Second
)

// within is the bound that counts; 0 is none.
func within(given, otherwise time.Duration) time.Duration {
	switch {
	case given < 0:
		return 0
	case given == 0:
		return otherwise
	}
	return given
}

// Parse reads what a person calls an environment without a registry: "local" or a URL.
func Parse(name string) (Spec, error) {
	switch {
	case name == Local || name == "":
		return Spec{}, nil
	case name == "stdio":
		return Spec{}, fmt.Errorf("environment %q: stdio is for servers; use %q for this machine", name, Local)
	case !strings.Contains(name, ":"):
		return Spec{}, fmt.Errorf("environment %s is not known; use %q or a URL such as tls://HOST:7777, unix:///PATH or ssh://BOX", strconv.Quote(name), Local)
	}
	spec, err := parseURL(name)
	if err != nil {
		return Spec{}, fmt.Errorf("environment: %w", err)
	}
	if err := spec.checkDoor(); err != nil {
		return Spec{}, fmt.Errorf("environment %s: %w", spec, err)
	}
	return spec, nil
}

// isURL tells whether a name is no id.
func isURL(name string) bool { return strings.Contains(name, "://") }

func parseURL(text string) (spec Spec, err error) {
	if isSSH(text) {
		spec.SSH, err = parseSSH(text)
	} else {
		spec.Address, err = listen.ParseAddress(text)
	}
	return spec, err
}

// checkDoor refuses an address where another protocol is spoken.
func (s Spec) checkDoor() error {
	if !s.hasAddress() || s.Address.Mux() {
		return nil
	}
	mux := s.Address
	mux.Path = "/mux"
	return fmt.Errorf("as a client %s:// without /mux is the Codex door, which is not offered yet; use %s", mux.Scheme, mux)
}

// hasAddress tells whether the environment is a server that listens.
func (s Spec) hasAddress() bool { return s.Address != listen.Address{} }

// IsLocal tells whether the environment is this machine, by way of an exec-server of its own.
func (s Spec) IsLocal() bool { return !s.hasAddress() && s.SSH == SSH{} && len(s.Program) == 0 }

// String names the environment for people, on one line.
func (s Spec) String() string {
	if s.Name != "" {
		return s.Name
	}
	return s.Transport()
}

// Transport is the way there, for people, on one line. It has no secret in it.
func (s Spec) Transport() string {
	switch {
	case s.hasAddress():
		return s.Address.String()
	case s.SSH != SSH{}:
		return s.SSH.String()
	case len(s.Program) > 0:
		return quoteProgram(s.Program)
	}
	return Local
}
