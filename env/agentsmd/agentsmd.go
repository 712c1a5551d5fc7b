// Package agentsmd finds the AGENTS.md files that count for a directory of an environment, and makes of them the text
// that a model is told.
//
// The search follows the path as it is spelled, so it never leaves the tree that the user named, and it is made with
// the environment's own files and path rules. However deep the directory lies it costs two round trips: all that may
// matter is asked for at once, and then all that does is read at once.
package agentsmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"slices"
	"strings"
	"sync"

	"waldo/env"
	"waldo/pathuri"
)

// The names that are looked for in each directory, in this order.
const (
	OverrideName = "AGENTS.override.md"
	Name         = "AGENTS.md"
)

// What is usual for Options.
const (
	DefaultMaxBytes   = 32 << 10
	DefaultRootMarker = ".git"
)

// Options say what is searched.
type Options struct {
	// Environment is what people and the model call it.
	Environment string
	// Directory is where work is done there, the last directory to be searched.
	Directory pathuri.URI
	// RootMarkers are names of which one, as a file or a directory, marks the first directory to be searched. If
	// there are none, or none is found, only Directory is.
	RootMarkers []string
	// FallbackNames are taken in directories that have neither [OverrideName] nor [Name], in this order.
	FallbackNames []string
	// MaxBytes bounds what is taken of all files together; 0: nothing is looked for.
	MaxBytes int64
}

// Project is what counts in one environment.
type Project struct {
	Environment string
	Directory   pathuri.URI
	// Docs are the files that say something, the project's root first.
	Docs []Doc
	// Warnings tell what was left out.
	Warnings []Warning
}

// Doc is one file.
type Doc struct {
	Path pathuri.URI
	// Text is what it says; bytes that are not UTF-8 are replaced.
	Text string
	// Size is how many bytes the file has, and Used how many of them were taken.
	Size, Used int64
}

// Warning tells that a file does not count as it should.
type Warning struct {
	Environment string
	Path        pathuri.URI
	// Err is why the path could not be looked at or read. If it is nil the file was too large:
	Err error
	// Size is how many bytes it has, Used how many of them were taken, and MaxBytes how many all may have.
	Size, Used, MaxBytes int64
}

// String is the warning for people.
func (w Warning) String() string {
	file := fmt.Sprintf("%q in environment %q", w.Path.Display(), w.Environment)
	switch {
	case w.Err != nil:
		return fmt.Sprintf("instructions: %s cannot be used: %v", file, w.Err)
	case w.Used == 0:
		return fmt.Sprintf("instructions: %s is left out, all %d bytes of it: at most %d count in an environment", file, w.Size, w.MaxBytes)
	}
	return fmt.Sprintf("instructions: of %s only %d of %d bytes are used, %d are left out: at most %d count in an environment",
		file, w.Used, w.Size, w.Size-w.Used, w.MaxBytes)
}

// Discover finds the files that count. It fails if the environment does not answer; what is wrong with one file is a
// warning.
func Discover(ctx context.Context, files env.Files, o Options) (Project, error) {
	p := Project{Environment: o.Environment, Directory: o.Directory}
	switch {
	case o.MaxBytes == 0:
		return p, nil
	case o.MaxBytes < 0 || o.MaxBytes == math.MaxInt64:
		return p, fmt.Errorf("%w: instructions of at most %d bytes", env.ErrInvalid, o.MaxBytes)
	case o.Directory.IsZero():
		return p, fmt.Errorf("%w: instructions of environment %q: no directory to look in", env.ErrInvalid, o.Environment)
	}
	levels, err := look(ctx, files, o)
	if err != nil {
		return p, fmt.Errorf("instructions of environment %q: %w", o.Environment, err)
	}
	var found []*candidate
	for _, l := range levels[rootOf(levels):] {
		for _, c := range slices.Concat(l.markers, l.files) {
			if c.err != nil && !missing(c.err) {
				p.Warnings = append(p.Warnings, Warning{Environment: o.Environment, Path: c.path, Err: c.err})
			}
		}
		if i := slices.IndexFunc(l.files, func(c *candidate) bool { return c.err == nil && c.info.Mode.IsRegular() }); i >= 0 {
			found = append(found, l.files[i])
		}
	}
	together(found, func(c *candidate) { c.data, c.info, c.err = head(ctx, files, c.path, o.MaxBytes+1) })
	if err := gone(ctx, found); err != nil {
		return p, fmt.Errorf("instructions of environment %q: %w", o.Environment, err)
	}
	p.take(found, o.MaxBytes)
	return p, nil
}

