package watch

import "sync"

// mounts says when something is mounted or unmounted. It begins with the first watch.
type mounts struct {
	changed func()

	once sync.Once
	stop func() // nil if it does not work here
	done sync.WaitGroup
}

func (m *mounts) open() {
	m.once.Do(func() {
		wait, stop := mountChanges(m.changed)
		if wait != nil {
			m.stop = stop
			m.done.Go(wait)
		}
	})
}

func (m *mounts) close() {
	m.once.Do(func() {})
	if m.stop != nil {
		m.stop()
	}
	m.done.Wait()
}
