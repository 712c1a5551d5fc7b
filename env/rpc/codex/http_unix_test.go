//go:build unix

package codex

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"waldo/wire/jsonrpc"
)

func TestHTTP(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	body := bytes.Repeat([]byte("stream"), 200_000)
	stuck := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/echo":
			sent, _ := io.ReadAll(q.Body)
			w.Header().Set("X-Seen", strings.Join([]string{q.Method, q.Header.Get("Accept"), q.Header.Get("User-Agent"), q.Header.Get("X-Secret"), q.Host}, "|"))
			w.Header().Add("X-Two", "1")
			w.Header().Add("X-Two", "2")
			w.WriteHeader(http.StatusTeapot)
			w.Write(sent) //nolint:errcheck // the client notices
		case "/away":
			http.Redirect(w, q, "/echo", http.StatusFound)
		case "/stream":
			w.Write(body) //nolint:errcheck // the client notices
		case "/stuck":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			select {
			case <-stuck:
			case <-q.Context().Done():
			}
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stuck) })
	request := func(path string, more map[string]any) map[string]any {
		params := map[string]any{"method": "GET", "url": server.URL + path, "requestId": "r"}
		for key, value := range more {
			params[key] = value
		}
		return params
	}
	var result struct {
		Status  int                `json:"status"`
		Headers []httpHeaderResult `json:"headers"`
		Body    []byte             `json:"bodyBase64"`
	}
	header := func(name string) (values []string) {
		for _, h := range result.Headers {
			if h.Name == name {
				values = append(values, h.Value)
			}
		}
		return values
	}
	c.call("http/request", request("/echo", map[string]any{
		"method": "POST", "bodyBase64": []byte("sent"),
		"headers": []any{map[string]any{"name": "x-secret", "value": "is ", "valueEnvVar": "DOOR_TEST"}, map[string]any{"name": "host", "value": "other"}},
	}), &result)
	if result.Status != http.StatusTeapot || string(result.Body) != "sent" || len(header("x-two")) != 2 || header("x-seen")[0] != "POST|*/*||is value|other" {
		t.Errorf("%+v", result)
	}
	c.call("http/request", request("/away", nil), &result)
	if result.Status != http.StatusTeapot {
		t.Errorf("followed: %d", result.Status)
	}
	c.call("http/request", request("/away", map[string]any{"redirectPolicy": "stop"}), &result)
	if result.Status != http.StatusFound {
		t.Errorf("not followed: %d", result.Status)
	}
	c.refused("http/request", request("/", map[string]any{"headers": []any{map[string]any{"name": "a", "value": "", "valueEnvVar": "DOOR_NONE"}}}),
		jsonrpc.CodeInvalidParams, "http/request header a requires executor environment variable DOOR_NONE")
	c.refused("http/request", request("/", map[string]any{"headers": []any{map[string]any{"name": "a", "value": "", "valueEnvVar": "DOOR_EMPTY"}}}),
		jsonrpc.CodeInvalidParams, "requires a non-empty executor environment variable DOOR_EMPTY")
	c.refused("http/request", map[string]any{"method": "GET", "url": "ftp://x/", "requestId": "r"}, jsonrpc.CodeInvalidParams, "http/request only supports http and https URLs, got ftp")
	c.refused("http/request", request("/", map[string]any{"timeoutMs": 0}), jsonrpc.CodeInternal, "http/request failed: route-aware request timed out")
	c.refused("http/request", request("/stuck", map[string]any{"timeoutMs": 50}), jsonrpc.CodeInternal, "failed to read http/request response body")

	streamed := func(id string) (got []byte, failure string) {
		t.Helper()
		c.await("end of stream "+id, func(all []told) bool {
			got = nil
			next := uint64(1)
			for _, one := range all {
				var delta struct {
					RequestID string  `json:"requestId"`
					Seq       uint64  `json:"seq"`
					Delta     []byte  `json:"deltaBase64"`
					Done      bool    `json:"done"`
					Error     *string `json:"error"`
				}
				if one.method != "http/request/bodyDelta" || json.Unmarshal(one.params, &delta) != nil || delta.RequestID != id {
					continue
				}
				if delta.Seq != next {
					t.Fatalf("delta %d, want %d", delta.Seq, next)
				}
				next++
				got = append(got, delta.Delta...)
				if delta.Done {
					if delta.Error != nil {
						failure = *delta.Error
					}
					return true
				}
			}
			return false
		})
		return got, failure
	}
	c.call("http/request", request("/stream", map[string]any{"requestId": "s1", "streamResponse": true}), &result)
	if got, failure := streamed("s1"); !bytes.Equal(got, body) || failure != "" {
		t.Errorf("%d bytes, %q", len(got), failure)
	}
	c.call("http/request", request("/stuck", map[string]any{"requestId": "s2", "streamResponse": true, "timeoutMs": 200}), &result)
	c.refused("http/request", request("/stuck", map[string]any{"requestId": "s2", "streamResponse": true}), jsonrpc.CodeInvalidParams, "http/request streamResponse requestId `s2` is already active")
	if _, failure := streamed("s2"); failure == "" {
		t.Error("a body that did not come in time is told as whole")
	}
	c.call("http/request", request("/stuck", map[string]any{"requestId": "s3", "streamResponse": true}), &result)
	c.cut() // ends it
}
