package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"waldo/env/registry"
	"waldo/pathuri"
)

// location is a path in an environment, as a command line names it: ID:PATH, :PATH in the one of -e, or PATH here.
type location struct {
	text        string // as given
	environment string
	path        string
}

// environmentPrefix is an id before a colon. A single letter is a drive.
var environmentPrefix = regexp.MustCompile(`^([A-Za-z0-9_-]{2,}):`)

// parseLocation reads a location; given is what -e names.
func parseLocation(text, given string) location {
	if path, ok := strings.CutPrefix(text, ":"); ok {
		return location{text, given, path}
	}
	if prefix := environmentPrefix.FindString(text); prefix != "" {
		return location{text, strings.TrimSuffix(prefix, ":"), text[len(prefix):]}
	}
	return location{text, registry.Local, text}
}

// uri is the path as its machine resolves it: from the working directory here, from the home elsewhere.
func (l location) uri(ctx context.Context, e *registry.Environment) (pathuri.URI, error) {
	if l.environment == registry.Local && !strings.HasPrefix(l.path, "~") {
		here, err := os.Getwd()
		if err != nil {
			return pathuri.URI{}, fmt.Errorf("working directory: %w; give an absolute path", err)
		}
		base, err := pathuri.FromNative(here, nativeConvention())
		if err != nil {
			return base, err
		}
		return base.Join(l.path)
	}
	info, err := e.Describe(ctx)
	if err != nil {
		return pathuri.URI{}, e.Explain(err)
	}
	return inHome(info, l.path)
}

// asContents tells whether the path names what is in a directory (SRC/.), and asDirectory whether it can only be one.
func (l location) asContents() bool {
	return l.path == "." || strings.HasSuffix(l.path, "/.") || strings.HasSuffix(l.path, `\.`)
}

func (l location) asDirectory() bool {
	return l.asContents() || strings.HasSuffix(l.path, "/") || strings.HasSuffix(l.path, `\`) && nativeConvention() == pathuri.Windows
}
