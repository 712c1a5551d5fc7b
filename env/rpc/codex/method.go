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
	prepare func(c *connection, params json.RawMessage) (call, error)
}

const (
	processFamily = "exec"
	fileFamily    = "filesystem"
	httpFamily    = "http"
)

// methods are those that are offered; initialize is apart.
var methods = map[string]method{
	"environment/info":   {"environment info", unit(environmentInfoOf)},
	"environment/status": {"environment status", unit(environmentStatus)},

	"process/start":     {processFamily, prepareStart},
	"process/read":      {processFamily, simple(readProcess)},
	"process/write":     {processFamily, prepareWrite},
	"process/signal":    {processFamily, simple(signalProcess)},
	"process/terminate": {processFamily, simple(terminateProcess)},

	"fs/readFile":        {fileFamily, simple(readFile)},
	"fs/writeFile":       {fileFamily, simple(writeFile)},
	"fs/createDirectory": {fileFamily, simple(createDirectory)},
	"fs/getMetadata":     {fileFamily, simple(getMetadata)},
	"fs/canonicalize":    {fileFamily, simple(canonicalize)},
	"fs/readDirectory":   {fileFamily, simple(readDirectory)},
	"fs/walk":            {fileFamily, simple(walk)},
	"fs/remove":          {fileFamily, simple(remove)},
	"fs/copy":            {fileFamily, simple(copyFile)},
	"fs/open":            {fileFamily, prepareOpen},
	"fs/readBlock":       {fileFamily, prepareReadBlock},
	"fs/writeBlock":      {fileFamily, prepareWriteBlock},
	"fs/close":           {fileFamily, prepareClose},
	"fs/watchMissing":    {fileFamily, prepareWatchMissing},

	"http/request": {httpFamily, prepareHTTP},
}

// decode reads params; what is wrong with them is the client's fault.
func decode(raw json.RawMessage, into any) error {
	if err := jsonrpc.Decode(raw, into); err != nil {
		return invalidParams("%v", err)
	}
	return nil
}

// simple serves a method that has no order to keep.
func simple[P any](serve func(context.Context, *connection, *P) (any, error)) func(*connection, json.RawMessage) (call, error) {
	return func(c *connection, raw json.RawMessage) (call, error) {
		params := new(P)
		if err := decode(raw, params); err != nil {
			return call{}, err
		}
		return call{do: func(ctx context.Context) (any, error) { return serve(ctx, c, params) }}, nil
	}
}

// unit serves a method without parameters.
func unit(serve func(*connection) any) func(*connection, json.RawMessage) (call, error) {
	return func(c *connection, raw json.RawMessage) (call, error) {
		var none *struct{}
		if err := decode(raw, &none); err != nil {
			return call{}, err
		}
		return call{do: func(context.Context) (any, error) { return serve(c), nil }}, nil
	}
}

// done is the result of a method that has none.
type done struct{}

func environmentInfoOf(c *connection) any { return c.about() }

func environmentStatus(*connection) any {
	return struct {
		Status string `json:"status"`
	}{"ready"}
}
