//go:build unix

package codex

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"waldo/wire/jsonrpc"
)

// BenchmarkOutput is what a program prints, through a WebSocket on loopback to a client that only looks for its end.
func BenchmarkOutput(b *testing.B) {
	const size = 64 << 20
	r := newRig(b)
	web := httptest.NewServer(r.door)
	b.Cleanup(web.Close)
	transport, err := jsonrpc.Dial(b.Context(), "ws"+strings.TrimPrefix(web.URL, "http"), jsonrpc.DialOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer transport.Close("") //nolint:errcheck // nobody is told
	send := func(text string) {
		b.Helper()
		if err := transport.Write([]byte(text)); err != nil {
			b.Fatal(err)
		}
	}
	send(`{"id":"i","method":"initialize","params":{"clientName":"x"}}`)
	send(`{"method":"initialized"}`)
	b.SetBytes(size)
	for i := 0; b.Loop(); i++ {
		params, err := json.Marshal(r.startParams(fmt.Sprint(i), nil, "head", "-c", fmt.Sprint(size), "/dev/zero"))
		if err != nil {
			b.Fatal(err)
		}
		send(fmt.Sprintf(`{"id":%d,"method":"process/start","params":%s}`, i, params))
		for {
			message, err := transport.Read()
			if err != nil {
				b.Fatal(err)
			}
			if strings.HasPrefix(string(message[:min(len(message), 40)]), `{"method":"process/closed"`) {
				break
			}
		}
	}
}
