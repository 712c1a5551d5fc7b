// Package registry knows environments by what people call them and opens them: a URL, a program that speaks
// the protocol on its standard streams, or the machine this program runs on.
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

// Spec says which environment to open, and how. Of Address, Program and neither, which is this machine, one counts.
type Spec struct {
	// Address is where a server listens.
	Address listen.Address
	// Program is the argv of a child whose standard input and output speak the native protocol.
	Program []string
	// Access is how a client comes to an Address.
	Access listen.DialOptions

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
	// Spawn starts the children that local environments and programs are.
	Spawn Spawn
}

// Parse reads what a person calls an environment: "local" or a URL.
func Parse(name string) (Spec, error) {
	if name == Local || name == "" {
		return Spec{}, nil
	}
	scheme, _, isURL := strings.Cut(name, "://")
	switch {
	case isURL && scheme == "ssh":
		return Spec{}, fmt.Errorf("environment %s: ssh:// is not offered yet; start exec-server there and use its tcp://, tls:// or unix:// URL", strconv.Quote(name))
	case name == "stdio":
		return Spec{}, fmt.Errorf("environment %q: stdio is for servers; use %q for this machine", name, Local)
	case !isURL && !strings.Contains(name, ":"):
		return Spec{}, fmt.Errorf("environment %s is not known; use %q or a URL such as tcp://HOST:7777, tls://HOST:7777 or unix:///PATH", strconv.Quote(name), Local)
	}
	address, err := listen.ParseAddress(name)
	if err != nil {
		return Spec{}, fmt.Errorf("environment: %w", err)
	}
	if !address.Mux() {
		mux := address
		mux.Path = "/mux"
		return Spec{}, fmt.Errorf("environment %s: as a client %s:// without /mux is the Codex door, which is not offered yet; use %s", address, address.Scheme, mux)
	}
	return Spec{Address: address}, nil
}

// IsLocal tells whether the environment is this machine, by way of an exec-server of its own.
func (s Spec) IsLocal() bool { return s.Address == listen.Address{} && len(s.Program) == 0 }

// String names the environment for people, on one line.
func (s Spec) String() string {
	switch {
	case s.Address != listen.Address{}:
		return s.Address.String()
	case len(s.Program) > 0:
		return quoteProgram(s.Program)
	}
	return Local
}
