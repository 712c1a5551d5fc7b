package codex

import (
	"context"
	"encoding/json"

	"waldo/wire/jsonrpc"
)

// call is a request that is ready to be served.
type call struct {
	do     func(context.Context) (any, error)
	then   func(context.Context) // after it was answered; nil: nothing
	undone func()                // instead of do, when it cannot be served; nil: nothing
}

func (c call) refused() {
	if c.undone != nil {
		c.undone()
	}
}

// method says how a request is served. prepare is called in the order of the requests and must not wait.
type method struct {
	family  string // as errors name it
	decode  func(params json.RawMessage) (any, error)
	prepare func(c *connection, params any) (call, error)
}

const (
	processFamily = "exec"
	fileFamily    = "filesystem"
	httpFamily    = "http"
)

// methods are those that are offered; initialize is apart.
var methods = map[string]method{
	"environment/info":   unit("environment info", environmentInfoOf),
	"environment/status": unit("environment status", environmentStatus),

	"process/start":     ordered(processFamily, prepareStart),
	"process/read":      simple(processFamily, readProcess),
	"process/write":     ordered(processFamily, prepareWrite),
	"process/signal":    simple(processFamily, signalProcess),
	"process/terminate": simple(processFamily, terminateProcess),

	"fs/readFile":        simple(fileFamily, readFile),
	"fs/writeFile":       simple(fileFamily, writeFile),
	"fs/createDirectory": simple(fileFamily, createDirectory),
	"fs/getMetadata":     simple(fileFamily, getMetadata),
	"fs/canonicalize":    simple(fileFamily, canonicalize),
	"fs/readDirectory":   simple(fileFamily, readDirectory),
	"fs/walk":            simple(fileFamily, walk),
	"fs/remove":          simple(fileFamily, remove),
	"fs/copy":            simple(fileFamily, copyFile),
	"fs/open":            ordered(fileFamily, prepareOpen),
	"fs/readBlock":       ordered(fileFamily, prepareReadBlock),
	"fs/writeBlock":      ordered(fileFamily, prepareWriteBlock),
	"fs/close":           ordered(fileFamily, prepareClose),
	"fs/watchMissing":    ordered(fileFamily, prepareWatchMissing),

	"http/request": ordered(httpFamily, prepareHTTP),
}

// decode reads params; what is wrong with them is the client's fault.
func decode(raw json.RawMessage, into any) error {
	if err := jsonrpc.Decode(raw, into); err != nil {
		return invalidParams("%v", err)
	}
	return nil
}

// ordered is a method of which something has to be done in the order of the requests.
func ordered[P any](family string, prepare func(*connection, *P) (call, error)) method {
	return method{
		family: family,
		decode: func(raw json.RawMessage) (any, error) {
			params := new(P)
			return params, decode(raw, params)
		},
		prepare: func(c *connection, params any) (call, error) { return prepare(c, params.(*P)) },
	}
}

// simple is a method that has no order to keep.
func simple[P any](family string, serve func(context.Context, *connection, *P) (any, error)) method {
	return ordered(family, func(c *connection, params *P) (call, error) {
		return call{do: func(ctx context.Context) (any, error) { return serve(ctx, c, params) }}, nil
	})
}

// unit is a method without parameters.
func unit(family string, serve func(*connection) any) method {
	m := simple(family, func(_ context.Context, c *connection, _ *struct{}) (any, error) { return serve(c), nil })
	m.decode = func(raw json.RawMessage) (any, error) {
		var params *map[string]json.RawMessage
		if err := decode(raw, &params); err != nil {
			return nil, err
		}
		if params != nil && len(*params) > 0 {
			return nil, invalidParams("invalid type: map, expected unit")
		}
		return new(struct{}), nil
	}
	return m
}

// done is the result of a method that has none.
type done struct{}

func environmentInfoOf(c *connection) any { return c.about() }

func environmentStatus(*connection) any {
	return struct {
		Status string `json:"status"`
	}{"ready"}
}
