package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"waldo/env"
	"waldo/env/host"
)

// machine starts commands as clients would have them started, with the code that does it for them.
func (x *examination) machine(ctx context.Context) {
	const what = "machine"
	machine, err := host.New(host.Options{Version: version, Environ: os.Environ(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		x.fail(what, "see to it that the user has a home, or that there is a directory for temporary files", "%v", err)
		return
	}
	defer machine.Close() //nolint:errcheck // what it started has ended
	info, err := machine.Describe(ctx)
	if err != nil {
		x.fail(what, "try again", "%v", err)
		return
	}
	x.ok(what, "%s/%s, %s, host %q, exec-server %s", info.OS, info.Arch, kernel(), info.Hostname, version)
	if administrator() {
		x.warn("user", "run it as a user that may do only what you want done, or in a container", "%q: commands have every right on this machine", info.User)
	} else {
		x.ok("user", "%q", info.User)
	}
	x.shells(info.Shell)

	// From here on commands run.
	began := time.Now()
	exit, err := try(ctx, machine, env.Command{Argv: trueCommand(info.Shell)})
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		x.fail("commands", "serve a Linux machine for now", "they cannot be started on this system yet")
		return
	case err != nil:
		x.fail("commands", "see to it that the login shell of "+info.User+" runs (chsh)", "%v", err)
		return
	case exit.Code != 0:
		x.fail("commands", "see to it that the login shell of "+info.User+" runs (chsh)", "%s ended with %s", info.Shell, ended(exit))
		return
	}
	x.ok("commands", "%s started and ended within %v", info.Shell, time.Since(began).Round(10*time.Microsecond))

	if slices.Contains(info.Abilities, env.AbilityTerminal) {
		exit, err := try(ctx, machine, env.Command{Argv: terminalCommand, Terminal: &env.Size{Rows: 24, Columns: 80}})
		const remedy = "see to it that /dev/ptmx and /dev/pts are there (in a container: mount devpts) and not used up (kernel.pty.max)"
		switch {
		case err != nil:
			x.fail("terminals", remedy, "%v", err)
		case exit.Code != 0:
			x.fail("terminals", remedy, "a command on one ended with %s", ended(exit))
		default:
			x.ok("terminals", "a command has run on one")
		}
	}
	x.limits(ctx, machine, info)
}

// limits tries a command with bounds on its memory and its processes.
func (x *examination) limits(ctx context.Context, machine env.Env, info env.Info) {
	const what = "limits"
	if limitsRemedy == "" {
		return // this system has none
	}
	exit, err := try(ctx, machine, env.Command{Argv: trueCommand(info.Shell), Limits: env.Limits{Memory: 256 << 20, Processes: 64}})
	switch {
	case err != nil:
		x.warn(what, limitsRemedy, "commands with a limit on memory or processes are refused: %v", err)
	case exit.Code != 0:
		x.warn(what, limitsRemedy, "a command within 256 MiB and 64 processes ended with %s", ended(exit))
	default:
		x.ok(what, "a command has run within bounds on its memory and processes")
	}
}

// try runs a command to its end.
func try(ctx context.Context, machine env.Env, command env.Command) (env.Exit, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeWithin, fmt.Errorf("%q has not ended within %v", command.Argv, probeWithin))
	defer cancel()
	p, err := machine.Start(ctx, command)
	if err != nil {
		return env.Exit{}, err
	}
	defer p.Close() //nolint:errcheck // returns nil
	for _, err := range p.Output(ctx) {
		if err != nil {
			return env.Exit{}, err
		}
	}
	select {
	case <-p.Exited():
		return p.Exit()
	case <-ctx.Done():
		return env.Exit{}, context.Cause(ctx)
	}
}

// ended says how a process has ended.
func ended(e env.Exit) string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Signal != "":
		return "signal " + string(e.Signal)
	}
	return fmt.Sprintf("code %d", e.Code)
}

// shells tells the login shell and what others there are.
func (x *examination) shells(login string) {
	const what = "shells"
	var found []string
	for _, name := range shellNames {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}
	if len(found) == 0 {
		found = []string{"none"}
	}
	if info, err := os.Stat(login); err != nil || info.IsDir() {
		x.fail(what, "give the user another login shell (chsh), or install that one; of a container, take an image that has one", "the login shell %q is not there; found on PATH: %s", login, strings.Join(found, " "))
		return
	}
	x.ok(what, "the login shell is %s; found on PATH: %s", login, strings.Join(found, " "))
}