// level is one directory on the way, and what was asked about it.
type level struct {
	markers, files []*candidate
}

// candidate is a path that may matter.
type candidate struct {
	path pathuri.URI
	info env.FileInfo
	data []byte
	err  error
}

// look asks about all that may matter, the root first.
func look(ctx context.Context, files env.Files, o Options) ([]level, error) {
	names := []string{OverrideName, Name}
	for _, name := range o.FallbackNames {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var levels []level
	var all []*candidate
	add := func(dir pathuri.URI, names []string) (list []*candidate, err error) {
		for _, name := range names {
			path, err := dir.JoinName(name)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", env.ErrInvalid, err)
			}
			list = append(list, &candidate{path: path})
		}
		all = append(all, list...)
		return list, nil
	}
	for dir := range o.Directory.Ancestors() {
		var l level
		var err error
		if l.markers, err = add(dir, o.RootMarkers); err == nil {
			l.files, err = add(dir, names)
		}
		if err != nil {
			return nil, err
		}
		levels = append(levels, l)
		if len(o.RootMarkers) == 0 {
			break
		}
	}
	slices.Reverse(levels)
	together(all, func(c *candidate) { c.info, c.err = files.Stat(ctx, c.path, true) })
	if err := gone(ctx, all); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(c *candidate) bool { return c.err == nil || missing(c.err) }) {
		return nil, all[0].err // it is not about the files
	}
	return levels, nil
}

// rootOf is the index of the directory to begin with.
func rootOf(levels []level) int {
	for i := len(levels) - 1; i >= 0; i-- {
		if slices.ContainsFunc(levels[i].markers, func(c *candidate) bool { return c.err == nil }) {
			return i
		}
	}
	return len(levels) - 1
}

// missing tells whether err says that there is no such file.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, env.ErrNotDirectory)
}

// gone tells why the environment as a whole can no longer be asked, if so.
func gone(ctx context.Context, all []*candidate) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for _, c := range all {
		for _, reason := range []error{env.ErrFenced, env.ErrRestarted, env.ErrExpired, net.ErrClosed} {
			if errors.Is(c.err, reason) {
				return c.err
			}
		}
	}
	return nil
}

// atOnce bounds what is asked for at a time. It is more than a deep tree with many names comes to, so that it costs no
// round trip; servers take some thousands.
const atOnce = 1024

// together calls each for all candidates, at the same time.
func together(all []*candidate, each func(c *candidate)) {
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for _, c := range all {
		slots <- struct{}{}
		group.Go(func() {
			each(c)
			<-slots
		})
	}
	group.Wait()
}

// head reads at most n bytes of a file, whatever its size.
func head(ctx context.Context, files env.Files, path pathuri.URI, n int64) (data []byte, info env.FileInfo, err error) {
	r, err := files.Read(ctx, path, env.ReadOptions{Length: n})
	if err != nil {
		return nil, info, err
	}
	defer r.Close()
	for chunk, err := range r.Chunks() {
		if err != nil {
			return nil, info, err
		}
		data = append(data, chunk.Data[:min(int64(len(chunk.Data)), n-int64(len(data)))]...)
	}
	return data, r.Info(), nil
}

// take makes documents of what was found, in order, until the budget is used up.
func (p *Project) take(found []*candidate, budget int64) {
	left := budget
	for _, c := range found {
		switch {
		case c.err != nil && (missing(c.err) || errors.Is(c.err, env.ErrNotRegular) || errors.Is(c.err, env.ErrIsDirectory)):
			continue // it has gone meanwhile
		case c.err != nil:
			p.Warnings = append(p.Warnings, Warning{Environment: p.Environment, Path: c.path, Err: c.err})
			continue
		}
		size := max(c.info.Size, int64(len(c.data)))
		part := c.data
		if blank(part) {
			if part = nil; int64(len(c.data)) <= budget {
				continue
			}
		}
		if int64(len(part)) > left {
			part = whole(part[:left])
			left = 0 // a part of a file is the end: what follows it would seem to belong to it
		} else {
			left -= int64(len(part))
		}
		used := int64(len(part))
		if used < int64(len(c.data)) {
			p.Warnings = append(p.Warnings, Warning{Environment: p.Environment, Path: c.path, Size: size, Used: used, MaxBytes: budget})
		}
		if !blank(part) {
			p.Docs = append(p.Docs, Doc{Path: c.path, Text: decode(part), Size: size, Used: used})
		}
	}
}

// blank tells whether a text says nothing.
func blank(text []byte) bool { return strings.TrimSpace(string(text)) == "" }
