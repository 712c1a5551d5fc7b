package main

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/env"
	"waldo/pathuri"
)

func shellCommand(c *connection) *cobra.Command {
	var directory string
	var lease time.Duration
	command := &cobra.Command{
		Use:   "shell [flags]",
		Short: "Open a terminal with the login shell of an environment",
		Long: `Open a terminal with the login shell of an environment.

At the start of a line ~. detaches, which leaves the shell running, and prints how to come back; ~? is help, ~~ types
one ~. When the connection is lost, the shell is kept and found again, for as long as --lease says; so it is once you
have detached. When the window here is closed, the shell is hung up. TERM, LANG and LC_* go along.`,
		Example: `  app-server shell
  app-server shell -e ssh://me@web.example
  app-server shell -e tcp://127.0.0.1:7777 -C src/project`,
		Args:        noArguments,
		Annotations: map[string]string{runsSomething: annotationValue},
		RunE: func(command *cobra.Command, _ []string) error {
			return runShell(command.Context(), c, directory, lease)
		},
	}
	command.Flags().StringVarP(&directory, "directory", "C", "", "directory to start in, as that machine writes it; relative to the home there (where that is this machine: to ours)")
	command.Flags().Var(newPeriod(&lease, 0), "lease", "how long it outlives our connection (default: the server's, as a rule 10m)")
	return command
}

func runShell(ctx context.Context, c *connection, directory string, lease time.Duration) error {
	if !isConsole() {
		return errors.New("standard input is not a terminal; use run -t to give a command a terminal all the same")
	}
	s := newStage(c)
	defer s.end()
	e, err := s.open(ctx, opening{lease: lease})
	if err != nil {
		return err
	}
	info, err := untilSignal(ctx, s, e.Describe)
	if err != nil {
		return e.Explain(err)
	}
	process, err := s.start(ctx, e, shellOf(info), directory)
	if err != nil {
		return err
	}
	return s.join(ctx, e, process, joining{
		terminal: true, escapes: true, input: true, hangUp: true, linger: 2 * time.Second,
	})
}

// shellOf is the login shell of the machine that info describes.
func shellOf(info env.Info) env.Command {
	size := terminalSize()
	command := env.Command{ID: "shell", Stdin: true, Terminal: &size, Env: terminalEnvironment(os.Environ())}
	switch {
	case info.Paths == pathuri.Windows && info.Shell == "":
		command.Argv = []string{"cmd.exe"}
	case info.Paths == pathuri.Windows:
		command.Argv = []string{info.Shell}
	case info.Shell == "":
		command.Argv, command.Arg0 = []string{"/bin/sh"}, "-sh"
	default:
		// A shell is a login shell if its name has a dash in front.
		command.Argv, command.Arg0 = []string{info.Shell}, "-"+path.Base(strings.TrimRight(info.Shell, "/"))
	}
	return command
}
