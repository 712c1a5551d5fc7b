package env

import (
	"context"
	"iter"

	"waldo/pathuri"
)

// Watcher tells what changes in the machine's file systems.
type Watcher interface {
	// Watch tells what changes at path from now on; it returns when it has begun to look. Errors: fs.ErrNotExist,
	// ErrLimit with the remedy when the machine's limit of watches is reached.
	Watch(ctx context.Context, path pathuri.URI, options WatchOptions) (Watch, error)
}

// WatchOptions say what is watched.
type WatchOptions struct {
	// Recursive watches all below a directory, also what is made there later; without it, its entries. Links are
	// not followed, but for the path itself.
	Recursive bool
}

// Watch is a watch at work. There is one consumer of Changes.
type Watch interface {
	// Changes yields what has changed, in batches: 50 ms after the first change, or up to 500 ms while more come,
	// and always once after the last. Paths in a batch are unique; the consumer looks for itself what is there
	// now. After a Gone the sequence ends. Breaking off and ranging again goes on. When a step yields an error
	// the sequence has ended.
	Changes(ctx context.Context) iter.Seq2[[]Change, error]
	// Close ends the watch. It is idempotent.
	Close() error
}

// Change says that something happened at a path.
type Change struct {
	Path pathuri.URI `json:"path"`
	Kind ChangeKind  `json:"kind"`
}

// ChangeKind says what happened. A rename is Removed there and Created here.
type ChangeKind string

// The kinds of change.
const (
	Created  ChangeKind = "created"
	Modified ChangeKind = "modified" // content or attributes
	Removed  ChangeKind = "removed"
	// Rescan says that changes at or below the path may have been missed: whoever cares looks at it anew. The
	// watch goes on.
	Rescan ChangeKind = "rescan"
	// Gone says that the watched path itself is no more, or no longer what it was. It is the last change.
	Gone ChangeKind = "gone"
)
