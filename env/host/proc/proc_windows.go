package proc

import (
	"context"
	"errors"
	"fmt"

	"waldo/env"
	"waldo/env/host/output"
	"waldo/env/host/tree"
	"waldo/pathuri"
)

const nativeConvention = pathuri.Windows

type launch struct {
	command *env.Command
	environ []string
	dir     string
	log     *output.Log
	cgroups *tree.Cgroups
}

type child struct {
	pid     int
	streams []*output.Stream
	input   *input
	tree    *tree.Tree
}

func start(l launch) (*child, error) {
	return nil, fmt.Errorf("start %q: processes on this machine: %w", l.command.Argv[0], errors.ErrUnsupported)
}

func (*child) wait() exitStatus      { return exitStatus{} }
func (*child) left()                 {}
func (*child) close()                {}
func (*child) resize(env.Size) error { return errors.ErrUnsupported }

type input struct{}

func (*input) offset() int64                { return 0 }
func (*input) settle(context.Context) error { return nil }
func (*input) write(context.Context, context.Context, []byte) (int, error) {
	return 0, errors.ErrUnsupported
}
func (*input) end(context.Context, context.Context) error { return errors.ErrUnsupported }

func (*process) signal(env.Signal) error { return errors.ErrUnsupported }

func (*Table) machineAbilities() []string { return nil }

func nativeDirectory(u pathuri.URI, fallback string) (string, error) {
	if u.IsZero() {
		return fallback, nil
	}
	dir, err := u.NativeFor(nativeConvention)
	if err != nil {
		return "", fmt.Errorf("%w: working directory: %w", env.ErrInvalid, err)
	}
	return dir, nil
}
