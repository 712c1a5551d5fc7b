package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"waldo/env"
	"waldo/env/registry"
)

func environmentsCommand(c *connection) *cobra.Command {
	command := &cobra.Command{
		Use:   "env",
		Short: "List, add, remove and check the configured environments",
		Long: `List, add, remove and check the configured environments.

They are in environments.toml, in $WALDO_HOME or else ~/.waldo. Its keys, at the top: default (an id, or "none"),
include_local (whether this machine is one of them); in each [[environments]]: id, and either url or program with
args, env and cwd; with a url token_file or auth_bearer_token, tls_pin, tls_ca, client_cert, client_key and
connect_timeout_sec; and initialize_timeout_sec, lease_sec, skills.required. Paths start at the file's directory.`,
		Example: `  app-server env add box tls://box:7777 --tls-pin sha256:… --token-file box.token
  app-server env add web ssh://me@web.example
  app-server env add build -- docker exec -i build exec-server --listen stdio
  app-server env list
  app-server env check
  app-server run -e build -- make`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(listCommand(c), addCommand(c), removeCommand(c), checkCommand(c))
	command.SetHelpFunc(func(shown *cobra.Command, args []string) {
		hideUnused(shown)
		command.Root().HelpFunc()(shown, args)
	})
	return command
}

// hideUnused leaves out of a command's help the flags of all commands that it has no use for.
func hideUnused(command *cobra.Command) {
	command.InheritedFlags().VisitAll(func(flag *pflag.Flag) {
		switch command.Name() {
		case "add": // keeps what leads to the environment
			flag.Hidden = flag.Name == "environment" || flag.Name == "install"
		case "check":
			flag.Hidden = flag.Name == "environment"
		default:
			flag.Hidden = true
		}
	})
}

// noName refuses -e where the environments themselves are the subject.
func (c *connection) noName(command *cobra.Command) error {
	switch {
	case c.name != "":
		return fmt.Errorf("%s takes no -e; see %s --help", command.Name(), command.CommandPath())
	case c.install && command.Name() != "check":
		return fmt.Errorf("%s takes no --install; see %s --help", command.Name(), command.CommandPath())
	}
	return nil
}

// loaded is the registry, its warning told.
func (c *connection) loaded() (*registry.Registry, error) {
	r, err := c.registry()
	if err == nil && r.Warning() != "" {
		say("%s", r.Warning())
	}
	return r, err
}

func listCommand(c *connection) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "list [flags]",
		Short: "List the environments; the default one has a star",
		Long: `List the environments, without connecting to any. The default one has a star.

On a terminal the columns are aligned; elsewhere a tab is between them.`,
		Example: `  app-server env list
  app-server env list --json | jq -r '.[] | select(.default).id'`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := c.noName(command); err != nil {
				return err
			}
			r, err := c.loaded()
			if err != nil {
				return err
			}
			defer r.Close()
			return listEnvironments(newStyle(command.OutOrStdout()), r, asJSON)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return command
}

// listedJSON is an environment as list --json prints it.
type listedJSON struct {
	ID        string   `json:"id"`
	Transport string   `json:"transport"`
	URL       string   `json:"url,omitempty"`
	Program   []string `json:"program,omitempty"`
	Default   bool     `json:"default"`
}

func listEnvironments(s style, r *registry.Registry, asJSON bool) error {
	list := r.List()
	if asJSON {
		shown := make([]listedJSON, len(list))
		for i, l := range list {
			shown[i] = listedJSON{ID: l.ID, Transport: l.Transport, URL: l.Entry.URL, Default: l.Default}
			if l.Entry.Program != "" {
				shown[i].Program = append([]string{l.Entry.Program}, l.Entry.Args...)
			}
		}
		return printIndented(s.out, shown)
	}
	rows := make([][]string, len(list))
	for i, l := range list {
		mark := ""
		if l.Default {
			mark = "*"
		}
		rows[i] = []string{mark, escapeControls(l.ID), escapeControls(l.Transport)}
	}
	return s.table([]string{"", "ID", "TRANSPORT"}, rows, func(row, column int) string {
		if list[row].Default && column == 1 {
			return bold
		}
		return ""
	})
}

