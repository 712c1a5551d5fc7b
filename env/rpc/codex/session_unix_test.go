//go:build unix

package codex

import (
	"testing"
	"time"

	"waldo/wire/jsonrpc"
)

// The connection that comes later speaks for the session; the older one is told so, and its end ends nothing.
func TestTakeOver(t *testing.T) {
	r := newRig(t)
	old, session := r.open("")
	young, resumed := r.open(session)
	if resumed != session {
		t.Errorf("resumed %q, want %q", resumed, session)
	}
	old.refused("environment/status", nil, jsonrpc.CodeInvalidRequest, "session has been resumed by another connection")
	old.refused("initialize", map[string]any{"clientName": "x"}, jsonrpc.CodeInvalidRequest, "initialize may only be sent once per connection")
	young.call("environment/status", nil, nil)
	old.cut()
	young.call("environment/status", nil, nil)
	young.cut()
	r.open(session)
}

func TestSessionsThatAreNot(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	c.refused("environment/status", nil, jsonrpc.CodeInvalidRequest, "client must call initialize before using environment status methods")
	c.refused("initialize", map[string]any{"clientName": "x", "resumeSessionId": "nobody"}, jsonrpc.CodeInvalidRequest, "unknown session id nobody")
	c.refused("initialize", map[string]any{"clientName": "x", "resumeSessionId": ""}, jsonrpc.CodeInvalidRequest, "unknown session id ")
	c.refused("initialize", map[string]any{"clientName": "x", "leaseSec": 0}, jsonrpc.CodeInvalidParams, "leaseSec")
	c.refused("initialize", map[string]any{"clientname": "x"}, jsonrpc.CodeInvalidParams, "clientName")
	c.call("initialize", map[string]any{"clientName": "x"}, nil)
	c.refused("fs/readFile", map[string]any{"path": r.uri("x")}, jsonrpc.CodeInvalidRequest, "client must send initialized before using filesystem methods")
}

// A session is gone when its lease is over, and its processes with it.
func TestLease(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	var result initializeAnswer
	c.call("initialize", map[string]any{"clientName": "x", "leaseSec": 1}, &result)
	c.cut()
	ended := make(chan struct{})
	r.door.find(result.SessionID).rpc.AfterEnd(func() { close(ended) })
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the session does not end")
	}
	r.dial().refused("initialize", map[string]any{"clientName": "x", "resumeSessionId": result.SessionID}, jsonrpc.CodeInvalidRequest, "unknown session id "+result.SessionID)
}

type initializeAnswer struct {
	SessionID string `json:"sessionId"`
}
