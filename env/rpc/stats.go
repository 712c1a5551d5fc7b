package rpc

import (
	"maps"
	"sync"

	"waldo/wire"
)

// The doors, as [Stats] names them.
const (
	NativeDoor = "native"
	CodexDoor  = "codex"
)

// OK is the outcome of a call that has not failed.
const OK = "ok"

// Stats are counts of what a server does.
type Stats struct {
	Open        map[string]int64   // connections that speak for a session now, by door
	Connections map[string]int64   // those that ever have
	Resumes     map[string]int64   // of them, those that went on with a session
	Sessions    int64              // that there are now, connected or not
	Calls       map[CallKind]int64 // that have ended
}

// CallKind is what calls are told apart by.
type CallKind struct{ Door, Method, Outcome string }

// stats are a server's counters.
type stats struct {
	mu                   sync.Mutex
	connections, resumes map[string]int64
	calls                map[CallKind]int64
}

// Stats tells what the server has done so far.
func (s *Server) Stats() Stats {
	st := Stats{Open: map[string]int64{NativeDoor: 0, CodexDoor: 0}}
	s.mu.Lock()
	st.Sessions = int64(len(s.sessions))
	for _, session := range s.sessions {
		if session.conn != nil {
			st.Open[doorOf(session.conn)]++
		}
	}
	s.mu.Unlock()
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	st.Connections, st.Resumes, st.Calls = maps.Clone(s.stats.connections), maps.Clone(s.stats.resumes), maps.Clone(s.stats.calls)
	return st
}

// CountCall counts a call of a known method that has ended. Its outcome is OK or what the door calls the error.
func (s *Server) CountCall(door, method, outcome string) {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	if s.stats.calls == nil {
		s.stats.calls = make(map[CallKind]int64)
	}
	s.stats.calls[CallKind{door, method, outcome}]++
}

// outcome names the error of a native call.
func outcome(err error) string {
	if err == nil {
		return OK
	}
	return string(wire.FromError(err).Code)
}

// taken counts a connection that has come to speak for a session.
func (s *stats) taken(conn connection, resumed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connections == nil {
		s.connections, s.resumes = make(map[string]int64), make(map[string]int64)
	}
	door := doorOf(conn)
	s.connections[door]++
	if resumed {
		s.resumes[door]++
	}
}

// doorOf tells through which door a connection came.
func doorOf(conn connection) string {
	if _, ok := conn.(*wire.Conn); ok {
		return NativeDoor
	}
	return CodexDoor
}
