package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"waldo/env"
)

func psCommand(c *connection) *cobra.Command {
	var asJSON, all bool
	command := &cobra.Command{
		Use:   "ps [flags]",
		Short: "List what runs in an environment",
		Long: `List what runs in an environment: the processes of all sessions of yours there.

LEASE is the time that is left to a process whose client is away. NOTE tells of output that waits for a reader
("full": the process is blocked, or loses output), and of bytes that were lost.`,
		Example: `  app-server ps -e tcp://127.0.0.1:7777
  app-server ps -a --json | jq -r '.[].id'`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return ps(command.Context(), c, command.OutOrStdout(), asJSON, all)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	command.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended and are still remembered")
	return command
}

func ps(ctx context.Context, c *connection, out io.Writer, asJSON, all bool) error {
	e, err := c.open(ctx, opening{})
	if err != nil {
		return err
	}
	defer e.Close()
	processes, err := e.Processes(ctx)
	if err != nil {
		return e.Explain(err)
	}
	shown := make([]env.ProcessInfo, 0, len(processes))
	for _, p := range processes {
		if all || p.State != env.Closed {
			shown = append(shown, p)
		}
	}
	if asJSON {
		return printJSON(out, shown)
	}
	return printTable(out, shown, time.Now())
}

func printTable(out io.Writer, processes []env.ProcessInfo, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tPID\tSTATE\tTIME\tCPU\tMEMORY\tOUTPUT\tLEASE\tNOTE\tCOMMAND")
	for _, p := range processes {
		until := now
		if !p.Ended.IsZero() {
			until = p.Ended
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", escapeControls(p.ID), p.Pid, stateText(p),
			durationText(until.Sub(p.Started)), durationText(p.CPU), bytesText(p.Memory), bytesText(p.Output),
			leaseText(p), noteText(p), quoteWords(p.Argv))
	}
	return table.Flush()
}

// stateText tells the state, and how it ended.
func stateText(p env.ProcessInfo) string {
	state := string(p.State)
	switch {
	case p.Exit == nil:
	case p.Exit.Signal != "":
		state += "(SIG" + escapeControls(string(p.Exit.Signal)) + ")"
	default:
		state += fmt.Sprintf("(%d)", p.Exit.Code)
	}
	return state
}

func leaseText(p env.ProcessInfo) string {
	if p.LeaseLeft <= 0 {
		return "-"
	}
	return durationText(p.LeaseLeft)
}

// noteText tells what is out of the usual.
func noteText(p env.ProcessInfo) string {
	var notes []string
	if p.Terminal {
		notes = append(notes, "terminal")
	}
	if p.Full {
		notes = append(notes, "full")
	}
	if p.Dropped > 0 {
		notes = append(notes, "lost "+bytesText(p.Dropped))
	}
	if p.Watchers > 0 {
		notes = append(notes, fmt.Sprintf("watched by %d", p.Watchers))
	}
	if !p.Owned && p.State != env.Closed {
		notes = append(notes, "detached")
	}
	if p.Exit != nil && p.Exit.Reason != "" {
		notes = append(notes, escapeControls(p.Exit.Reason))
	}
	if len(notes) == 0 {
		return "-"
	}
	return strings.Join(notes, ",")
}

// processJSON is a process as ps --json prints it: times in seconds, sizes in bytes.
type processJSON struct {
	ID        string           `json:"id"`
	Pid       int              `json:"pid"`
	Argv      []string         `json:"argv"`
	State     env.ProcessState `json:"state"`
	Started   time.Time        `json:"started"`
	Ended     time.Time        `json:"ended,omitzero"`
	Exit      *env.Exit        `json:"exit,omitempty"`
	Terminal  bool             `json:"terminal"`
	Delivery  env.Delivery     `json:"delivery"`
	Owned     bool             `json:"owned"`
	Watchers  int              `json:"watchers"`
	CPU       float64          `json:"cpuSeconds"`
	Memory    int64            `json:"memoryBytes"`
	Output    int64            `json:"outputBytes"`
	Dropped   int64            `json:"droppedBytes"`
	Retained  int64            `json:"retainedBytes"`
	Stdin     int64            `json:"stdinBytes"`
	Full      bool             `json:"full"`
	LeaseLeft float64          `json:"leaseLeftSeconds"`
}

func printJSON(out io.Writer, processes []env.ProcessInfo) error {
	list := make([]processJSON, len(processes))
	for i, p := range processes {
		list[i] = processJSON{
			ID: p.ID, Pid: p.Pid, Argv: p.Argv, State: p.State, Started: p.Started, Ended: p.Ended, Exit: p.Exit,
			Terminal: p.Terminal, Delivery: p.Delivery, Owned: p.Owned, Watchers: p.Watchers, CPU: p.CPU.Seconds(),
			Memory: p.Memory, Output: p.Output, Dropped: p.Dropped, Retained: p.Retained, Stdin: p.Stdin,
			Full: p.Full, LeaseLeft: p.LeaseLeft.Seconds(),
		}
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(list)
}
