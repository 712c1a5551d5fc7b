package wire

import (
	"context"
	"encoding/json"
	"fmt"
)

// The protocol versions this package speaks.
const (
	MinVersion = 1
	MaxVersion = 1
)

const helloMethod = "hello"

// Hello is the first call of a connection.
type Hello struct {
	Token      string `json:"token,omitempty"`
	MinVersion int    `json:"minVersion"`
	MaxVersion int    `json:"maxVersion"`
	Client     string `json:"client,omitempty"`  // name and version, for logs and lists
	Session    string `json:"session,omitempty"` // the session to open or to take over
	Lease      int64  `json:"lease,omitempty"`   // wanted, in milliseconds; 0 is the server's default
	Expect     string `json:"expect,omitempty"`  // the server instance the client thinks it speaks to
}

// Welcome is the server's answer to Hello.
type Welcome struct {
	Version      int             `json:"version"`
	Instance     string          `json:"instance"`          // of the server process; another one after a restart
	Server       string          `json:"server"`            // name and version
	Resumed      bool            `json:"resumed,omitempty"` // the session was known
	Lease        int64           `json:"lease"`             // granted, in milliseconds
	Capabilities []string        `json:"capabilities,omitempty"`
	Environment  json.RawMessage `json:"environment,omitempty"` // what the machine says of itself
}

// negotiate picks the highest version both ends speak.
func negotiate(h Hello) (int, error) {
	if h.MaxVersion < MinVersion {
		return 0, fmt.Errorf("%w: client speaks protocol versions %d to %d, server %d to %d; upgrade the client", Unsupported, h.MinVersion, h.MaxVersion, MinVersion, MaxVersion)
	}
	if h.MinVersion > MaxVersion {
		return 0, fmt.Errorf("%w: client speaks protocol versions %d to %d, server %d to %d; upgrade the server", Unsupported, h.MinVersion, h.MaxVersion, MinVersion, MaxVersion)
	}
	return min(h.MaxVersion, MaxVersion), nil
}

// hello answers the HELLO call: until it has been accepted no other call is served.
func (c *Conn) hello(ctx context.Context, call *Call) error {
	var h Hello
	if err := call.Params(&h); err != nil {
		return err
	}
	version, err := negotiate(h)
	if err != nil {
		return err
	}
	welcome, err := c.accept(ctx, h)
	if err != nil {
		return err
	}
	welcome.Version = version
	c.transport.budget.Store(-1)
	c.settleHello(nil)
	return call.End(welcome)
}
