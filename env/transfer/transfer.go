// Package transfer copies files and trees from one environment to another, or within one.
//
// It speaks to both ends through [env.Files] alone. Small files go many in one call, and much is under way at once, so
// that a tree costs the time of its bytes and not a round trip, nor a call, for each file.
package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"waldo/env"
	"waldo/pathuri"
)

// End is one end of a copy: a path and the files it is among.
type End struct {
	Files env.Files
	Path  pathuri.URI
}

// Options say how to copy.
type Options struct {
	// Recursive copies a directory with all that is in it; links are then copied as links, else followed.
	Recursive bool
	// Preserve gives the copies the times of the originals, and all their permission bits. Without it, what is there
	// already keeps its own, and what is new gets those of reading, writing and executing.
	Preserve bool
	// Progress, unless nil, counts along.
	Progress *Progress
}

// Progress counts what a copy has done and what it has found to do. It may be read at any time.
type Progress struct {
	files, bytes, foundFiles, foundBytes atomic.Int64
	found                                atomic.Bool
}

// Done is how many files have been copied, and how many bytes of them and of those under way.
func (p *Progress) Done() (files, bytes int64) { return p.files.Load(), p.bytes.Load() }

// Found is how many files and bytes there are to copy; all tells whether that is the last word.
func (p *Progress) Found() (files, bytes int64, all bool) {
	all = p.found.Load() // before the counts, which grow until then
	return p.foundFiles.Load(), p.foundBytes.Load(), all
}

// What is under way at a time: enough small files to fill a long line, and little memory.
const (
	maxFiles  = 512
	maxBytes  = 64 << 20
	fileBytes = 1 << 20  // what one file holds of that at most
	leastFile = 16 << 10 // and at least
	maxErrors = 20       // told one by one
)

// Copy copies the file or tree at from.Path to to.Path, exactly: it does not look whether that is a directory to copy
// into. What cannot be copied is told in the error, behind the rest; the files of a tree are each whole or not there.
// Within one machine it is that machine's own copy, which keeps times, and progress is not told.
func Copy(ctx context.Context, from, to End, options Options) error {
	progress := options.Progress
	if progress == nil {
		progress = new(Progress)
	}
	progress.found.Store(false) // it may have been true of another copy
	info, err := from.Files.Stat(ctx, from.Path, !options.Recursive)
	if err != nil {
		return err
	}
	c := &copying{
		from: from, to: to, preserve: options.Preserve, progress: progress,
		room: room{freed: make(chan struct{}, 1)},
	}
	switch {
	case info.Mode.IsDir() && !options.Recursive:
		return fmt.Errorf("%q: %w; copy it recursively (-r)", from.Path.Display(), env.ErrIsDirectory)
	case same(from.Files, to.Files):
		defer progress.found.Store(true)
		return within(ctx, from, to.Path, options)
	case !info.Mode.IsDir():
		progress.foundFiles.Add(1)
		progress.foundBytes.Add(fileSize(info))
		progress.found.Store(true)
		if info.Mode&fs.ModeSymlink == 0 {
			return c.file(ctx, from.Path, to.Path, info, nil)
		}
		target, err := from.Files.ReadLink(ctx, from.Path)
		if err != nil {
			return err
		}
		return c.link(ctx, to.Path, target)
	}
	return c.tree(ctx, info.Version)
}

// fileSize is how much there is to copy of something that is no directory.
func fileSize(info env.FileInfo) int64 {
	if info.Mode.IsRegular() {
		return info.Size
	}
	return 0
}

// same tells whether these are the same files. Those that cannot be compared are not.
func same(a, b env.Files) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// within copies on one machine, which its content does not leave.
func within(ctx context.Context, from End, to pathuri.URI, options Options) error {
	path := from.Path
	if !options.Recursive { // a link is followed
		real, err := from.Files.Canonicalize(ctx, path)
		if err != nil {
			return err
		}
		path = real
	}
	return from.Files.Copy(ctx, path, to, env.CopyOptions{Recursive: options.Recursive})
}

// copying is a copy under way.
type copying struct {
	from, to End
	preserve bool
	progress *Progress
	room     room
	tasks    sync.WaitGroup
	batch    batch // of small files, that grows during the walk

	mu     sync.Mutex
	errors []error
	failed int
}

// root makes the directory that the tree goes into. Two names of one machine may lead to the same tree, which would be
// copied into itself without end.
func (c *copying) root(ctx context.Context, version string) (made bool, err error) {
	inside := c.inside(ctx, version)
	made, err = c.directory(ctx, c.to.Path, c.closed(), true)
	if err != nil || inside.IsZero() {
		return made, err
	}
	// Machines may be copies of each other: what tells is whether what was made here is there too.
	at, err := c.from.Files.Stat(ctx, inside, true)
	if err != nil {
		return made, nil
	}
	there, err := c.to.Files.Stat(ctx, c.to.Path, true)
	if err != nil || at.Version == "" || at.Version != there.Version {
		return made, nil
	}
	if made {
		c.to.Files.Remove(ctx, c.to.Path, env.RemoveOptions{}) //nolint:errcheck // the error is another
	}
	return made, fmt.Errorf("%w: copy %q to %q: a directory cannot be copied into itself", env.ErrInvalid, c.from.Path.Display(), c.to.Path.Display())
}