func printIndented(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func addCommand(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "add [flags] ID URL | ID -- PROGRAM [ARG]...",
		Short: "Add an environment to environments.toml",
		Long: `Add an environment at the end of environments.toml. Nothing is connected to; "env check ID" does that.

URL is where an exec-server listens, or ssh://[USER@]BOX[:PORT]. PROGRAM is a command whose standard input and
output an exec-server on stdio has. --token-file, --tls-pin, --tls-ca, --client-cert and --client-key are kept with
the URL; a token itself is never taken from the command line.`,
		Example: `  app-server env add box tls://box:7777 --tls-pin sha256:… --token-file box.token
  app-server env add web ssh://me@web.example:2222
  app-server env add build -- docker exec -i build exec-server --listen stdio
  app-server env add pod -- kubectl exec -i pod/web -- exec-server --listen stdio
  app-server env add ubuntu -- wsl -d Ubuntu -- exec-server --listen stdio`,
		Args: func(command *cobra.Command, args []string) error {
			switch dash := command.ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return fmt.Errorf("no id given; see %s --help", command.CommandPath())
			case dash < 0 && len(args) == 2, dash == 1 && len(args) > 1:
				return nil
			case len(args) == 1:
				return fmt.Errorf("neither a URL nor a program is given for %q; see %s --help", args[0], command.CommandPath())
			}
			return fmt.Errorf("want ID URL, or ID -- PROGRAM ARG...; see %s --help", command.CommandPath())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, args []string) error {
			if err := c.noName(command); err != nil {
				return err
			}
			e, err := c.entry(args, command.ArgsLenAtDash() == 1)
			if err != nil {
				return err
			}
			r, err := c.loaded()
			if err != nil {
				return err
			}
			defer r.Close()
			switch there := slices.ContainsFunc(r.List(), func(l registry.Listed) bool { return l.ID == e.ID }); {
			case there && e.ID == registry.Local:
				return fmt.Errorf("environment %q is this machine; choose another id", e.ID)
			case there:
				return fmt.Errorf("environment %q is there already; to change it, edit %s, or first: %s env remove %s", e.ID, registry.FileName, self(), e.ID)
			}
			return r.AddToFile(e)
		},
	}
}

// entry is what the command line of add says.
func (c *connection) entry(args []string, program bool) (e registry.Entry, err error) {
	e = registry.Entry{ID: args[0], TLSPin: c.access.TLSPin}
	if program {
		e.Program, e.Args = args[1], args[2:]
		if strings.ContainsRune(e.Program, '/') { // the file's directory is another one
			if e.Program, err = filepath.Abs(e.Program); err != nil {
				return e, err
			}
		}
	} else {
		e.URL = args[1]
	}
	for _, path := range []struct {
		to   *string
		from string
	}{
		{&e.TokenFile, c.access.TokenFile}, {&e.TLSCA, c.access.TLSCA},
		{&e.ClientCert, c.access.ClientCert}, {&e.ClientKey, c.access.ClientKey},
	} {
		if path.from == "" {
			continue
		}
		if *path.to, err = filepath.Abs(path.from); err != nil {
			return e, err
		}
	}
	return e, nil
}

func removeCommand(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID",
		Short: "Take an environment out of environments.toml",
		Long: `Take an environment out of environments.toml, with the comment right above it. All else in the file stays as it
is. What runs there goes on.`,
		Example: `  app-server env remove box`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("want one id; see %s --help", command.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.completions(false), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, args []string) error {
			if err := c.noName(command); err != nil {
				return err
			}
			r, err := c.loaded()
			if err != nil {
				return err
			}
			defer r.Close()
			return r.RemoveFromFile(args[0])
		},
	}
}

