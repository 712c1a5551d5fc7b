package env

import (
	"context"
	"iter"
	"time"

	"waldo/pathuri"
)

// Runner starts processes and finds them again. A process belongs to the machine, not to the call that
// started it: closing a [Process] detaches.
type Runner interface {
	// Start starts command, or attaches to the process that has its id already (the owner is then taken over).
	// The program is looked up in the command's own PATH, against its own directory. Errors: ErrInvalid, ErrStart, ErrLimit.
	Start(ctx context.Context, command Command) (Process, error)
	// Attach attaches to a process that exists. Errors: ErrUnknownProcess.
	Attach(ctx context.Context, id string, attach Attach) (Process, error)
	// Processes lists the processes that the caller may see, oldest first, ended ones that are still remembered too.
	Processes(ctx context.Context) ([]ProcessInfo, error)
	// Signal sends sig to the process's whole group. A process that has ended is no error; ErrUnknownProcess is.
	Signal(ctx context.Context, id string, sig Signal) error
	// Terminate ends the process's tree: a polite signal, grace, then kill. It returns when the leader has ended.
	Terminate(ctx context.Context, id string, grace time.Duration) error
}

// Command says what to start.
type Command struct {
	// ID names the process; it is the caller's and unique among the caller's processes. Empty: one is made.
	ID string
	// Argv is the program and its arguments, never interpreted by a shell. Bytes are kept as they are.
	Argv []string
	// Arg0 is argv[0] as the program sees it, when it is to differ from Argv[0].
	Arg0 string
	// Directory is where it starts; the zero URI is the machine's default directory.
	Directory pathuri.URI
	// Env is added to (and overrides) the environment that the machine gives, "NAME=value"; "NAME" alone removes.
	Env []string
	// CleanEnv starts from an empty environment.
	CleanEnv bool
	// Stdin keeps a pipe open for Write; without it a piped process reads end-of-file at once.
	Stdin bool
	// Terminal gives it a terminal of this size, nil pipes. With a terminal Stdin is implied.
	Terminal *Size
	// Delivery says what happens when its output is not read.
	Delivery Delivery
	// From is the output offset to attach at, when the id exists already; see Attach.From.
	From int64
	// Limits are enforced or refused, never ignored.
	Limits Limits
	// ExplicitAck leaves acknowledging to Process.Ack; see Process.Output.
	ExplicitAck bool
}

// Delivery says what happens to output that is not read.
type Delivery string

const (
	// Lossless blocks the process when its log is full, as a pipe would. It is the default.
	Lossless Delivery = "lossless"
	// Latest never blocks: the oldest unread bytes are dropped, and their loss is told.
	Latest Delivery = "latest"
)

// Limits bound one process tree; zero means none.
type Limits struct {
	WallClock time.Duration `json:"wallClock,omitempty"`
	Memory    int64         `json:"memory,omitempty"`    // bytes
	Processes int           `json:"processes,omitempty"` // count
}

// Size is a terminal's size in character cells.
type Size struct {
	Rows    uint16 `json:"rows"`
	Columns uint16 `json:"columns"`
}

// Signal names a signal as POSIX does, without SIG: "INT", "TERM", "HUP", "QUIT", "KILL", "USR1", "WINCH" …
type Signal string

// Attach says how to attach.
type Attach struct {
	// From is the first output offset wanted. -1 is the oldest byte that is still kept, or, if output was dropped
	// right before it that no owner was handed, the start of that. What is no longer kept is told as lost.
	From int64
	// Watch attaches as a watcher, who paces nothing and may not write. Otherwise the caller becomes the
	// owner if there is no owner, or if Take is set.
	Watch bool
	// Take makes the caller the owner even if another one is attached; that one's calls end with ErrFenced.
	Take bool
	// ExplicitAck leaves acknowledging to Process.Ack; see Process.Output.
	ExplicitAck bool
}

