package codex

import (
	"context"
	"io/fs"
	"slices"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

// The most that a walk may ask for, and what its answer may hold.
const (
	maxWalkDepth       = 64
	maxWalkDirectories = 10_000
	maxWalkEntries     = 50_000
	maxWalkAnswer      = 4 << 20
	walkItemCost       = 64 // beside the text
)

type walkParams struct {
	Path    pathURI         `json:"path"`
	Options walkOptions     `json:"options"`
	Sandbox *sandboxContext `json:"sandbox"`
}

type walkOptions struct {
	MaxDepth                uint64 `json:"maxDepth"`
	MaxDirectories          uint64 `json:"maxDirectories"`
	MaxEntries              uint64 `json:"maxEntries"`
	FollowDirectorySymlinks bool   `json:"followDirectorySymlinks"`
	PruneHiddenDirectories  bool   `json:"pruneHiddenDirectories,omitempty"`
}

type walkEntry struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}

type walkError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

type walkResult struct {
	Entries   []walkEntry `json:"entries"`
	Errors    []walkError `json:"errors"`
	Truncated bool        `json:"truncated"`
}

// walker walks a tree level by level, as Codex does. The environment's own walk goes into the depth, and cannot be used.
type walker struct {
	files     env.Env
	options   walkOptions
	result    walkResult
	seen      map[pathuri.URI]bool // directories that were entered, by their canonical path
	looked    uint64               // at entries
	entered   uint64
	size      int
	truncated bool
}

type walkDirectory struct {
	path  pathuri.URI
	depth uint64
}

func walk(ctx context.Context, c *connection, params *walkParams) (any, error) {
	o := params.Options
	switch {
	case o.MaxDirectories == 0 || o.MaxEntries == 0:
		return nil, invalidRequest("filesystem walk limits must be greater than zero")
	case o.MaxDepth > maxWalkDepth || o.MaxDirectories > maxWalkDirectories || o.MaxEntries > maxWalkEntries:
		return nil, invalidRequest("filesystem walk limits exceed maximums: depth=%d, directories=%d, entries=%d", maxWalkDepth, maxWalkDirectories, maxWalkEntries)
	}
	if err := c.reading(params.Sandbox, params.Path); err != nil {
		return nil, err
	}
	w := &walker{
		files: c.session.env, options: o, seen: make(map[pathuri.URI]bool),
		result: walkResult{Entries: []walkEntry{}, Errors: []walkError{}},
	}
	info, err := w.files.Stat(ctx, params.Path.URI, true)
	if err != nil {
		return nil, err
	}
	if !info.Mode.IsDir() {
		return w.result, nil
	}
	if !o.FollowDirectorySymlinks {
		own, err := w.files.Stat(ctx, params.Path.URI, false)
		if err != nil {
			return nil, err
		}
		if !own.Mode.IsDir() {
			return w.result, nil
		}
	}
	queue := []walkDirectory{{params.Path.URI, 0}}
	for len(queue) > 0 && !w.truncated {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		directory := queue[0]
		queue = queue[1:]
		below, err := w.enter(ctx, directory)
		switch {
		case err != nil && directory.depth == 0:
			return nil, err
		case err != nil:
			w.fail(directory.path, err)
		}
		queue = append(queue, below...)
	}
	w.result.Truncated = w.truncated
	return w.result, nil
}

// enter looks at the entries of a directory, and returns the directories among them that are to be entered.
func (w *walker) enter(ctx context.Context, directory walkDirectory) (below []walkDirectory, err error) {
	if w.options.FollowDirectorySymlinks { // else no directory can be met twice
		canonical, err := w.files.Canonicalize(ctx, directory.path)
		if err != nil {
			return nil, err
		}
		if w.seen[canonical] {
			return nil, nil
		}
		w.seen[canonical] = true
	}
	if w.entered++; w.entered > w.options.MaxDirectories {
		w.truncated = true
		return nil, nil
	}
	var entries []env.Entry
	for entry, err := range w.files.List(ctx, directory.path) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b env.Entry) int { return strings.Compare(nameOf(a), nameOf(b)) })
	for _, entry := range entries {
		mode := entry.Info.Mode
		link := mode&fs.ModeSymlink != 0
		if link {
			target, err := w.files.Stat(ctx, entry.Path, true)
			if err != nil { // as if it were not there
				continue
			}
			mode = target.Mode
		}
		if w.looked++; w.looked > w.options.MaxEntries {
			w.truncated = true
			break
		}
		switch {
		case entry.Err != nil:
			w.fail(entry.Path, entry.Err)
			continue
		case link && !(w.options.FollowDirectorySymlinks && mode.IsDir()):
			continue
		}
		switch {
		case mode.IsRegular():
			w.add(entry.Path, "file")
		case mode.IsDir():
			w.add(entry.Path, "directory")
			hidden := w.options.PruneHiddenDirectories && strings.HasPrefix(nameOf(entry), ".")
			if !hidden && directory.depth < w.options.MaxDepth {
				below = append(below, walkDirectory{entry.Path, directory.depth + 1})
			}
		}
		if w.truncated {
			break
		}
	}
	return below, nil
}

func nameOf(entry env.Entry) string {
	name, _ := entry.Path.Base()
	return name
}

// room takes what an item needs of the answer.
func (w *walker) room(text int) bool {
	if w.size += text + walkItemCost; w.size > maxWalkAnswer {
		w.truncated = true
	}
	return !w.truncated
}

func (w *walker) add(path pathuri.URI, kind string) {
	if text := path.String(); w.room(len(text)) {
		w.result.Entries = append(w.result.Entries, walkEntry{text, kind})
	}
}

func (w *walker) fail(path pathuri.URI, err error) {
	text, message := path.String(), answerOf(err).Message
	if w.room(len(text) + len(message)) {
		w.result.Errors = append(w.result.Errors, walkError{text, message})
	}
}
