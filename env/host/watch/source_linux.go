package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"waldo/env"
)

// kernel is where sources come from: one inotify instance, of which a user has few, for all watches of a server. It is
// there as long as there is a source. fsnotify, which is used elsewhere, cannot be shared so: it knows one path for a
// directory, and watches have several.
type kernel struct {
	mu       sync.Mutex // held while an instance is made or closed
	instance *instance
	sources  int
}

// instance is an inotify instance. It is read as fast as events come, so that one watch that is slow costs the others
// nothing.
type instance struct {
	file    *os.File
	fd      int
	reading sync.WaitGroup

	mu       sync.Mutex
	sources  map[*source]struct{}
	marks    map[int32][]*mark // by watch descriptor
	removed  int               // counts watch descriptors that were given back
	position int64             // bytes read so far
}

// A mark is a directory of a source.
type mark struct {
	source *source
	path   string
	wd     int32
	from   int64 // position of the first event that is for it
	gone   bool
}

// A source is a watch's part of the kernel's events. Its methods have one caller. Events are taken unbuffered, so that
// at most one can have been under way when a directory was removed and be seen after.
type source struct {
	kernel   *kernel
	instance *instance
	from     int64         // as a mark's
	lost     chan struct{} // holds something once events may have been lost
	out      chan fsnotify.Event
	wake     chan struct{}
	done     chan struct{}
	pumping  sync.WaitGroup

	// Under the instance's lock.
	marks map[string]*mark
	queue []occurrence
}

// An occurrence is one event at a mark.
type occurrence struct {
	mark *mark
	mask uint32
	name string
}

// maxQueued is how many events wait for one watch; when there are more, they are lost.
const maxQueued = 16384

// interest is what the kernel is asked to tell of a directory.
const interest = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_DELETE_SELF |
	unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_MOVE_SELF

func (k *kernel) newSource() (*source, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.instance == nil {
		i, err := newInstance()
		if err != nil {
			return nil, err
		}
		k.instance = i
	}
	k.sources++
	s := &source{
		kernel: k, instance: k.instance, marks: map[string]*mark{}, lost: make(chan struct{}, 1),
		out: make(chan fsnotify.Event), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.instance.mu.Lock()
	s.from = s.instance.next()
	s.instance.sources[s] = struct{}{}
	s.instance.mu.Unlock()
	s.pumping.Go(s.pump)
	return s, nil
}

func newInstance() (*instance, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		if errors.Is(err, syscall.EMFILE) {
			err = fmt.Errorf("%w: %s", env.ErrLimit, instanceLimit())
		}
		return nil, err
	}
	i := &instance{
		file: os.NewFile(uintptr(fd), "inotify"), fd: fd,
		sources: map[*source]struct{}{}, marks: map[int32][]*mark{},
	}
	raw, err := i.file.SyscallConn()
	if err != nil {
		i.file.Close() //nolint:errcheck // the error is another
		return nil, err
	}
	i.reading.Go(func() {
		buffer := make([]byte, 64<<10)
		raw.Read(func(uintptr) bool { return i.read(buffer) }) //nolint:errcheck // it ends when the file is closed
	})
	return i, nil
}

// close ends the source.
func (s *source) close() {
	close(s.done)
	s.pumping.Wait()
	k, i := s.kernel, s.instance
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sources--
	i.mu.Lock()
	delete(i.sources, s)
	if k.sources > 0 { // else the kernel lets go of all at once
		for _, m := range s.marks {
			i.remove(m)
		}
	}
	i.mu.Unlock()
	if k.sources == 0 {
		i.file.Close() //nolint:errcheck // of a queue
		i.reading.Wait()
		k.instance = nil
	}
}

func (s *source) events() <-chan fsnotify.Event { return s.out }

// add has the directory at path told. What happens in it before add returns may go untold.
func (s *source) add(path string) error {
	i := s.instance
	for try := 0; ; try++ {
		i.mu.Lock()
		removed := i.removed
		// The path may lie where it takes long to look, so nobody waits for that; but it may not be given back by
		// another watch meanwhile.
		if try < 3 {
			i.mu.Unlock()
		}
		wd, err := unix.InotifyAddWatch(i.fd, path, interest)
		if try < 3 {
			i.mu.Lock()
		}
		if err == nil && i.removed != removed {
			i.mu.Unlock()
			continue
		}
		if err == nil {
			i.enter(s, path, int32(wd))
		}
		i.mu.Unlock()
		return err
	}
}

// enter notes that a source has a path. Of a directory that others have too there may be events under way that are
// older than this.
func (i *instance) enter(s *source, path string, wd int32) {
	m := &mark{source: s, path: path, wd: wd}
	if len(i.marks[wd]) > 0 {
		m.from = i.next()
	}
	if old := s.marks[path]; old != nil {
		if old.wd == wd {
			return
		}
		i.remove(old)
	}
	s.marks[path] = m
	i.marks[wd] = append(i.marks[wd], m)
}