// inside is what the target would be called at the source's end, if it seems to lie in the directory that is copied,
// which has this version.
func (c *copying) inside(ctx context.Context, version string) (path pathuri.URI) {
	if version == "" || c.from.Path.Convention() != c.to.Path.Convention() {
		return path
	}
	above, err := c.to.Files.Canonicalize(ctx, c.to.Path)
	var below []string // that directory, innermost first
	if errors.Is(err, fs.ErrNotExist) {
		name, _ := c.to.Path.Base()
		parent, _ := c.to.Path.Parent()
		below = []string{name}
		above, err = c.to.Files.Canonicalize(ctx, parent)
	}
	if err != nil {
		return path // to make it will fail as well
	}
	ancestors := slices.Collect(above.Ancestors())
	same := make([]bool, len(ancestors))
	var asking sync.WaitGroup
	for i, directory := range ancestors {
		asking.Go(func() {
			info, err := c.to.Files.Stat(ctx, directory, true)
			same[i] = err == nil && info.Version == version
		})
	}
	asking.Wait()
	top := slices.Index(same, true)
	if top < 0 {
		return path
	}
	for _, directory := range ancestors[:top] {
		name, _ := directory.Base()
		below = append(below, name)
	}
	path = c.from.Path
	for _, name := range slices.Backward(below) {
		if path, err = path.JoinName(name); err != nil {
			return pathuri.URI{}
		}
	}
	return path
}

// file copies one file, of a tree into the directory in.
func (c *copying) file(ctx context.Context, from, to pathuri.URI, info env.FileInfo, in *directory) (err error) {
	reader, err := c.from.Files.Read(ctx, from, env.ReadOptions{Holes: info.Allocated >= 0 && info.Allocated < info.Size})
	if err != nil {
		return err
	}
	defer reader.Close() //nolint:errcheck // nothing was written
	options := c.writeOptions(reader.Info())
	options.Unsynced = in != nil
	writer, err := c.to.Files.Write(ctx, to, options)
	if err != nil {
		return err
	}
	defer writer.Close() //nolint:errcheck // Commit has said what counts
	var copied int64
	defer func() {
		if err != nil {
			c.progress.bytes.Add(-copied)
		}
	}()
	for chunk, err := range reader.Chunks() {
		if err != nil {
			return err
		}
		if chunk.Hole > 0 {
			err = writer.Skip(chunk.Hole)
		} else {
			_, err = writer.Write(chunk.Data)
		}
		if err != nil {
			return err
		}
		n := chunk.Hole + int64(len(chunk.Data))
		copied += n
		c.progress.bytes.Add(n)
	}
	if _, err := writer.Commit(); err != nil {
		return err
	}
	c.progress.files.Add(1)
	c.progress.foundBytes.Add(copied - info.Size) // it may have grown since it was found
	return nil
}

// link makes a link, in the place of a file or link that is there.
func (c *copying) link(ctx context.Context, path pathuri.URI, target string) error {
	err := c.to.Files.Symlink(ctx, target, path)
	if errors.Is(err, fs.ErrExist) {
		err = c.replaceByLink(ctx, path, target)
	}
	if err == nil {
		c.progress.files.Add(1)
	}
	return err
}

// replaceByLink puts a link in the place of what is there, which stays if that cannot be.
func (c *copying) replaceByLink(ctx context.Context, path pathuri.URI, target string) error {
	parent, _ := path.Parent()
	beside, err := parent.JoinName(".waldo-" + rand.Text())
	if err != nil {
		return err
	}
	if err := c.to.Files.Symlink(ctx, target, beside); err != nil {
		return err
	}
	err = c.to.Files.Rename(ctx, beside, path, env.RenameOptions{})
	if err != nil {
		c.to.Files.Remove(context.WithoutCancel(ctx), beside, env.RemoveOptions{Force: true}) //nolint:errcheck // as above
	}
	return err
}

// sameKind tells whether the two ends have permission bits that mean the same.
func (c *copying) sameKind() bool { return c.from.Path.Convention() == c.to.Path.Convention() }

// permissions are those that a copy gets of a file that has this mode.
func (c *copying) permissions(mode fs.FileMode) fs.FileMode {
	if !c.preserve { // who runs what is copied with whose rights is nobody's business but theirs
		return mode.Perm()
	}
	return mode & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
}

// task runs do beside the others, when there is room for a file of that size.
func (c *copying) task(ctx context.Context, size int64, do func() error) {
	weight := min(max(size, leastFile), fileBytes)
	if !c.room.take(ctx, weight) {
		return // result says why
	}
	c.tasks.Go(func() {
		defer c.room.give(weight)
		c.fail(do())
	})
}

// fail notes an error, unless it is nil.
func (c *copying) fail(err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed++; c.failed <= maxErrors {
		c.errors = append(c.errors, err)
	}
}

// result is what there is to say in the end.
func (c *copying) result(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if more := c.failed - len(c.errors); more > 0 {
		c.errors = append(c.errors, fmt.Errorf("and %d more", more))
	}
	return errors.Join(c.errors...)
}

// room bounds what is under way. One goroutine takes, any give.
type room struct {
	mu           sync.Mutex
	files, bytes int64
	freed        chan struct{}
}

// take waits until weight more may be under way; false when ctx is over.
func (r *room) take(ctx context.Context, weight int64) bool {
	for ctx.Err() == nil {
		r.mu.Lock()
		free := r.files < maxFiles && (r.bytes+weight <= maxBytes || r.files == 0)
		if free {
			r.files++
			r.bytes += weight
		}
		r.mu.Unlock()
		if free {
			return true
		}
		select {
		case <-r.freed:
		case <-ctx.Done():
		}
	}
	return false
}

func (r *room) give(weight int64) {
	r.mu.Lock()
	r.files--
	r.bytes -= weight
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}
