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
	Holder     string `json:"holder,omitempty"`  // names the client as long as it lives: one that resumes is fenced if another took over
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

// negotiate picks the highest version that a client of versions lowest to highest and this end, a server or a
// client as the words say, both speak.
func negotiate(client, server [2]int) (int, error) {
	switch {
	case client[0] > client[1]:
		return 0, fmt.Errorf("%w: protocol versions %d to %d", Invalid, client[0], client[1])
	case client[1] < server[0]:
		return 0, mismatch(client, server, "client")
	case client[0] > server[1]:
		return 0, mismatch(client, server, "server")
	}
	return min(client[1], server[1]), nil
}

func mismatch(client, server [2]int, old string) error {
	return fmt.Errorf("%w: the client speaks protocol %s, the server %s; upgrade the %s", Unsupported, versions(client), versions(server), old)
}

func versions(v [2]int) string {
	if v[0] == v[1] {
		return fmt.Sprintf("version %d", v[0])
	}
	return fmt.Sprintf("versions %d to %d", v[0], v[1])
}

// hello answers the HELLO call: until it has been accepted no other call is served.
func (c *Conn) hello(ctx context.Context, call *Call) error {
	var h Hello
	if err := call.Params(&h); err != nil {
		return err
	}
	version, err := negotiate([2]int{h.MinVersion, h.MaxVersion}, [2]int{MinVersion, MaxVersion})
	if err != nil {
		return err
	}
	welcome, err := c.accept(ctx, h)
	if err != nil {
		return err
	}
	welcome.Version = version
	c.transport.admit()
	call.End(welcome)  //nolint:errcheck // it has been accepted; a cut is noticed by the reader
	c.settleHello(nil) // only now, so that it is the first answer
	c.Ping()           // tells how far the peer is
	return nil
}