// Process is one attachment to a process. All methods may be called concurrently, but there is one
// consumer of Output and one caller of Write.
type Process interface {
	// ID is the id the process was started under.
	ID() string
	// Pid is the machine's own number for it.
	Pid() int
	// Owner tells whether this attachment paces, types and resizes.
	Owner() bool
	// Output yields the output in order, beginning where the attachment asked. Taking the next step
	// acknowledges the chunk before, unless ExplicitAck was asked for: then only Ack does, so that a relay
	// can acknowledge what the far end has taken. It ends after the last byte once every holder of the output
	// is gone ("closed"); a chunk's bytes are valid until the next step. When a step yields an error the
	// sequence has ended. Breaking off and ranging again goes on after the last chunk yielded.
	Output(ctx context.Context) iter.Seq2[Chunk, error]
	// Ack says that everything below offset has been taken for good and may be dropped. Only the owner's
	// counts; an offset that goes back is ignored. It never waits.
	Ack(offset int64)
	// Write writes p to standard input (or types it) and returns when the process's pipe, or a bounded buffer
	// on the way to it, has taken it all. What a buffer took is delivered or its loss is the error of a later
	// call; StdinOffset tells what the pipe took. Errors: ErrStdinClosed, ErrFenced, or a context's; n counts
	// what was taken.
	Write(ctx context.Context, p []byte) (n int, err error)
	// StdinOffset is how many bytes the process's standard input has taken so far, from all owners.
	StdinOffset() int64
	// CloseStdin closes standard input after what has been written, and waits for that to be taken; on a
	// terminal it types end-of-file.
	CloseStdin(ctx context.Context) error
	// Signal sends sig to the process's group; see Runner.Signal.
	Signal(ctx context.Context, sig Signal) error
	// Resize changes the terminal's size. ErrInvalid for a size of zero or for a process without a terminal.
	Resize(ctx context.Context, size Size) error
	// Exited is closed when the leader has ended, or when that can no longer be learned; Exit then tells.
	// It does not wait for output, nor for other holders of it.
	Exited() <-chan struct{}
	// Exit tells how the leader ended. While it runs, or when it cannot be learned, there is an error.
	Exit() (Exit, error)
	// Close detaches. The process lives on; see Runner.Terminate. Close is idempotent.
	Close() error
}

// Channel tells where output bytes came from.
type Channel uint8

// The channels of a process, numbered as in wire frames.
const (
	Stdin    Channel = 0
	Stdout   Channel = 1
	Stderr   Channel = 2
	Terminal Channel = 3
)

// Chunk is one step of a process's output: bytes, or the report that bytes were lost.
type Chunk struct {
	// Offset counts the bytes of all channels together, from the start of the process.
	Offset  int64
	Channel Channel
	Data    []byte
	// Lost is the number of bytes at Offset that were dropped and cannot be delivered; Data is then empty.
	Lost int64
	// Framed is Data with its wire frame header in front, when the source has it so; it saves a copy.
	Framed []byte
}

// Exit tells how a process's leader ended.
type Exit struct {
	// Code is the exit code (32 bits, as the machine has it); -1 when a signal ended it.
	Code int64 `json:"code"`
	// Signal is the signal that ended it, "" otherwise.
	Signal Signal `json:"signal,omitempty"`
	// Offset is where the output stood: every byte that the leader wrote lies below it.
	Offset int64 `json:"offset"`
	// Reason is set when the server ended it: a limit, a lease, a shutdown.
	Reason string `json:"reason,omitempty"`
}

// ProcessState is where a process is in its life.
type ProcessState string

// The states, in order.
const (
	Running ProcessState = "running" // the leader runs
	Exited  ProcessState = "exited"  // the leader has ended; something still holds the output
	Closed  ProcessState = "closed"  // no more output can come
)

// ProcessInfo describes one process for a list.
type ProcessInfo struct {
	ID        string        `json:"id"`
	Pid       int           `json:"pid"`
	Argv      []string      `json:"argv"`
	State     ProcessState  `json:"state"`
	Started   time.Time     `json:"started"`
	Ended     time.Time     `json:"ended,omitzero"`
	Exit      *Exit         `json:"exit,omitempty"`
	Terminal  bool          `json:"terminal,omitempty"`
	Delivery  Delivery      `json:"delivery,omitempty"`
	Owned     bool          `json:"owned"`              // an owner is attached
	Watchers  int           `json:"watchers,omitempty"` // attached watchers
	CPU       time.Duration `json:"cpu,omitempty"`      // user and system time of the leader's tree, as far as it can be told
	Memory    int64         `json:"memory,omitempty"`   // resident bytes of the same
	Output    int64         `json:"output"`             // bytes produced
	Dropped   int64         `json:"dropped,omitempty"`  // bytes lost to a full log
	Retained  int64         `json:"retained,omitempty"` // bytes held for readers, memory and spill file
	Stdin     int64         `json:"stdin,omitempty"`    // bytes taken by standard input
	Full      bool          `json:"full,omitempty"`     // a bound or a budget blocks it (lossless) or drops (latest)
	LeaseLeft time.Duration `json:"leaseLeft,omitempty"`
}