// next is the position of the next event that the kernel will put into its queue.
func (i *instance) next() int64 {
	waiting, err := unix.IoctlGetInt(i.fd, unix.TIOCINQ)
	if err != nil {
		return i.position
	}
	return i.position + int64(waiting)
}

// remove has the directory at path told no more.
func (s *source) remove(path string) {
	s.instance.mu.Lock()
	defer s.instance.mu.Unlock()
	if m := s.marks[path]; m != nil {
		s.instance.remove(m)
	}
}

func (i *instance) remove(m *mark) {
	if i.forget(m) {
		i.removed++
		unix.InotifyRmWatch(i.fd, uint32(m.wd)) //nolint:errcheck // the kernel may have dropped it
	}
}

// forget forgets a mark, and tells whether it was the last one of its directory.
func (i *instance) forget(m *mark) (last bool) {
	m.gone = true
	if m.source.marks[m.path] == m {
		delete(m.source.marks, m.path)
	}
	marks, known := i.marks[m.wd]
	if at := slices.Index(marks, m); at >= 0 {
		marks = slices.Delete(marks, at, at+1)
		i.marks[m.wd] = marks
	}
	if len(marks) == 0 {
		delete(i.marks, m.wd)
		return known
	}
	return false
}

// read takes what the kernel has, until there is no more or reading has failed for good.
func (i *instance) read(buffer []byte) (failed bool) {
	for {
		i.mu.Lock()
		n, err := unix.Read(i.fd, buffer)
		switch {
		case n > 0:
			i.take(buffer[:n])
			i.position += int64(n)
		case err != unix.EAGAIN && err != unix.EINTR:
			for s := range i.sources {
				s.lose()
			}
		}
		i.mu.Unlock()
		switch {
		case n > 0, err == unix.EINTR:
		case err == unix.EAGAIN:
			return false
		default:
			return true
		}
	}
}

// take hands out events as the kernel wrote them.
func (i *instance) take(text []byte) {
	for at := 0; at+unix.SizeofInotifyEvent <= len(text); {
		head := text[at:]
		wd := int32(binary.NativeEndian.Uint32(head[0:]))
		mask := binary.NativeEndian.Uint32(head[4:])
		end := min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(head[12:])), len(head))
		name := unix.ByteSliceToString(head[unix.SizeofInotifyEvent:end])
		position := i.position + int64(at)
		at += end
		if mask&unix.IN_Q_OVERFLOW != 0 {
			for s := range i.sources {
				if s.from <= position {
					s.lose()
				}
			}
			continue
		}
		for _, m := range i.marks[wd] {
			if m.from <= position {
				m.source.push(occurrence{m, mask, name})
			}
		}
		if mask&unix.IN_IGNORED != 0 { // it will never be told of again
			delete(i.marks, wd)
		}
	}
}

// push has an event told, in its turn. The instance's lock is held.
func (s *source) push(o occurrence) {
	if len(s.queue) >= maxQueued {
		s.queue = nil
		s.lose()
	}
	s.queue = append(s.queue, o)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *source) lose() {
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// pump tells the events, one after another.
func (s *source) pump() {
	for {
		event, ok := s.pop()
		if !ok {
			select {
			case <-s.wake:
				continue
			case <-s.done:
				return
			}
		}
		if event.Op == 0 {
			continue
		}
		select {
		case s.out <- event:
		case <-s.done:
			return
		}
	}
}

// pop takes the next event; it is an empty one if nobody needs to know.
func (s *source) pop() (event fsnotify.Event, ok bool) {
	i := s.instance
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil
		return event, false
	}
	o := s.queue[0]
	s.queue = s.queue[1:]
	m := o.mark
	if m.gone {
		return event, true
	}
	event.Name = m.path
	if o.name != "" {
		event.Name = join(m.path, o.name)
	}
	switch {
	case o.mask&(unix.IN_IGNORED|unix.IN_UNMOUNT) != 0:
		i.forget(m)
		return event, true
	case o.mask&unix.IN_DELETE_SELF != 0:
		i.forget(m)
		if s.marks[filepath.Dir(m.path)] != nil {
			return event, true // which tells it
		}
		event.Op = fsnotify.Remove
	case o.mask&unix.IN_MOVE_SELF != 0:
		i.remove(m)
		event.Op = fsnotify.Rename
	case o.mask&unix.IN_DELETE != 0:
		event.Op = fsnotify.Remove
	case o.mask&unix.IN_MOVED_FROM != 0:
		event.Op = fsnotify.Rename
	case o.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		event.Op = fsnotify.Create
	case o.mask&unix.IN_MODIFY != 0:
		event.Op = fsnotify.Write
	case o.mask&unix.IN_ATTRIB != 0:
		event.Op = fsnotify.Chmod
	}
	return event, true
}
