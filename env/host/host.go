// Package host is this machine as an [env.Env].
package host

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"

	"waldo/env"
	"waldo/env/host/files"
	"waldo/env/host/proc"
	"waldo/env/host/watch"
)

// Options says how the machine is offered.
type Options struct {
	// Version is the server's, told by Describe.
	Version string
	// Directory is where a command starts that names no directory, natively; the user's home.
	Directory string
	// Environ is what a command's environment is made from; what the server was started with. Variables named
	// WALDO_… are never handed on.
	Environ []string
	// Processes bounds the processes. Its Environment and Directory are filled in here.
	Processes proc.Options
	// Logger is told what nobody else is; slog.Default().
	Logger *slog.Logger
}

// Host is this machine. It implements env.Env.
type Host struct {
	*proc.Table
	fileSystem
	*watch.Watcher
	info    env.Info
	closing context.Context
	close   context.CancelFunc
}

var _ env.Env = (*Host)(nil)

// New returns this machine. Close ends all its processes.
func New(o Options) (*Host, error) {
	info, directory, err := describe(o)
	if err != nil {
		return nil, err
	}
	p := o.Processes
	p.Directory = directory
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	p.Environment = childEnvironment(o.Environ)
	p.Logger = cmp.Or(p.Logger, o.Logger, slog.Default())
	h := &Host{Table: proc.New(p), fileSystem: fileSystem{files.New()}, Watcher: watch.New(watch.Options{}), info: info}
	h.info.Abilities = append(h.Abilities(), env.AbilityDial, env.AbilityFiles, env.AbilityWatch)
	h.closing, h.close = context.WithCancel(context.Background())
	return h, nil
}

// Describe implements env.Describer.
func (h *Host) Describe(ctx context.Context) (env.Info, error) {
	if err := context.Cause(ctx); err != nil {
		return env.Info{}, err
	}
	info := h.info
	info.Abilities = slices.Clone(info.Abilities)
	info.Shells = slices.Clone(info.Shells)
	return info, nil
}

// Close ends all processes, politely for as long as the grace lasts, the watches, and the dials under way.
func (h *Host) Close() error { return h.Shutdown(context.Background()) }

// Shutdown is Close; when ctx ends, the processes that are still there are killed.
func (h *Host) Shutdown(ctx context.Context) error {
	h.close()
	return errors.Join(h.Watcher.Close(), h.Table.Close(ctx))
}

// defaultPath is for a server that was started without one.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// childEnvironment is what commands get of the server's own environment.
func childEnvironment(environ []string) []string {
	var result []string
	hasPath := false
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" || hasReservedName(name) {
			continue
		}
		if isPath(name) {
			if value == "" {
				continue
			}
			hasPath = true
		}
		result = append(result, entry)
	}
	if !hasPath && conventionPath != "" {
		result = append(result, "PATH="+conventionPath)
	}
	return result
}

var errClosing = errors.New("the server is shutting down")
