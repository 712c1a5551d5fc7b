package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"waldo/env"
	"waldo/env/registry"
	"waldo/pathuri"
)

// nativeConvention is how paths are written here.
func nativeConvention() pathuri.Convention {
	if runtime.GOOS == "windows" {
		return pathuri.Windows
	}
	return pathuri.Posix
}

// startDirectory is where a command starts. text is what -C says, in the words of the environment's machine: it
// is relative to our own working directory if that machine is this one, else to the user's home there. Without
// text it is that directory itself; the zero URI leaves it to the server, whose default is the home.
func startDirectory(ctx context.Context, e *registry.Environment, text string) (pathuri.URI, error) {
	if e.Spec().IsLocal() {
		here, err := os.Getwd()
		if err != nil {
			return pathuri.URI{}, fmt.Errorf("working directory: %w; give one with -C", err)
		}
		base, err := pathuri.FromNative(here, nativeConvention())
		if err != nil || text == "" {
			return base, err
		}
		if !strings.HasPrefix(text, "~") {
			return join(base, text)
		}
	}
	if text == "" {
		return pathuri.URI{}, nil
	}
	info, err := e.Describe(ctx)
	if err != nil {
		return pathuri.URI{}, e.Explain(err)
	}
	return inHome(info, text)
}

// inHome reads a directory of the machine that info describes. ~ is the home there, never the one here.
func inHome(info env.Info, text string) (pathuri.URI, error) {
	if !strings.HasPrefix(text, "~") {
		if info.Home.IsZero() {
			return pathuri.FromNative(text, info.Paths)
		}
		return join(info.Home, text)
	}
	separators := "/"
	if info.Paths == pathuri.Windows {
		separators = `/\`
	}
	rest := text[1:]
	if rest != "" && !strings.ContainsRune(separators, rune(rest[0])) {
		return pathuri.URI{}, fmt.Errorf("directory %q: the homes of other users are not looked up; give the path, or ./%s for a directory of that name", text, text)
	}
	if info.Home.IsZero() {
		return pathuri.URI{}, fmt.Errorf("directory %q: that machine does not tell a home; give an absolute path", text)
	}
	return join(info.Home, strings.TrimLeft(rest, separators))
}

func join(base pathuri.URI, text string) (pathuri.URI, error) {
	u, err := base.Join(text)
	if err != nil {
		return u, fmt.Errorf("directory: %w", err)
	}
	return u, nil
}

// blameDirectory tells whether a start failed for want of its directory, which is no fault of the program's.
func blameDirectory(ctx context.Context, e *registry.Environment, directory pathuri.URI, err error) bool {
	if !errors.Is(err, env.ErrStart) || directory.IsZero() {
		return false
	}
	info, statErr := e.Stat(ctx, directory, true)
	return errors.Is(statErr, fs.ErrNotExist) || statErr == nil && !info.Mode.IsDir()
}
