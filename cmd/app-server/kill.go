package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"waldo/env"
)

func killCommand(c *connection) *cobra.Command {
	var signal string
	var grace time.Duration
	command := &cobra.Command{
		Use:   "kill [flags] SESSION/ID...",
		Short: "End processes of an environment, or signal them",
		Long: `End processes of an environment, each with everything that it started: TERM, then KILL after --grace.

With --signal they only get that signal. A beginning of SESSION/ID will do where it is the only one.`,
		Example: `  app-server kill 3f0c9a/shell
  app-server kill --signal USR1 -e tcp://127.0.0.1:7777 3f0`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no process given; " + c.commandLine("ps") + " lists them")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			if command.Flags().Changed("signal") && command.Flags().Changed("grace") {
				return errors.New("--grace is for ending a process, not for --signal")
			}
			return kill(command.Context(), c, args, env.Signal(strings.TrimPrefix(strings.ToUpper(signal), "SIG")), grace)
		},
	}
	command.Flags().StringVarP(&signal, "signal", "s", "", "only send this signal: INT, TERM, HUP, USR1, KILL, …")
	command.Flags().Var(newPeriod(&grace, 5*time.Second), "grace", "between the polite signal and the kill")
	return command
}

func kill(ctx context.Context, c *connection, names []string, signal env.Signal, grace time.Duration) error {
	e, err := c.open(ctx, opening{})
	if err != nil {
		return err
	}
	defer e.Close()
	processes, err := e.Processes(ctx)
	if err != nil {
		return e.Explain(err)
	}
	outcome := make([]error, len(names))
	ended := make(chan struct{})
	for i, name := range names {
		go func() {
			defer func() { ended <- struct{}{} }()
			p, err := findProcess(processes, name, c.commandLine("ps", "-a"))
			switch {
			case err != nil:
			case signal != "":
				err = e.Signal(ctx, p.ID, signal)
			default:
				err = e.Terminate(ctx, p.ID, grace)
			}
			outcome[i] = err
		}()
	}
	for range names {
		<-ended
	}
	return errors.Join(outcome...)
}
