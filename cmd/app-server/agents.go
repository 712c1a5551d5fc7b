package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"waldo/env"
	"waldo/env/agentsmd"
	"waldo/pathuri"
	"waldo/wire/listen"
)

func agentsCommand(c *connection) *cobra.Command {
	var environments []string
	var directory string
	var asJSON bool
	command := &cobra.Command{
		Use:   "agents [flags]",
		Short: "Show which AGENTS.md files count for a directory",
		Long: `Show which AGENTS.md files count for a directory of an environment, in the order in which they are told to a model:
yours in $WALDO_HOME first, then those of each environment from the project's root down to the directory.

The root is the nearest directory upwards that holds .git; without one only the directory itself counts. In each
directory AGENTS.override.md takes the place of AGENTS.md. An environment's files have 32 KiB together; USED says how
much of a file's SIZE that leaves. What is left out, and what cannot be read, is told on standard error.`,
		Example: `  app-server agents                                    # here
  app-server agents -e devbox -C src/project
  app-server agents -e devbox -e winbox --json | jq -r '.[].uri'`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return agents(command.Context(), c, command.OutOrStdout(), environments, directory, asJSON)
		},
	}
	// In place of the flag that all commands have: here there may be several.
	command.Flags().StringArrayVarP(&environments, "environment", "e", nil, "environment, as everywhere; may be given more than once")
	command.Flags().StringVarP(&directory, "directory", "C", "", "directory there (default: the working directory here, the home elsewhere)")
	command.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	if err := command.RegisterFlagCompletionFunc("environment", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return c.completions(true), cobra.ShellCompDirectiveNoFileComp
	}); err != nil {
		panic(err) // the flag is there
	}
	return command
}

// agentsFile is a file that counts, as agents --json prints it.
type agentsFile struct {
	Environment string      `json:"environment,omitempty"` // none: the user's own, on this host
	URI         pathuri.URI `json:"uri"`
	Path        string      `json:"path"`
	Size        int64       `json:"sizeBytes"`
	Used        int64       `json:"usedBytes"`
}

// agents prints what counts in the environments that answer, and fails if one does not.
func agents(ctx context.Context, c *connection, out io.Writer, names []string, directory string, asJSON bool) error {
	if len(names) == 0 {
		names = []string{""}
	}
	if len(names) > 1 && c.access != (listen.DialOptions{}) {
		if urls := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isURL(name) }); len(urls) > 1 {
			return fmt.Errorf("of %d URLs, which one are --token-file and the like for? Name them with %s env add", len(urls), programName)
		}
	}
	files := []agentsFile{}
	own, err := ownAgents()
	failed := []error{err}
	files = append(files, own...)
	for _, name := range names {
		one := *c
		one.name = name
		if len(names) > 1 && !isURL(name) { // the flags are for the URL, and a token is no other server's business
			one.access = listen.DialOptions{}
		}
		project, err := projectAgents(ctx, &one, directory)
		failed = append(failed, err)
		for _, doc := range project.Docs {
			files = append(files, agentsFile{project.Environment, doc.Path, doc.Path.Display(), doc.Size, doc.Used})
		}
		for _, warning := range project.Warnings {
			say("%v", warning)
		}
	}
	switch {
	case asJSON:
		err = printIndented(out, files)
	case len(files) > 0 || errors.Join(failed...) == nil: // a heading above nothing says that there is nothing
		err = printAgents(newStyle(out), files)
	}
	return errors.Join(append(failed, err)...)
}

func printAgents(s style, files []agentsFile) error {
	rows := make([][]string, len(files))
	for i, f := range files {
		environment := "-"
		if f.Environment != "" {
			environment = escapeControls(f.Environment)
		}
		rows[i] = []string{environment, strconv.FormatInt(f.Size, 10), strconv.FormatInt(f.Used, 10), escapeControls(f.Path)}
	}
	return s.table([]string{"ENVIRONMENT", "SIZE", "USED", "FILE"}, rows, func(row, column int) string {
		if column == 2 && files[row].Used < files[row].Size {
			return red
		}
		return ""
	})
}

// ownAgents is the user's own file, which belongs to no environment.
func ownAgents() ([]agentsFile, error) {
	home, err := waldoHome()
	if err != nil {
		return nil, err
	}
	text, name, err := agentsmd.Home(os.DirFS(home))
	if text == "" || err != nil {
		return nil, err
	}
	uri, err := pathuri.FromNative(filepath.Join(home, name), nativeConvention())
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(home, name))
	if err != nil {
		return nil, fmt.Errorf("instructions of the user: %w", err)
	}
	return []agentsFile{{URI: uri, Path: uri.Display(), Size: info.Size(), Used: info.Size()}}, nil
}

// isURL tells whether an environment is named by how to reach it.
func isURL(name string) bool { return strings.Contains(name, "://") }

// projectAgents looks in one environment.
func projectAgents(ctx context.Context, c *connection, directory string) (agentsmd.Project, error) {
	e, err := c.open(ctx, opening{})
	if err != nil {
		return agentsmd.Project{}, err
	}
	defer e.Close()
	where, err := startDirectory(ctx, e, directory)
	if err != nil {
		return agentsmd.Project{}, err
	}
	if where.IsZero() {
		info, err := e.Describe(ctx)
		if err != nil {
			return agentsmd.Project{}, e.Explain(err)
		}
		where = info.Directory
	}
	project, err := discoverAgents(ctx, e, e.Spec().String(), where)
	if err != nil {
		return agentsmd.Project{}, e.Explain(err)
	}
	return project, nil
}

// discoverAgents is discovery for a person, who is to be told of a directory that is not there. That is asked at the
// same time as the rest.
func discoverAgents(ctx context.Context, files env.Files, environment string, where pathuri.URI) (agentsmd.Project, error) {
	there := make(chan error, 1)
	go func() {
		info, err := files.Stat(ctx, where, true)
		if err == nil && !info.Mode.IsDir() {
			err = fmt.Errorf("%q: %w", where.Display(), env.ErrNotDirectory)
		}
		there <- err
	}()
	project, err := agentsmd.Discover(ctx, files, agentsmd.Options{
		Environment: environment, Directory: where, RootMarkers: []string{agentsmd.DefaultRootMarker}, MaxBytes: agentsmd.DefaultMaxBytes,
	})
	if missing := <-there; missing != nil && err == nil {
		err = fmt.Errorf("directory: %w", missing)
	}
	return project, err
}
