package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/env"
	"waldo/env/registry"
)

// runFlags are what the flags of run say.
type runFlags struct {
	directory string
	terminal  bool
	environ   []string
	cleanEnv  bool
	linger    time.Duration
	detach    bool
	lease     time.Duration
	delivery  string
	id        string
	limits    env.Limits
}

func runCommand(c *connection) *cobra.Command {
	var f runFlags
	command := &cobra.Command{
		Use:   "run [flags] -- CMD [ARG]...",
		Short: "Run a command in an environment: its output, its exit code",
		Long: `Run a command in an environment, with its output kept apart and exact, and with its exit code.

No shell is between: CMD is a program, looked up in the environment's PATH. It starts in the working directory of
this program where the environment is this machine, else in the home there, and gets the environment of the server
plus --env. INT, TERM, HUP and QUIT are forwarded; a second INT within two seconds kills.

When the connection is lost, run connects again and goes on, until the lease ends. It ends when the output has
closed, or --linger after the command's exit when something still holds it.

Exit codes: the command's own; 128+N if signal N ended it; 127 not found; 126 found, but not startable; 125 for
what went wrong on our side; 141 if our standard output was closed.`,
		Example: `  app-server run -- make test
  app-server run -e box -C src/project -- git status       # box is configured with "app-server env add"
  app-server run -e ssh://me@web.example --install -- uname -a
  tar c . | app-server run -e unix:///run/box.sock -- tar x -C /tmp/copy
  app-server run -e tcp://127.0.0.1:7777 -t -- top
  app-server run -e tcp://127.0.0.1:7777 --detach --id nightly -- make all`,
		Args:        needCommand,
		Annotations: map[string]string{runsSomething: annotationValue},
		RunE: func(command *cobra.Command, args []string) error {
			if f.detach && command.Flags().Changed("linger") {
				return errors.New("--linger has no meaning with --detach, which does not wait at all")
			}
			return f.run(command.Context(), c, args)
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	flags.SetInterspersed(false)
	flags.StringVarP(&f.directory, "directory", "C", "", "directory to start in, as that machine writes it; relative to the home there (where that is this machine: to ours)")
	flags.BoolVarP(&f.terminal, "terminal", "t", false, "give it a terminal")
	flags.StringArrayVar(&f.environ, "env", nil, "K=V sets a variable, K alone removes it; may be repeated")
	flags.BoolVar(&f.cleanEnv, "clean-env", false, "start from an empty environment")
	flags.Var(newPeriod(&f.linger, 2*time.Second), "linger", "how long to wait, after the exit, for what still holds the output")
	flags.BoolVar(&f.detach, "detach", false, "print SESSION/ID and leave it running")
	flags.Var(newPeriod(&f.lease, 0), "lease", "how long it outlives our connection (default: the server's, as a rule 10m; with --detach the longest)")
	flags.StringVar(&f.delivery, "delivery", "", `"lossless": unread output blocks it, or "latest": the oldest goes (default lossless; with --detach latest)`)
	flags.StringVar(&f.id, "id", "", `what the process is called in its session (default "1")`)
	flags.Var(newPeriod(&f.limits.WallClock, 0), "timeout", "end it after this time")
	flags.Int64Var(&f.limits.Memory, "memory", 0, "bytes of memory that its processes may have together")
	flags.IntVar(&f.limits.Processes, "max-processes", 0, "processes that it may have")
	return command
}

func needCommand(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command given; see %s --help", command.CommandPath())
	}
	return nil
}

// command is what the flags ask for, but for the directory.
func (f *runFlags) command(args []string) (env.Command, error) {
	command := env.Command{
		ID:       f.id,
		Argv:     args,
		CleanEnv: f.cleanEnv,
		Stdin:    !f.detach,
		Delivery: env.Delivery(f.delivery),
		Limits:   f.limits,
	}
	if command.ID == "" {
		command.ID = "1"
	}
	if strings.Contains(command.ID, "/") {
		return command, fmt.Errorf("--id %q: no slash may be in it", f.id)
	}
	switch command.Delivery {
	case "":
		if f.detach {
			command.Delivery = env.Latest
		}
	case env.Lossless, env.Latest:
	default:
		return command, fmt.Errorf("--delivery %q: want %q or %q", f.delivery, env.Lossless, env.Latest)
	}
	for _, entry := range f.environ {
		if name, _, _ := strings.Cut(entry, "="); name == "" {
			return command, fmt.Errorf("--env %q: want NAME=VALUE", entry)
		}
	}
	if f.terminal {
		size := terminalSize()
		command.Terminal = &size
		command.Env = terminalEnvironment(os.Environ())
	}
	command.Env = append(command.Env, f.environ...)
	return command, nil
}

func (f *runFlags) run(ctx context.Context, c *connection, args []string) error {
	command, err := f.command(args)
	if err != nil {
		return err
	}
	lease := f.lease
	if f.detach && lease == 0 {
		lease = longestLease
	}
	s := newStage(c)
	defer s.end()
	e, err := s.open(ctx, opening{lease: lease})
	if err != nil {
		return err
	}
	process, err := s.start(ctx, e, command, f.directory)
	if err != nil {
		return err
	}
	if f.detach {
		fmt.Println(fullID(e, process))
		return nil
	}
	return s.join(ctx, e, process, joining{
		terminal: f.terminal,
		escapes:  f.terminal,
		linger:   f.linger,
		input:    true,
	})
}

// fullID is what people call a process.
func fullID(e *registry.Environment, p env.Process) string {
	if strings.Contains(p.ID(), "/") {
		return p.ID()
	}
	return e.Session() + "/" + p.ID()
}

// terminalEnvironment is what a program on a terminal should know of the one here.
func terminalEnvironment(environ []string) (chosen []string) {
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if name == "TERM" || name == "LANG" || strings.HasPrefix(name, "LC_") {
			chosen = append(chosen, entry)
		}
	}
	return chosen
}
