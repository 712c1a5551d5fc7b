package rpc

import (
	"encoding/json"
	"errors"
	"testing"

	"waldo/wire"
)

// What a foreign client may send instead of what is right is refused as invalid, starts nothing, and ends nothing.
func TestWrongParams(t *testing.T) {
	machine := newFake()
	n := newNetwork(t, machine, ServerOptions{})
	defer n.close()
	nc, err := n.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.Client(nc)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := conn.Hello(wire.Hello{Session: "s"})
	if err == nil {
		_, err = answer(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for method, list := range map[string][]string{
		"process.start": {
			`{"id":"p","argv":["x"],"directory":"file:///a%00"}`,
			`{"id":"p","argv":["x"],"directory":"file:///a\u0000"}`,
			`{"id":"p","argv":["x"],"directory":"C:\\x"}`,
			`{"id":"p","argv":["x"],"directory":"w"}`,
			`{"id":"p","argv":["x"],"directory":"file:x"}`,
			`{"id":"p","argv":["x"],"directory":"file:///w?q"}`,
			`{"id":"p","argv":["x"],"directory":7}`,
			`{"id":"p","argv":"x"}`,
			`{"id":"p","argv":[1]}`,
			`{"id":"p","argv":[{"b64":"?"}]}`,
			`{"id":"p","argv":["x"],"env":{"A":"x"}}`,
			`{"id":"p","argv":["x"],"terminal":{"rows":70000,"columns":1}}`,
			`{"id":"p","argv":["x"],"terminal":{"rows":-1,"columns":1}}`,
			`{"id":"p","argv":["x"],"terminal":{"rows":1.5,"columns":1}}`,
			`{"id":7,"argv":["x"]}`,
			"{\"id\":\"p\",\"argv\":[\"a\xffb\"]}", // bytes that are no text have a form of their own
			"{\"id\":\"p\",\"argv\":[\"x\"],\"env\":[\"A=\xff\"]}",
			"{\"id\":\"p\",\"argv\":[\"x\"],\"directory\":\"file:///a\xff\"}",
			`{"id":"p","argv":["\ud800"]}`,
			`{"id":"p","argv":["x"],"directory":"file:///a\udfff"}`,
			`[]`,
			`"x"`,
		},
		"process.attach":    {`{"id":7}`, `[]`, `{"id":"p","from":"x"}`, `{"id":"p","from":1e30}`},
		"process.signal":    {`{"id":"p","signal":7,"op":1}`, `[]`},
		"process.terminate": {`{"id":"p","grace":"x"}`, `[]`},
		"file.stat":         {`{"path":"file:///x%00"}`, `{"path":"/x"}`, `{"path":""}`, `[]`},
		"dial":              {`{"network":1}`, `[]`},
	} {
		for _, params := range list {
			err := conn.Do(t.Context(), wire.Request{Method: method, Params: json.RawMessage(params)}, nil)
			if !errors.Is(err, wire.Invalid) {
				t.Errorf("%s %s: %v", method, params, err)
			}
		}
	}
	if err := conn.Do(t.Context(), wire.Request{Method: "no.such", Params: json.RawMessage(`{}`)}, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an unknown method: %v", err)
	}
	if machine.starts != 0 {
		t.Errorf("%d processes were started", machine.starts)
	}
	call, err := conn.Open(wire.Request{Method: "process.start", Params: json.RawMessage(`{"id":"p","argv":["\ud83d\ude00","\\ud800","\ufffd"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	if event, err := call.Receive(t.Context()); err != nil || event.Kind != wire.ReplyEvent || machine.starts != 1 {
		t.Errorf("afterwards: %+v, %v, %d starts", event, err, machine.starts)
	}
}
