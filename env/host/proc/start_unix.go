//go:build unix

package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"waldo/env"
	"waldo/env/host/output"
	"waldo/env/host/tree"
	"waldo/pathuri"
)

// nativeConvention is how this machine writes paths.
const nativeConvention = pathuri.Posix

// A launch is all that start needs to know.
type launch struct {
	command *env.Command
	environ []string
	dir     string
	log     *output.Log
	cgroups *tree.Cgroups
}

// A child is a started leader with this machine's handles of it.
type child struct {
	pid     int
	streams []*output.Stream
	input   *input // nil without standard input
	tree    *tree.Tree

	slave *os.File // the terminal's other end, kept open until the leader has ended, or nil

	once  sync.Once
	files []*os.File
}

// start starts the leader. On an error nothing is left of it.
func start(l launch) (_ *child, err error) {
	c := l.command
	program := c.Argv[0]
	if err := checkDirectory(program, l.dir); err != nil {
		return nil, err
	}
	path, err := lookPath(program, l.environ, l.dir)
	if err != nil {
		return nil, err
	}
	argv := c.Argv
	if c.Arg0 != "" {
		argv = append([]string{c.Arg0}, argv[1:]...)
	}

	child := &child{}
	var theirs []int // the child's ends
	defer func() {
		for _, fd := range theirs {
			unix.Close(fd) //nolint:errcheck // only handed on
		}
		if err != nil {
			child.left()
			child.close()
		}
	}()
	attr := &syscall.ProcAttr{Dir: l.dir, Env: l.environ, Sys: &syscall.SysProcAttr{Setsid: true}}
	if c.Terminal != nil {
		master, slave, err := openTerminal(*c.Terminal)
		if err != nil {
			return nil, limitOr(program, err)
		}
		child.slave = os.NewFile(uintptr(slave), "terminal")
		child.files = append(child.files, master)
		if err := child.addStream(l.log, env.Terminal, master); err != nil {
			return nil, err
		}
		if child.input, err = newInput(master, true); err != nil {
			return nil, err
		}
		child.input.pace = child.pace
		attr.Files = []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		attr.Sys.Setctty = true
	} else {
		for _, channel := range []env.Channel{env.Stdin, env.Stdout, env.Stderr} {
			if channel == env.Stdin && !c.Stdin {
				null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					return nil, limitOr(program, err)
				}
				theirs = append(theirs, null)
				attr.Files = append(attr.Files, uintptr(null))
				continue
			}
			ours, its, err := pipe(channel == env.Stdin)
			if err != nil {
				return nil, limitOr(program, err)
			}
			theirs = append(theirs, its)
			attr.Files = append(attr.Files, uintptr(its))
			child.files = append(child.files, ours)
			if channel == env.Stdin {
				child.input, err = newInput(ours, false)
			} else {
				err = child.addStream(l.log, channel, ours)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if child.tree, err = tree.New(l.cgroups, c.Limits, c.CleanEnv, attr); err != nil {
		return nil, err
	}
	child.pid, err = child.tree.Start(path, argv, attr)
	if err != nil {
		child.tree.Close()
		file := path
		if !filepath.IsAbs(file) {
			file = filepath.Join(l.dir, file)
		}
		return nil, explain(program, file, err)
	}
	return child, nil
}

// limitOr says that the machine has no more of what a start needs, or what else is wrong.
func limitOr(program string, err error) error {
	for _, limit := range []error{unix.EMFILE, unix.ENFILE, unix.ENOSPC, unix.ENOMEM, unix.EAGAIN} {
		if errors.Is(err, limit) {
			return fmt.Errorf("cannot start %q: %w: %w", program, env.ErrLimit, err)
		}
	}
	return &startError{program, quoted(err), err}
}

func (c *child) addStream(log *output.Log, channel env.Channel, file *os.File) error {
	s, err := output.NewStream(log, channel, file)
	if err == nil {
		c.streams = append(c.streams, s)
	}
	return err
}

// pipe makes a pipe whose end for us does not block, and is written to if toChild.
func pipe(toChild bool) (ours *os.File, theirs int, err error) {
	var ends [2]int
	if err := cloexecPipe(&ends); err != nil {
		return nil, -1, err
	}
	our, name := 0, "output"
	if toChild {
		our, name = 1, "input"
	}
	if err := unix.SetNonblock(ends[our], true); err != nil {
		unix.Close(ends[0]) //nolint:errcheck // the error is told
		unix.Close(ends[1]) //nolint:errcheck // as above
		return nil, -1, err
	}
	return os.NewFile(uintptr(ends[our]), name), ends[1-our], nil
}

// wait waits for the leader and reaps it.
func (c *child) wait() exitStatus {
	ws, usage := c.tree.Wait()
	status := exitStatus{code: int64(ws.ExitStatus()), cpu: time.Duration(usage.Utime.Nano() + usage.Stime.Nano())}
	if ws.Signaled() {
		status.code, status.signal = -1, tree.SignalName(ws.Signal())
	}
	return status
}

// left lets go of what was kept for the leader's sake.
func (c *child) left() {
	if c.slave != nil {
		c.slave.Close() //nolint:errcheck // a terminal's
	}
}

// close closes our ends. What waits on them ends.
func (c *child) close() {
	c.once.Do(func() {
		for _, f := range c.files {
			f.Close() //nolint:errcheck // nothing is buffered; standard input may be closed already
		}
	})
}

func (c *child) resize(size env.Size) error {
	return resizeTerminal(c.input.raw, size)
}

// signal sends sig to the leader's group.
func (p *process) signal(sig env.Signal) error {
	n, err := tree.SignalNumber(sig)
	if err != nil {
		return err
	}
	if err := p.child.tree.Signal(n); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s to process %q: %w", sig, p.id, err)
	}
	return nil
}

// nativeDirectory is the working directory of a command in this machine's own words.
func nativeDirectory(u pathuri.URI, fallback string) (string, error) {
	if u.IsZero() {
		return fallback, nil
	}
	dir, err := u.NativeFor(nativeConvention)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: working directory: %w", env.ErrInvalid, err)
	case strings.ContainsRune(dir, 0):
		return "", fmt.Errorf("%w: working directory %q contains a NUL", env.ErrInvalid, dir)
	}
	return dir, nil
}

// machineAbilities lists what this machine can do beyond pipes.
func (t *Table) machineAbilities() []string {
	abilities := []string{env.AbilityTerminal}
	if t.cgroups.CanLimit() {
		abilities = append(abilities, env.AbilityLimits)
	}
	return abilities
}
