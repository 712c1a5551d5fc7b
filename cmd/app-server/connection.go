package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"waldo/env/registry"
	"waldo/wire/listen"
)

// connection is what the flags that all commands share say about the environment.
type connection struct {
	name    string // "" is the default environment
	install bool
	access  listen.DialOptions
}

func (c *connection) addFlags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringVarP(&c.name, "environment", "e", "", `environment: a configured id, "local", the URL of an exec-server or ssh://[USER@]BOX (default: the configured one, else "local")`)
	f.BoolVar(&c.install, "install", false, "over ssh: copy exec-server to the box first, if it has none")
	f.StringVar(&c.access.TokenFile, "token-file", "", "file with the server's token (a server of your own on this machine needs none)")
	f.StringVar(&c.access.TLSPin, "tls-pin", "", "pin of the server's certificate, as it prints it: sha256:…")
	f.StringVar(&c.access.TLSCA, "tls-ca", "", "PEM file of authorities to trust instead of the system's")
	f.StringVar(&c.access.ClientCert, "client-cert", "", "PEM file of a certificate that stands for a token")
	f.StringVar(&c.access.ClientKey, "client-key", "", "PEM file of its key")
}

// opening is what a command wants of its connection.
type opening struct {
	session string
	lease   time.Duration
	status  func(lost error)
}

// longestLease is more than any server grants.
const longestLease = 10 * 365 * 24 * time.Hour

// registry is what environments.toml says.
func (c *connection) registry() (*registry.Registry, error) {
	home, err := waldoHome()
	if err != nil {
		return nil, err
	}
	return registry.Load(filepath.Join(home, registry.FileName), registry.Options{
		Client: programName + " " + version, StateDir: filepath.Join(home, "exec-server"), Spawn: spawn,
	})
}

// spec is how to come to the environment. What the file says is asked only for what only the file can say.
func (c *connection) spec() (registry.Spec, error) {
	return c.specOf(c.name)
}

func (c *connection) specOf(name string) (spec registry.Spec, err error) {
	if strings.Contains(name, "://") {
		if spec, err = registry.Parse(name); err != nil {
			return spec, err
		}
		spec.Client, spec.Spawn = programName+" "+version, spawn
		if spec.Access.StateDir, err = serverStateDir(); err != nil {
			return spec, err
		}
	} else {
		r, err := c.registry()
		if err != nil {
			return spec, err
		}
		defer r.Close()
		if r.Warning() != "" {
			say("%s", r.Warning())
		}
		if spec, err = r.Spec(name); err != nil {
			return spec, err
		}
	}
	spec.Override(c.access)
	spec.MayAsk = mayAsk()
	return spec, nil
}

// open connects to the environment.
func (c *connection) open(ctx context.Context, o opening) (*registry.Environment, error) {
	spec, err := c.spec()
	if err != nil {
		return nil, err
	}
	spec.Session, spec.Status = o.session, o.status
	if o.lease != 0 {
		spec.Lease = o.lease
	}
	if c.install {
		if err := registry.Install(ctx, spec, say); err != nil {
			return nil, err
		}
	}
	return registry.Open(ctx, spec)
}

// arguments are the flags that lead to the environment again, for a command line that is shown.
func (c *connection) arguments() []string {
	var words []string
	for _, flag := range []struct{ name, value string }{
		{"-e", c.name},
		{"--token-file", c.access.TokenFile}, {"--tls-pin", c.access.TLSPin}, {"--tls-ca", c.access.TLSCA},
		{"--client-cert", c.access.ClientCert}, {"--client-key", c.access.ClientKey},
	} {
		if flag.value != "" {
			words = append(words, flag.name, flag.value)
		}
	}
	return words
}

// commandLine is one of our commands on the same environment, as a person would type it here.
func (c *connection) commandLine(name string, more ...string) string {
	return self() + " " + quoteWords(append(append([]string{name}, c.arguments()...), more...))
}

// self is what this program was started as, if that can be typed again.
func self() string {
	if runtime.GOOS == "windows" || len(os.Args) == 0 || os.Args[0] == "" {
		return programName // the shells there do not quote as we do
	}
	return quoteWord(os.Args[0])
}

// waldoHome is the directory of this user's files of ours.
func waldoHome() (string, error) {
	home := os.Getenv("WALDO_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("home directory: %w; set WALDO_HOME", err)
		}
		home = filepath.Join(user, ".waldo")
	}
	return filepath.Abs(home)
}

// serverStateDir is where an exec-server of this user keeps what local clients find: its token and pin.
func serverStateDir() (string, error) {
	home, err := waldoHome()
	return filepath.Join(home, "exec-server"), err
}

// lossNotice tells people about lost connections, but not about the blinks that nobody would notice.
type lossNotice struct {
	mu    sync.Mutex
	tell  func(format string, args ...any)
	leave string // how a person leaves meanwhile
	timer *time.Timer
	told  bool
}

// onConsole has it told by tell, where leave says how to leave.
func (n *lossNotice) onConsole(tell func(format string, args ...any), leave string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tell, n.leave = tell, leave
}

const tellLossAfter = time.Second

// lost tells whether the connection has been lost for so long that people were told.
func (n *lossNotice) lost() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.told
}

// status is for registry.Spec.Status.
func (n *lossNotice) status(lost error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.timer != nil {
		n.timer.Stop()
		n.timer = nil
	}
	if lost == nil {
		if n.told {
			n.told = false
			n.tell("connected again")
		}
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(tellLossAfter, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.timer == timer {
			n.told = true
			n.tell("%v; trying to connect again%s", lost, n.leave)
		}
	})
	n.timer = timer
}
