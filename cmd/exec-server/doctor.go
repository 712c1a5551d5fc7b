package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// probeWithin bounds one probe that waits for something else than this program.
const probeWithin = 5 * time.Second

// The statuses of a finding.
const (
	statusOK   = "ok"
	statusWarn = "warn" // it works, but less well than it could
	statusFail = "fail" // something that people expect does not work
)

// A finding is what one probe came to.
type finding struct {
	Status string `json:"status"`
	What   string `json:"what"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"` // what to do about it; of every finding that is not ok
}

// An examination looks at this machine as a server of this state directory finds it. It changes nothing.
type examination struct {
	stateDir string
	tell     func(finding)
	answered map[uint16]bool // ports where a server of this state directory has answered
	failed   bool
}

func (x *examination) ok(what, format string, args ...any) {
	x.tell(finding{Status: statusOK, What: what, Detail: fmt.Sprintf(format, args...)})
}

func (x *examination) warn(what, remedy, format string, args ...any) {
	x.tell(finding{Status: statusWarn, What: what, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (x *examination) fail(what, remedy, format string, args ...any) {
	x.failed = true
	x.tell(finding{Status: statusFail, What: what, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
}

// run makes every probe.
func (x *examination) run(ctx context.Context) {
	x.machine(ctx)
	x.system()
	x.temporary()
	x.state(ctx)
	x.port(ctx, defaultAddress)
}

func doctorCommand() *cobra.Command {
	var dir string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Try what this machine lets a server do, and say what to change where it does not",
		Long: `Try what this machine lets a server do, and say what to change where it does not.

Each line is ok, warn or fail, what was looked at, and what was found. The exit code is 1 if something fails, else 0.
Nothing is changed, and no secret is shown.`,
		Example: `  exec-server doctor
  exec-server doctor --json | jq '.findings[] | select(.status != "ok")'`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := stateDir(dir)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return examine(ctx, dir, asJSON, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&dir, "state-dir", "", "directory of the server's own files (default $WALDO_HOME/exec-server, else ~/.waldo/exec-server)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// examine prints what an examination finds, as it finds it.
func examine(ctx context.Context, stateDir string, asJSON bool, out io.Writer) error {
	var printing error
	all := []finding{}
	paint := paintFor(out)
	x := &examination{stateDir: stateDir, tell: func(f finding) {
		all = append(all, f)
		if !asJSON && printing == nil {
			_, printing = io.WriteString(out, line(f, paint))
		}
	}}
	x.run(ctx)
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("doctor: ended before it was through: %w", err)
	}
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		printing = encoder.Encode(struct {
			Version  string    `json:"version"`
			Failed   bool      `json:"failed"`
			Findings []finding `json:"findings"`
		}{version, x.failed, all})
	}
	if printing != nil {
		return fmt.Errorf("doctor: print what was found: %w", printing)
	}
	if x.failed {
		return &exitError{code: 1}
	}
	return nil
}

// line is a finding for people.
func line(f finding, paint func(status, text string) string) string {
	text := f.Detail
	if f.Remedy != "" {
		text += "; " + f.Remedy
	}
	return paint(f.Status, fmt.Sprintf("%-4s", f.Status)) + fmt.Sprintf("  %-17s  %s\n", f.What, printable(text))
}

// paintFor is how a status is drawn: in its colour on a terminal, unless the user wants none.
func paintFor(out io.Writer) func(status, text string) string {
	file, isFile := out.(*os.File)
	if !isFile || !terminalColours || !term.IsTerminal(int(file.Fd())) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return func(_, text string) string { return text }
	}
	colours := map[string]string{statusOK: "32", statusWarn: "33", statusFail: "31"}
	return func(status, text string) string { return "\x1b[" + colours[status] + "m" + text + "\x1b[0m" }
}

// printable escapes what a terminal would obey: names of files and answers of others are in the text.
func printable(text string) string {
	var b strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(" | ")
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// size is a number of bytes for people.
func size(n uint64) string {
	for _, unit := range []struct {
		bits uint
		name string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<unit.bits {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(uint64(1)<<unit.bits), unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
