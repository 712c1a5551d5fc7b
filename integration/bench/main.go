//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// rowWithin bounds one row, in case a server hangs.
const rowWithin = 15 * time.Minute

// row is one thing that is measured; it makes one or more lines of the table.
type row struct {
	name, title string
	measure     func(context.Context, *bench) ([]line, error)
}

// rows are all there are, in the order in which they run.
var rows = []row{
	{"true", "start to exit of /bin/true, one at a time", measureTrue},
	{"parallel", "the same, 32 at a time", measureParallel},
	{"stdout", "bulk output of a command", measureStdout},
	{"stat", "metadata call", measureStat},
	{"file", "one large file, down and up", measureFile},
	{"directory", "a large directory", measureDirectory},
	{"tree", "many small files, up and down", measureTree},
	{"echo", "terminal echo beside a bulk stream on the same connection", measureEcho},
	{"terminals", "many terminals at once", measureTerminals},
	{"idle", "resident size when idle, sizes of the binaries", measureIdle},
	{"roundtrips", "a network of 50 ms round trip", measureRoundTrips},
	{"agents", "AGENTS.md over a network of 50 ms round trip", measureAgents},
}

func main() {
	if os.Getenv(roleVariable) == bareRole {
		exitOn(serveBare())
		return
	}
	exitOn(run(os.Args[1:], os.Stdout, os.Stderr))
}

func exitOn(err error) {
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program. It fails when a row could not be measured, not when a row misses what it must reach.
func run(args []string, out, progress io.Writer) error {
	b := &bench{progress: progress}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.BoolVar(&b.quick, "quick", false, "small sizes, for trying; the figures are rough")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	codex := flags.String("codex", "", "`path` of the Codex binary, or off (default: $CODEX, else what integration/peer.sh installs)")
	flags.Usage = func() {
		fmt.Fprintln(progress, "usage: bench [flags] [row...]")
		flags.PrintDefaults()
		fmt.Fprintln(progress, "rows:")
		for _, r := range rows {
			fmt.Fprintf(progress, "  %-11s %s\n", r.name, r.title)
		}
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(flags.Args())
	if err != nil {
		return err
	}

	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer end()
	if err := b.prepare(ctx, *codex); err != nil {
		return err
	}
	defer b.close()

	r := report{Machine: describeMachine(ctx, b)}
	var failed []error
	for _, row := range chosen {
		fmt.Fprintf(progress, "%s: %s\n", row.name, row.title)
		lines, err := b.measure(ctx, row)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", row.name, err))
		}
		for i := range lines {
			lines[i].Row = row.name
		}
		r.Lines = append(r.Lines, lines...)
	}
	if *asJSON {
		err = r.writeJSON(out)
	} else {
		err = r.writeTable(out)
	}
	return errors.Join(append(failed, err)...)
}

func choose(names []string) ([]row, error) {
	if len(names) == 0 {
		return rows, nil
	}
	var chosen []row
	for _, name := range names {
		i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
		if i < 0 {
			var known []string
			for _, r := range rows {
				known = append(known, r.name)
			}
			return nil, fmt.Errorf("there is no row %q, only %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, rows[i])
	}
	return chosen, nil
}

// measure measures one row.
func (b *bench) measure(ctx context.Context, r row) ([]line, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rowWithin, fmt.Errorf("not done after %v", rowWithin))
	defer cancel()
	return r.measure(ctx, b)
}