// completions are the ids for a shell's completion, each with where it leads. Nothing is connected to.
func (c *connection) completions(withLocal bool) []string {
	r, err := c.registry()
	if err != nil {
		return nil
	}
	defer r.Close()
	var ids []string
	for _, l := range r.List() {
		switch {
		case l.ID != registry.Local:
			ids = append(ids, cobra.CompletionWithDesc(l.ID, escapeControls(l.Transport)))
		case withLocal:
			ids = append(ids, cobra.CompletionWithDesc(l.ID, "this machine"))
		}
	}
	return ids
}

func checkCommand(c *connection) *cobra.Command {
	var asJSON bool
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "check [flags] [ID | URL]...",
		Short: "Connect to environments and tell how they are",
		Long: `Connect to environments, all configured ones if none is named, all at the same time, and tell what they are.

The exit code is 1 if one of them cannot be reached. STATE is "connected" or "failed"; why comes below the table.`,
		Example: `  app-server env check
  app-server env check box web
  app-server env check ssh://me@web.example --install
  app-server env check --json | jq -r '.[] | select(.state == "failed").id'`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return c.completions(true), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, args []string) error {
			if err := c.noName(command); err != nil {
				return err
			}
			return c.check(command.Context(), newStyle(command.OutOrStdout()), args, timeout, asJSON)
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	command.Flags().Var(newPeriod(&timeout, 15*time.Second), "timeout", "how long each may take")
	return command
}

// checked is what a check has found. It is what check --json prints.
type checked struct {
	ID        string         `json:"id"`
	Transport string         `json:"transport"`
	Default   bool           `json:"default"`
	State     registry.State `json:"state"`
	Error     string         `json:"error,omitempty"`
	Latency   float64        `json:"latencySeconds,omitempty"`
	OS        string         `json:"os,omitempty"`
	Arch      string         `json:"arch,omitempty"`
	Hostname  string         `json:"hostname,omitempty"`
	User      string         `json:"user,omitempty"`
	Shell     string         `json:"shell,omitempty"`
	Version   string         `json:"version,omitempty"`
	Abilities []string       `json:"abilities,omitempty"`
}

func (c *connection) check(ctx context.Context, s style, names []string, timeout time.Duration, asJSON bool) error {
	r, err := c.loaded()
	if err != nil {
		return err
	}
	defer r.Close()
	all := r.List()
	if len(names) == 0 {
		for _, l := range all {
			names = append(names, l.ID)
		}
	}
	found := make([]checked, len(names))
	specs := make([]registry.Spec, len(names))
	for i, name := range names { // what is typed wrongly is told before anything is dialled
		if specs[i], err = r.Spec(name); err != nil {
			return err
		}
		found[i] = checked{ID: name, Transport: specs[i].Transport(), Default: name == r.Default()}
		specs[i].Override(c.access)
		specs[i].MayAsk = mayAsk() && len(names) == 1 // one person is asked one thing at a time
	}
	ctx, stop := untilInterrupt(ctx)
	defer stop()
	if c.install {
		for _, spec := range specs {
			if spec.SSH != (registry.SSH{}) {
				if err := registry.Install(ctx, spec, say); err != nil {
					return err
				}
			}
		}
	}
	var checking sync.WaitGroup
	for i := range names {
		checking.Go(func() { checkOne(ctx, specs[i], timeout, &found[i]) })
	}
	checking.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := printChecked(s, found, asJSON); err != nil {
		return err
	}
	if slices.ContainsFunc(found, func(f checked) bool { return f.State == registry.Failed }) {
		return &exitError{code: codeFailure}
	}
	return nil
}

