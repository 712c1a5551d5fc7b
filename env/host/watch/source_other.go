//go:build !linux

package watch

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"waldo/env"
)

// kernel is where sources come from.
type kernel struct{}

// A source is one of the kernel's queues of events. They are taken unbuffered by one goroutine, so that at most one
// event can have been read before a directory was removed and be seen after.
type source struct {
	*fsnotify.Watcher
	lost   chan struct{}
	drains sync.WaitGroup
}

func (*kernel) newSource() (*source, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) {
			err = fmt.Errorf("%w: %s", env.ErrLimit, instanceLimit())
		}
		return nil, err
	}
	s := &source{Watcher: w, lost: make(chan struct{}, 1)}
	// Errors have a goroutine of their own: fsnotify sends some while it holds the lock that Add and Remove want.
	s.drains.Go(func() {
		for err := range w.Errors {
			if errors.Is(err, syscall.EINVAL) {
				continue // a watch was to be removed that the kernel had removed already
			}
			select {
			case s.lost <- struct{}{}:
			default:
			}
		}
	})
	return s, nil
}

func (s *source) events() <-chan fsnotify.Event { return s.Events }

func (s *source) add(path string) error { return s.Add(path) }

func (s *source) remove(path string) {
	s.Remove(path) //nolint:errcheck // the kernel may have dropped it
}

// close ends the source. It returns when the kernel has let go of the watches.
func (s *source) close() {
	s.Watcher.Close() //nolint:errcheck // of a queue
	s.drains.Wait()
}
