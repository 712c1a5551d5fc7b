package rpc

import (
	"fmt"

	"waldo/wire"
)

// maxHandles is how many files may be open and watches at work for all clients together.
const maxHandles = 4096

// hold counts something that holds on to resources of the machine; release is called once it does no more.
func (s *Server) hold(what string) (release func(), err error) {
	if s.handles.Add(1) > maxHandles {
		s.handles.Add(-1)
		return nil, fmt.Errorf("%w: %s and others are %d already", wire.Limit, what, maxHandles)
	}
	return func() { s.handles.Add(-1) }, nil
}
