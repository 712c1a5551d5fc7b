package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	var c connection
	root := &cobra.Command{
		Use:   programName,
		Short: "Drive environments: this machine, and others where an exec-server runs",
		Long: `Drive environments: this machine, and others where an exec-server runs.

An environment is named with -e: "local" is this machine, by way of the exec-server beside this program or on PATH;
a URL (tcp://, tls://, unix://, ws://…/mux, wss://…/mux) is where an exec-server listens; ssh://[USER@]BOX runs one
there over your own ssh, and with --install brings it along; other names are those that "app-server env" has
configured. Without -e it is the default of the configuration, else "local".`,
		Example: `  app-server run -- make test                          # here
  app-server run -e tls://box:7777 --tls-pin sha256:… --token-file t -- make test
  app-server shell -e tcp://127.0.0.1:7777             # a terminal there
  app-server ps -e unix:///run/user/1000/box.sock      # what runs there
  app-server run -e ssh://me@web --install -- uptime   # over ssh
  app-server env add web ssh://me@web                  # from now on: -e web`,
		Args:          noArguments,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.Version = version
	root.SetVersionTemplate(programName + " {{.Version}}\n")
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %s --help", err, command.CommandPath())
	})
	c.addFlags(root.PersistentFlags())
	complete := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return c.completions(true), cobra.ShellCompDirectiveNoFileComp
	}
	if err := root.RegisterFlagCompletionFunc("environment", complete); err != nil {
		panic(err) // the flag is there
	}
	root.AddCommand(runCommand(&c), shellCommand(&c), attachCommand(&c), psCommand(&c), killCommand(&c),
		forwardCommand(&c), cpCommand(&c), agentsCommand(&c), environmentsCommand(&c), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(command.OutOrStdout(), "%s %s\n", programName, version)
			return err
		},
	}
}

// noArguments refuses arguments, and says what may have been meant.
func noArguments(command *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case command.HasParent():
		return fmt.Errorf("%s takes no argument such as %q; see %s --help", command.Name(), args[0], command.CommandPath())
	}
	meant := ""
	command.SuggestionsMinimumDistance = 2
	if names := command.SuggestionsFor(args[0]); len(names) > 0 {
		meant = " (did you mean " + strings.Join(names, " or ") + "?)"
	}
	return fmt.Errorf("unknown command %q%s; see %s --help", args[0], meant, command.CommandPath())
}