// checkOne connects to an environment, asks it what it is, and leaves it without a trace.
func checkOne(ctx context.Context, spec registry.Spec, timeout time.Duration, f *checked) {
	began := time.Now()
	late := fmt.Errorf("no answer within %v: %w", timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	info, latency, err := ask(ctx, spec)
	if err != nil {
		f.State, f.Error = registry.Failed, strings.TrimSpace(err.Error())
		return
	}
	if latency == 0 {
		latency = time.Since(began)
	}
	f.State, f.Latency = registry.Connected, latency.Seconds()
	f.OS, f.Arch, f.Hostname, f.User = info.OS, info.Arch, info.Hostname, info.User
	f.Shell, f.Version, f.Abilities = info.Shell, info.Version, info.Abilities
}

func ask(ctx context.Context, spec registry.Spec) (info env.Info, latency time.Duration, err error) {
	e, err := registry.Open(ctx, spec)
	if err != nil {
		return info, 0, err
	}
	defer e.Close()
	if info, err = e.Describe(ctx); err != nil {
		if ctx.Err() == nil {
			err = e.Explain(err)
		}
		return info, 0, err
	}
	latency = e.Connection().Latency
	e.Goodbye(ctx, false) //nolint:errcheck // its lease ends it
	return info, latency, nil
}

func printChecked(s style, found []checked, asJSON bool) error {
	if asJSON {
		return printIndented(s.out, found)
	}
	rows := make([][]string, len(found))
	for i, f := range found {
		mark, latency, system := "", "-", "-"
		if f.Default {
			mark = "*"
		}
		if f.State == registry.Connected {
			latency = latencyText(time.Duration(f.Latency * float64(time.Second)))
			system = f.OS + "/" + f.Arch
		}
		rows[i] = []string{mark, escapeControls(f.ID), string(f.State), latency, escapeControls(system),
			dashed(f.Shell), dashed(f.Version), dashed(strings.Join(f.Abilities, ","))}
	}
	err := s.table([]string{"", "ID", "STATE", "LATENCY", "SYSTEM", "SHELL", "VERSION", "ABILITIES"}, rows, func(row, column int) string {
		switch {
		case column == 1 && found[row].Default:
			return bold
		case column != 2:
			return ""
		case found[row].State == registry.Connected:
			return green
		}
		return red
	})
	for _, f := range found {
		if f.Error != "" {
			say("%s: %s", f.ID, strings.TrimPrefix(f.Error, "environment "+f.ID+": "))
		}
	}
	return err
}

// latencyText is a short time for people.
func latencyText(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return durationText(d)
}

func dashed(text string) string {
	if text == "" {
		return "-"
	}
	return escapeControls(text)
}

// style is how tables are printed: aligned and coloured for people, with tabs for programs.
type style struct {
	out     io.Writer
	aligned bool
	colours bool
}

// The colours, as terminals have them.
const (
	bold  = "1"
	red   = "31"
	green = "32"
)

func newStyle(out io.Writer) style {
	file, isFile := out.(*os.File)
	s := style{out: out, aligned: isFile && term.IsTerminal(int(file.Fd()))}
	s.colours = s.aligned && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// table prints rows below a heading. colour tells what a cell is drawn in; "" is as usual.
func (s style) table(heading []string, rows [][]string, colour func(row, column int) string) error {
	if !s.aligned {
		var text strings.Builder
		for _, row := range append([][]string{heading}, rows...) {
			text.WriteString(strings.Join(row, "\t") + "\n")
		}
		_, err := io.WriteString(s.out, text.String())
		return err
	}
	var plain strings.Builder
	table := tabwriter.NewWriter(&plain, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{heading}, rows...) {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	// Colours are put in after the columns have their places, since they take none.
	lines := strings.SplitAfter(plain.String(), "\n")
	for i, row := range rows {
		if !s.colours {
			break
		}
		line, from := lines[i+1], 0
		for column, cell := range row {
			at := strings.Index(line[from:], cell)
			if at < 0 || cell == "" {
				continue
			}
			at += from
			from = at + len(cell)
			if c := colour(i, column); c != "" {
				drawn := "\x1b[" + c + "m" + cell + "\x1b[0m"
				line = line[:at] + drawn + line[from:]
				from = at + len(drawn)
			}
		}
		lines[i+1] = line
	}
	_, err := io.WriteString(s.out, strings.Join(lines, ""))
	return err
}

// untilInterrupt makes a context that the usual signals end.
func untilInterrupt(ctx context.Context) (context.Context, func()) {
	signals, stopSignals := catchSignals()
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case sig := <-signals:
			name, number := signalOf(sig)
			cancel(&exitError{codeSignalled + number, errors.New("ended by SIG" + string(name))})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		stopSignals()
		cancel(nil)
		<-done
	}
}
