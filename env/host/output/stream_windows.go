package output

// A Stream is one source of output. There is none on this machine yet.
type Stream struct{ done chan struct{} }

// Pump would read until the end.
func (*Stream) Pump(<-chan struct{}) {}

// Drain would read what is there now.
func (*Stream) Drain() {}

// Done is closed when Pump has ended.
func (s *Stream) Done() <-chan struct{} { return s.done }
