package registry

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"waldo/wire/listen"
)

// Entry is an environment as environments.toml describes it: with a URL or with a program, never both.
type Entry struct {
	// ID names the environment: up to 64 ASCII letters, digits, - and _; neither "local" nor "none".
	ID string `toml:"id"`
	// URL is where a server listens, or ssh://[USER@]BOX[:PORT].
	URL string `toml:"url,omitempty"`
	// Program, with Args, is a command whose standard streams speak the protocol; it gets Env besides our own
	// environment, and Cwd as its working directory.
	Program string            `toml:"program,omitempty"`
	Args    []string          `toml:"args,omitempty"`
	Cwd     string            `toml:"cwd,omitempty"`
	Env     map[string]string `toml:"env,omitempty"`
	// AuthBearerToken is the token itself, TokenFile the file that holds it.
	AuthBearerToken string `toml:"auth_bearer_token,omitempty"`
	TokenFile       string `toml:"token_file,omitempty"`
	// TLSPin, TLSCA, ClientCert and ClientKey are as in listen.DialOptions.
	TLSPin     string `toml:"tls_pin,omitempty"`
	TLSCA      string `toml:"tls_ca,omitempty"`
	ClientCert string `toml:"client_cert,omitempty"`
	ClientKey  string `toml:"client_key,omitempty"`
	// LeaseSec is how long sessions outlive their connection; ConnectTimeoutSec and InitializeTimeoutSec bound the
	// way to the server and its first answer. Seconds; nil is the default, 0 of the timeouts no bound.
	LeaseSec             *float64 `toml:"lease_sec,omitempty"`
	ConnectTimeoutSec    *float64 `toml:"connect_timeout_sec,omitempty"`
	InitializeTimeoutSec *float64 `toml:"initialize_timeout_sec,omitempty"`
	// Skills are what the environment needs of the skills of an agent.
	Skills *Skills `toml:"skills,omitempty"`
}

// Skills are the skills that an environment asks for.
type Skills struct {
	// Required names those that have to be there.
	Required []string `toml:"required"`
}

// None is what "default" says where nothing is one.
const None = "none"

const (
	idLength   = 64
	maxSeconds = 100 * 365 * 24 * 3600
)

// problem is what is wrong with a key of an entry.
type problem struct {
	key  string // "" is the entry as a whole
	text string
}

// checkID says what is wrong with an id.
func checkID(id string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	switch {
	case id == "":
		return "it is empty"
	case strings.EqualFold(id, Local), strings.EqualFold(id, None):
		return fmt.Sprintf("%q has a meaning of its own; choose another name", id)
	case len(id) > idLength:
		return fmt.Sprintf("it is %d bytes long, and %d is the most", len(id), idLength)
	case strings.TrimSpace(id) != id:
		return strconv.Quote(id) + " has blanks around it"
	case strings.IndexFunc(id, func(r rune) bool { return !plain(r) }) >= 0:
		return strconv.Quote(id) + " has more in it than ASCII letters, digits, - and _"
	}
	return ""
}

