package watch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"waldo/env"
)

// maxInterval is how far apart two looks are at most; between, they are twenty times as far apart as one takes.
const maxInterval = 10 * time.Second

// maxPolled is how many files are looked at.
const maxPolled = 1 << 20

// A poller looks at a path every so often and tells what is different.
type poller struct {
	root      string
	directory bool
	recursive bool
	id        identity
	batch     *batch
	interval  time.Duration // the shortest

	seen map[string]state
	cost time.Duration // of one look
}

// A state is what shows that a file changed. A directory's time and size are left out: they change with its entries,
// which are told themselves.
type state struct {
	mode     fs.FileMode
	size     int64
	modified int64
	number   uint64
}

// begin looks for the first time.
func (p *poller) begin(ctx context.Context) error {
	seen, err := p.look(ctx)
	p.seen = seen
	if errors.Is(err, errGone) {
		return fs.ErrNotExist
	}
	return err
}

// run goes on looking until ctx ends or there is nothing any more to look at.
func (p *poller) run(ctx context.Context) error {
	timer := time.NewTimer(p.pause())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		now, err := p.look(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errGone), errors.Is(err, env.ErrLimit):
			return err
		case err == nil:
			p.compare(now)
		} // else a server that does not answer now, say: what changed is seen when it does
		timer.Reset(p.pause())
	}
}

func (p *poller) pause() time.Duration {
	return max(p.interval, min(20*p.cost, maxInterval))
}

// compare tells what is different.
func (p *poller) compare(now map[string]state) {
	for path, before := range p.seen {
		after, ok := now[path]
		if !ok || before.mode.IsDir() && !after.mode.IsDir() || before.mode.IsDir() && before.number != after.number {
			p.batch.add(path, env.Removed, before.mode.IsDir())
			if ok {
				p.batch.add(path, env.Created, false)
			}
		} else if before != after {
			p.batch.add(path, env.Modified, false)
		}
	}
	for path := range now {
		if _, ok := p.seen[path]; !ok {
			p.batch.add(path, env.Created, false)
		}
	}
	p.seen = now
}

// look returns what is there now. Any error means that this is not known.
func (p *poller) look(ctx context.Context) (map[string]state, error) {
	begun := time.Now()
	defer func() { p.cost = time.Since(begun) }()
	seen := make(map[string]state, len(p.seen))
	numbered := hasNumbers(p.root)
	info, err := os.Stat(p.root)
	if !p.directory {
		switch {
		case err == nil:
			seen[p.root] = stateOf(info, numbered)
		case missing(err):
			if _, err := os.Stat(filepath.Dir(p.root)); missing(err) {
				return nil, errGone
			}
		default:
			return nil, reason(err)
		}
		return seen, nil
	}
	switch {
	case missing(err), err == nil && !info.IsDir(), err == nil && numbered && identify(info) != p.id:
		return nil, errGone
	case err != nil:
		return nil, reason(err)
	}
	seen[p.root] = stateOf(info, numbered)
	dirs := []string{p.root}
	for len(dirs) > 0 {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		entries, err := os.ReadDir(dir)
		switch {
		case missing(err), errors.Is(err, fs.ErrPermission):
		case err != nil:
			return nil, reason(err)
		}
		for _, entry := range entries {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			info, err := entry.Info()
			if missing(err) || errors.Is(err, fs.ErrPermission) {
				continue
			}
			if err != nil {
				return nil, reason(err)
			}
			path := join(dir, entry.Name())
			seen[path] = stateOf(info, numbered)
			if info.IsDir() && p.recursive {
				dirs = append(dirs, path)
			}
		}
		if len(seen) > maxPolled {
			return nil, fmt.Errorf("%w: there are more than %d files, and the kernel tells nothing of this file system: watch a smaller directory", env.ErrLimit, maxPolled)
		}
	}
	return seen, nil
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func stateOf(info fs.FileInfo, numbered bool) state {
	s := state{mode: info.Mode()}
	if numbered {
		s.number = identify(info).number
	}
	if !info.IsDir() {
		s.size, s.modified = info.Size(), info.ModTime().UnixNano()
	}
	return s
}
