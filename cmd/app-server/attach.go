package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"waldo/env"
)

func attachCommand(c *connection) *cobra.Command {
	var take, watch bool
	var lease time.Duration
	command := &cobra.Command{
		Use:   "attach [flags] SESSION/ID",
		Short: "Come back to a process: its output, its exit code",
		Long: `Come back to a process: what is kept of its output, what follows, and its exit code.

A beginning of SESSION/ID will do where it is the only one; "ps" lists them. Attached is who types and paces; while
somebody else does, attach only watches, unless --take makes it the one: then the other ends. At the start of a line
~. detaches again; a watcher also leaves with Ctrl-C. The signals INT, TERM, HUP and QUIT go on to the process, unless
you only watch.`,
		Example: `  app-server attach -e tcp://127.0.0.1:7777 3f0c9a/shell
  app-server attach --watch 3f0`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errors.New("no process given; " + c.commandLine("ps") + " lists them")
			case len(args) > 1:
				return fmt.Errorf("%d processes given; attach comes back to one", len(args))
			}
			return nil
		},
		Annotations: map[string]string{runsSomething: annotationValue},
		RunE: func(command *cobra.Command, args []string) error {
			if take && watch {
				return errors.New("--take and --watch exclude each other")
			}
			return attach(command.Context(), c, args[0], lease, env.Attach{From: -1, Take: take, Watch: watch})
		},
	}
	command.Flags().BoolVar(&take, "take", false, "take the process over from whoever is attached")
	command.Flags().BoolVar(&watch, "watch", false, "only look")
	command.Flags().Var(newPeriod(&lease, longestLease), "lease", "how long it outlives our connection (default: the longest that the server grants)")
	command.Flags().Lookup("lease").DefValue = "" // its usage tells
	return command
}

func attach(ctx context.Context, c *connection, name string, lease time.Duration, how env.Attach) error {
	s := newStage(c)
	defer s.end()
	e, err := s.open(ctx, opening{lease: lease})
	if err != nil {
		return err
	}
	type found struct {
		info    env.ProcessInfo
		process env.Process
	}
	f, err := untilSignal(ctx, s, func(ctx context.Context) (f found, err error) {
		processes, err := e.Processes(ctx)
		if err != nil {
			return f, e.Explain(err)
		}
		if f.info, err = findProcess(processes, name, c.commandLine("ps", "-a")); err != nil {
			return f, err
		}
		if f.process, err = e.Attach(ctx, f.info.ID, how); err != nil {
			err = fmt.Errorf("attach to %s: %w", f.info.ID, err)
		}
		return f, err
	})
	s.discard = false // what runs is not of this session's making
	if err != nil {
		return err
	}
	owner := f.process.Owner()
	if !owner && !how.Watch {
		say("somebody else is attached to %s, so this only watches; --take takes it over", f.info.ID)
	}
	return s.join(ctx, e, f.process, joining{
		terminal: f.info.Terminal,
		escapes:  true,
		input:    owner,
		watch:    !owner,
		hangUp:   owner && f.info.Terminal,
		linger:   2 * time.Second,
		repaint:  owner && f.info.Terminal && f.info.State == env.Running,
		replayed: f.info.Output,
	})
}