// problems are all that is wrong with an entry, whatever is on the disk.
func (e *Entry) problems() (found []problem) {
	wrong := func(key, format string, args ...any) {
		found = append(found, problem{key, fmt.Sprintf(format, args...)})
	}
	if text := checkID(e.ID); text != "" {
		wrong("id", "%s", text)
	}
	set := e.set()
	switch {
	case !set["url"] && !set["program"]:
		wrong("", `neither "url" nor "program" is there; give one`)
	case set["url"] && set["program"]:
		wrong("program", `"url" is there as well; give one of the two`)
	}
	if set["program"] && e.Program == "" {
		wrong("program", "it is empty; write the command to run")
	}
	if strings.Contains(e.Program+e.Cwd+strings.Join(e.Args, ""), "\x00") {
		wrong("program", "a NUL byte can be in no program, argument or directory")
	}
	for _, key := range []string{"args", "env", "cwd"} {
		if set[key] && !set["program"] {
			wrong(key, `it goes with "program"`)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(e.Env[name], "\x00") {
			wrong("env", "%q is no name of a variable, or has a value that none can have", name)
		}
	}
	address, isURL := e.checkURL(set, wrong)
	for _, key := range []string{"auth_bearer_token", "token_file", "tls_pin", "tls_ca", "client_cert", "client_key", "connect_timeout_sec"} {
		if set[key] && !isURL && (!set["url"] || isSSH(e.URL)) {
			wrong(key, `it goes with a "url" such as tls://HOST:7777, not with %s`, map[bool]string{true: "ssh://", false: `"program"`}[set["url"]])
		}
	}
	if isURL {
		e.checkAccess(set, address, wrong)
	}
	for key, seconds := range map[string]*float64{
		"connect_timeout_sec": e.ConnectTimeoutSec, "initialize_timeout_sec": e.InitializeTimeoutSec, "lease_sec": e.LeaseSec,
	} {
		if seconds != nil && (math.IsNaN(*seconds) || *seconds < 0 || *seconds > maxSeconds) {
			wrong(key, "%v is no number of seconds from 0 to %d", *seconds, maxSeconds)
		}
	}
	return found
}

// set tells which keys are there.
func (e *Entry) set() map[string]bool {
	return map[string]bool{
		"url": e.URL != "", "program": e.Program != "", "args": e.Args != nil, "env": e.Env != nil, "cwd": e.Cwd != "",
		"auth_bearer_token": e.AuthBearerToken != "", "token_file": e.TokenFile != "", "tls_pin": e.TLSPin != "",
		"tls_ca": e.TLSCA != "", "client_cert": e.ClientCert != "", "client_key": e.ClientKey != "",
		"connect_timeout_sec": e.ConnectTimeoutSec != nil,
	}
}

// checkURL parses the URL. isURL is false for ssh, and for what is none.
func (e *Entry) checkURL(set map[string]bool, wrong func(key, format string, args ...any)) (address listen.Address, isURL bool) {
	if !set["url"] {
		return address, false
	}
	if isSSH(e.URL) {
		if _, err := parseSSH(e.URL); err != nil {
			wrong("url", "%v", err)
		}
		return address, false
	}
	address, err := listen.ParseAddress(e.URL)
	switch {
	case err != nil:
		wrong("url", "%v", err)
	case address.Scheme == "stdio":
		wrong("url", `stdio is for servers; a command is written as "program"`)
	default:
		return address, true
	}
	return address, false
}

// checkAccess says what does not go with the address.
func (e *Entry) checkAccess(set map[string]bool, address listen.Address, wrong func(key, format string, args ...any)) {
	if set["auth_bearer_token"] {
		switch {
		case set["token_file"]:
			wrong("auth_bearer_token", `"token_file" is there as well; give one of the two`)
		case !address.TLS() && !address.Loopback():
			wrong("auth_bearer_token", "it needs an encrypted URL (tls:// or wss://) or one of this machine, or everybody between could read it")
		}
	}
	for _, key := range []string{"tls_pin", "tls_ca", "client_cert", "client_key"} {
		if set[key] && !address.TLS() {
			wrong(key, "it needs an encrypted URL: tls:// or wss://")
		}
	}
	if set["client_cert"] != set["client_key"] {
		key := "client_cert"
		if set["client_key"] {
			key = "client_key"
		}
		wrong(key, `"client_cert" and "client_key" go together`)
	}
	if set["tls_pin"] {
		if err := listen.CheckPin(e.TLSPin); err != nil {
			wrong("tls_pin", "%v", err)
		}
	}
}

// Check says what is wrong with an entry that comes from elsewhere than the file.
func (e *Entry) Check() error {
	var all []error
	for _, p := range e.problems() {
		if p.key == "" {
			all = append(all, fmt.Errorf("environment %q: %s", e.ID, p.text))
		} else {
			all = append(all, fmt.Errorf("environment %q: %s: %s", e.ID, p.key, p.text))
		}
	}
	return errors.Join(all...)
}

// Transport is the way there for people, without secrets: the URL, or the program and its arguments.
func (e *Entry) Transport() string {
	if e.URL != "" {
		return e.URL
	}
	return quoteProgram(append([]string{e.Program}, e.Args...))
}

// spec is what opens the environment. directory is what relative paths are relative to.
func (e *Entry) spec(directory string) (Spec, error) {
	s := Spec{Name: e.ID, Lease: seconds(e.LeaseSec, 0)}
	s.ConnectWithin = seconds(e.ConnectTimeoutSec, -1)
	s.InitializeWithin = seconds(e.InitializeTimeoutSec, -1)
	if e.Program != "" {
		program := e.Program
		if strings.ContainsRune(program, '/') || strings.ContainsRune(program, filepath.Separator) {
			program = resolve(directory, program)
		}
		s.Program = append([]string{program}, e.Args...)
		if e.Cwd != "" {
			s.Directory = resolve(directory, e.Cwd)
		}
		for _, name := range slices.Sorted(maps.Keys(e.Env)) {
			s.Environ = append(s.Environ, name+"="+e.Env[name])
		}
		return s, nil
	}
	way, err := parseURL(e.URL)
	if err == nil {
		err = way.checkDoor()
	}
	if err != nil {
		return s, fmt.Errorf("environment %q: %w", e.ID, err)
	}
	s.Address, s.SSH = way.Address, way.SSH
	s.Access = listen.DialOptions{
		Token: e.AuthBearerToken, TokenFile: resolve(directory, e.TokenFile), TLSPin: e.TLSPin,
		TLSCA: resolve(directory, e.TLSCA), ClientCert: resolve(directory, e.ClientCert), ClientKey: resolve(directory, e.ClientKey),
	}
	return s, nil
}

// seconds is a time of the file; zero is the default, what zero there means is told.
func seconds(value *float64, zero time.Duration) time.Duration {
	switch {
	case value == nil:
		return 0
	case *value == 0:
		return zero
	}
	return time.Duration(*value * float64(time.Second))
}

// resolve makes a path of the file absolute: ~ is the home here, what is relative starts at directory.
func resolve(directory, path string) string {
	if path == "" {
		return ""
	}
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(directory, path)
}
