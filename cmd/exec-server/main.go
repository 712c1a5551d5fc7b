// Command exec-server offers this machine's processes, terminals and files to clients elsewhere.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"waldo/env/host/tree"
)

// version is that of the next release; the linker sets it for a release itself (-X main.version=…).
var version = "0.1.0-dev"

const programName = "exec-server"

func main() {
	err := prepare()
	if err == nil {
		err = command().Execute()
	}
	var failed *exitError
	switch {
	case errors.As(err, &failed):
		os.Exit(failed.code)
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", programName, err)
		os.Exit(1)
	}
}

// prepare keeps from children what this process was started with: descriptors, ignored and blocked signals.
func prepare() error {
	return errors.Join(tree.CloseInherited(), tree.DefaultSignals())
}

// exitError ends the program with a code and without a message: it has been said already.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

func command() *cobra.Command {
	root := serveCommand()
	root.Version = version
	root.SetVersionTemplate(programName + " {{.Version}}\n")
	root.AddCommand(daemonCommand(), doctorCommand(), &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintf(c.OutOrStdout(), "%s %s\n", programName, version)
		},
	})
	return root
}
