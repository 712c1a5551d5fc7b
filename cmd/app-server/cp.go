package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"waldo/env"
	"waldo/env/registry"
	"waldo/env/transfer"
	"waldo/pathuri"
	"waldo/wire/listen"
)

func cpCommand(c *connection) *cobra.Command {
	var options copyOptions
	command := &cobra.Command{
		Use:   "cp [flags] [ENV:]SOURCE... [ENV:]TARGET",
		Short: "Copy files and trees from one environment to another",
		Long: `Copy files and trees: here to there, there to here, between two environments, or within one.

ENV:PATH is in the environment of that id, :PATH in the one of -e, and a path without a colon is here. A relative
path starts at the home directory there, and at the working directory here. A directory that exists receives SOURCE;
SOURCE/. stands for what is in it.

A file is replaced all at once, and keeps its permission bits if it was there. A copy that loses its connection goes
on when that is back; a file that has changed meanwhile is told, never mixed.`,
		Example: `  app-server cp -e tcp://127.0.0.1:7777 report.txt :          # to the home directory there
  app-server cp -r -e tcp://127.0.0.1:7777 :src/project .     # a tree, from there
  app-server cp -r devbox:src/project/. winbox:project        # between two`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) < 2 {
				return fmt.Errorf("want SOURCE and TARGET; see %s --help", command.CommandPath())
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return cp(command.Context(), c, command.OutOrStdout(), args, options)
		},
	}
	f := command.Flags()
	f.BoolVarP(&options.recursive, "recursive", "r", false, "copy directories with all that is in them, links as links")
	f.BoolVarP(&options.preserve, "preserve", "p", false, "keep times of change and all permission bits, of what is there too")
	f.BoolVarP(&options.quiet, "quiet", "q", false, "no progress on the terminal")
	f.BoolVar(&options.json, "json", false, "print what was copied as JSON")
	return command
}

type copyOptions struct {
	recursive, preserve, quiet, json bool
}

// copied is what cp --json prints.
type copied struct {
	Files   int64   `json:"files"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func cp(ctx context.Context, c *connection, out io.Writer, args []string, options copyOptions) error {
	s := newStage(c)
	defer s.end()
	var progress transfer.Progress
	began := time.Now()
	_, err := untilSignal(ctx, s, func(ctx context.Context) (struct{}, error) {
		environments := &openEnvironments{connection: c, status: s.notice.status}
		defer environments.close()
		if !options.quiet && term.IsTerminal(int(os.Stderr.Fd())) {
			s.notice.onConsole(sayBesideProgress, "")
			stop := showProgress(&progress)
			defer stop()
		}
		return struct{}{}, copyAll(ctx, environments, args, options, &progress)
	})
	if err != nil {
		return err
	}
	if options.json {
		files, bytes := progress.Done()
		return json.NewEncoder(out).Encode(copied{files, bytes, time.Since(began).Seconds()})
	}
	return nil
}

// copyAll copies each source to the target, which is the last of args.
func copyAll(ctx context.Context, environments *openEnvironments, args []string, options copyOptions, progress *transfer.Progress) error {
	last := len(args) - 1
	target, err := environments.resolve(ctx, args[last])
	if err != nil {
		return err
	}
	info, err := target.e.Stat(ctx, target.path, true)
	switch {
	case err == nil && info.Mode.IsDir():
		target.isDirectory = true
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%q: %w", args[last], target.e.Explain(err))
	case err == nil && (target.asDirectory() || last > 1):
		return fmt.Errorf("%w: %q is to receive files", env.ErrNotDirectory, args[last])
	case err != nil && (target.asDirectory() && !options.recursive || last > 1):
		return fmt.Errorf("%q is to receive files: %w", args[last], target.e.Explain(err))
	case err != nil: // a directory that is mistyped is not to be made
		if parent, ok := target.path.Parent(); ok {
			if _, err := target.e.Stat(ctx, parent, true); err != nil {
				return fmt.Errorf("%q: %w", args[last], target.e.Explain(err))
			}
		}
	}
	var failures []error
	for _, text := range args[:last] {
		source, err := environments.resolve(ctx, text)
		if err == nil {
			err = copyOne(ctx, source, target, options, progress)
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("%q: %w", text, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failures...)
}

func copyOne(ctx context.Context, source, target resolved, options copyOptions, progress *transfer.Progress) error {
	if source.asDirectory() { // a link there is meant as what it leads to
		real, err := source.e.Canonicalize(ctx, source.path)
		if err != nil {
			return source.e.Explain(err)
		}
		info, err := source.e.Stat(ctx, real, true)
		if err == nil && !info.Mode.IsDir() {
			err = fmt.Errorf("%w: %q", env.ErrNotDirectory, real.Display())
		}
		if err != nil {
			return source.e.Explain(err)
		}
		source.path = real
	}
	to := target.path
	if target.isDirectory && !source.asContents() {
		name, ok := source.path.Base()
		if !ok {
			return fmt.Errorf("%w: a file system's root has no name; with /. behind it, what is in it is copied", env.ErrInvalid)
		}
		var err error
		if to, err = target.path.JoinName(name); err != nil {
			return err
		}
	}
	return transfer.Copy(ctx, transfer.End{Files: source.e, Path: source.path}, transfer.End{Files: target.e, Path: to}, transfer.Options{
		Recursive: options.recursive,
		Preserve:  options.preserve,
		Progress:  progress,
	})
}

// openEnvironments are the environments that a command line names, each opened once.
type openEnvironments struct {
	connection *connection
	status     func(error)
	open       map[string]*registry.Environment
}

// resolved is a location in an environment that is open.
type resolved struct {
	location
	e           *registry.Environment
	path        pathuri.URI
	isDirectory bool
}

func (o *openEnvironments) resolve(ctx context.Context, text string) (r resolved, err error) {
	r.location = parseLocation(text, o.connection.name)
	if r.e, err = o.get(ctx, r.environment); err != nil {
		return r, err
	}
	if r.path, err = r.uri(ctx, r.e); err != nil {
		return r, fmt.Errorf("%q: %w", text, err)
	}
	return r, nil
}

func (o *openEnvironments) get(ctx context.Context, name string) (*registry.Environment, error) {
	if e := o.open[name]; e != nil {
		return e, nil
	}
	c := *o.connection
	if name != c.name { // the flags are for the one that -e names
		c.name, c.access = name, listen.DialOptions{}
	}
	e, err := c.open(ctx, opening{status: o.status})
	if err != nil {
		return nil, fmt.Errorf("environment %q: %w", name, err)
	}
	if err := e.Ready(ctx); err != nil {
		e.Close() //nolint:errcheck // returns nil
		return nil, fmt.Errorf("environment %q: %w", name, e.Explain(err))
	}
	if o.open == nil {
		o.open = make(map[string]*registry.Environment)
	}
	o.open[name] = e
	return e, nil
}

// close ends the sessions, so that nothing that was begun stays behind.
func (o *openEnvironments) close() {
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeWithin)
	defer cancel()
	for _, e := range o.open {
		e.Goodbye(ctx, false) //nolint:errcheck // the lease ends what we could not
		e.Close()             //nolint:errcheck // returns nil
	}
}
