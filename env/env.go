// Package env is the contract: everything that is done to a machine is a call on [Env].
//
// The machine itself implements it (env/host), and so does the client half of a connection to another
// machine (env/rpc), so that local and remote cannot drift apart. The conformance suite in env/envtest
// says in code what the comments here say in words.
//
// Every method gives up when its context ends. An ability that a machine lacks is [errors.ErrUnsupported]
// and a flag in [Info], never a type assertion.
package env

import (
	"context"
	"net"

	"waldo/pathuri"
	"waldo/wire"
)

// Env is one machine (or container): its processes, its files, its network, what it is.
type Env interface {
	Runner
	Describer
	Dialer
	Files
	Watcher
	// Close gives up the handle. On a remote machine it ends the connection; what becomes of running
	// processes is decided by their lease.
	Close() error
}

// Describer tells what the machine is.
type Describer interface {
	// Describe tells what the machine is; it may answer from what it said before.
	Describe(ctx context.Context) (Info, error)
}

// Dialer opens network connections from the machine.
type Dialer interface {
	// Dial connects to address ("host:port" for "tcp", a native path for "unix") as the machine sees it.
	// The caller closes the connection; CloseWrite on it is a half-close.
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}

// Info is what a machine says of itself.
type Info struct {
	OS        string             `json:"os"`   // as GOOS names it
	Arch      string             `json:"arch"` // as GOARCH names it
	Paths     pathuri.Convention `json:"paths"`
	Hostname  string             `json:"hostname,omitempty"`
	User      string             `json:"user,omitempty"`
	Home      pathuri.URI        `json:"home,omitzero"`
	Temp      pathuri.URI        `json:"temp,omitzero"`
	Directory pathuri.URI        `json:"directory,omitzero"` // the working directory a command gets by default
	Shell     string             `json:"shell,omitempty"`    // native path of the user's login shell
	// Shells are the shells that were found, one of each kind: the user's login shell first, then as they are
	// good for.
	Shells       []Shell  `json:"shells,omitempty"`
	Kernel       string   `json:"kernel,omitempty"`       // its version, as the kernel has it
	Distribution string   `json:"distribution,omitempty"` // name and version of the system, for people
	Version      string   `json:"version,omitempty"`      // of the server
	Abilities    []string `json:"abilities,omitempty"`
}

// Shell is a shell that a machine has.
type Shell struct {
	Kind string `json:"kind"` // "bash", "zsh", "sh", "fish", "dash", "pwsh", "powershell", "cmd" or its program's name
	Path string `json:"path"` // native
}

// The abilities an [Info] may list. What is added to the protocol later gets a name here, and clients check it.
const (
	AbilityTerminal = "terminal" // Command.Terminal
	AbilitySpill    = "spill"    // output beyond the memory bound is kept on disk while nobody reads
	AbilityLimits   = "limits"   // Command.Limits
	AbilityDial     = "dial"     // Dialer
	AbilityFiles    = "files"    // Files
	AbilityWatch    = "watch"    // Watcher
)

// The errors of the contract beyond those of io/fs, context and errors. They are codes of the wire, so that
// errors.Is finds them on either end of it.
const (
	// ErrUnknownProcess says that no process has this id (or its record has been let go).
	ErrUnknownProcess = wire.UnknownProcess
	// ErrStdinClosed says that the process's standard input is closed, on either end.
	ErrStdinClosed = wire.StdinClosed
	// ErrStart says that a program could not be started; what was wrong is wrapped beside it
	// ([io/fs.ErrNotExist] for a program that was not found, [io/fs.ErrPermission] for one that may not be run).
	ErrStart = wire.StartFailed
	// ErrInvalid says that an argument can never be right.
	ErrInvalid = wire.Invalid
	// ErrLimit says that a limit of the machine or of the server was reached; the call may be tried again.
	ErrLimit = wire.Limit
	// ErrFenced says that another connection or client took over; the cause says who.
	ErrFenced = wire.Fenced
	// ErrRestarted says that the server is not the instance that was spoken to before: its processes are gone.
	ErrRestarted = wire.Restarted
	// ErrUnknownOutcome says that a call may or may not have had its effect; it is never repeated blindly.
	ErrUnknownOutcome = wire.UnknownOutcome
	// ErrNotRegular says that a regular file was wanted, and this is something else.
	ErrNotRegular = wire.NotRegular
	// ErrIsDirectory says that this is a directory.
	ErrIsDirectory = wire.IsDirectory
	// ErrNotDirectory says that a directory was wanted, here or on the way.
	ErrNotDirectory = wire.NotDirectory
	// ErrNotEmpty says that a directory holds something.
	ErrNotEmpty = wire.NotEmpty
	// ErrChanged says that a file is no longer what it was.
	ErrChanged = wire.Changed
	// ErrTooLarge says that something is more than is taken.
	ErrTooLarge = wire.TooLarge
	// ErrExpired says that the session was not resumed within its lease, so that it and its processes have ended.
	ErrExpired = wire.Expired
)
