package listen

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// exchange sends a request as it is and returns the answer.
func exchange(t *testing.T, l *Listener, request string) (*http.Response, string) {
	t.Helper()
	c := plain(t, l)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return response, ""
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return response, string(body)
}

func TestRequests(t *testing.T) {
	state := t.TempDir()
	l, addr := start(t, "ws://127.0.0.1:0", Options{
		StateDir:     state,
		AllowOrigins: []string{"https://good.example", "http://good.example:8080"},
		Hosts:        []string{"box.example"},
	}, allDoors)
	here := fmt.Sprintf("127.0.0.1:%d", addr.Port)
	port := fmt.Sprint(addr.Port)
	right := "Authorization: Bearer " + token(t, state)
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="

	tests := []struct {
		name    string
		line    string
		headers []string
		want    int
	}{
		{"right token", "GET /x", []string{"Host: " + here, right}, 200},
		{"scheme in another case", "GET /x", []string{"Host: " + here, strings.Replace(right, "Bearer", "bEARER", 1)}, 200},
		{"no token", "GET /x", []string{"Host: " + here}, 401},
		{"wrong token", "GET /x", []string{"Host: " + here, "Authorization: Bearer wrong"}, 401},
		{"half a token", "GET /x", []string{"Host: " + here, right[:len(right)-1]}, 401},
		{"empty token", "GET /x", []string{"Host: " + here, "Authorization: Bearer "}, 401},
		{"another scheme", "GET /x", []string{"Host: " + here, strings.Replace(right, "Bearer", "Basic", 1)}, 401},
		{"two tokens", "GET /x", []string{"Host: " + here, "Authorization: Bearer wrong", right}, 401},
		{"token in the query", "GET /x?token=" + token(t, state), []string{"Host: " + here}, 401},
		{"metrics", "GET /metrics", []string{"Host: " + here}, 401},
		{"unknown path without a token", "GET /nothing", []string{"Host: " + here}, 401},
		{"health", "GET /healthz", []string{"Host: " + here}, 200},
		{"ready", "HEAD /readyz", []string{"Host: " + here}, 200},
		{"health by POST", "POST /healthz", []string{"Host: " + here, "Content-Length: 0"}, 405},
		{"below health", "GET /healthz/x", []string{"Host: " + here}, 401},
		{"health with an origin", "GET /healthz", []string{"Host: " + here, "Origin: http://evil.test"}, 403},
		{"health of another host", "GET /healthz", []string{"Host: evil.test"}, 403},

		{"upgrade", "GET /mux", []string{"Host: " + here, right, upgrade}, 101},
		{"upgrade without a token", "GET /mux", []string{"Host: " + here, upgrade}, 401},
		{"no upgrade", "GET /mux", []string{"Host: " + here, right}, 426},

		// Browsers' pages, and names that were pointed here.
		{"name that starts like ours", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: http://localhost.evil.test"}, 403},
		{"name that ends like ours", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: http://evil-localhost"}, 403},
		{"name that starts like our address", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: http://127.0.0.1.evil.test"}, 403},
		{"null", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: null"}, 403},
		{"empty", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin:"}, 403},
		{"file", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: file://"}, 403},
		{"right host, wrong port", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: http://127.0.0.1:1"}, 403},
		{"our own address", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: http://" + here}, 403},
		{"origin is host", "GET /mux", []string{"Host: evil.test:" + port, right, upgrade, "Origin: http://evil.test:" + port}, 403},
		{"two origins", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: https://good.example", "Origin: http://evil.test"}, 403},
		{"two allowed origins", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: https://good.example", "Origin: https://good.example"}, 403},
		{"origins in one header", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: https://good.example http://evil.test"}, 403},
		{"IPv6 loopback", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: http://[::1]:" + port}, 403},
		{"allowed origin", "GET /mux", []string{"Host: " + here, right, upgrade, "Origin: https://good.example"}, 101},
		{"allowed origin with a port", "GET /x", []string{"Host: " + here, right, "Origin: http://good.example:8080"}, 200},
		{"allowed origin's other port", "GET /x", []string{"Host: " + here, right, "Origin: http://good.example"}, 403},
		{"allowed origin's subdomain", "GET /x", []string{"Host: " + here, right, "Origin: https://x.good.example"}, 403},
		{"allowed origin without a token", "GET /x", []string{"Host: " + here, "Origin: https://good.example"}, 401},

		{"foreign host", "GET /x", []string{"Host: evil.test:" + port, right}, 403},
		{"localhost", "GET /x", []string{"Host: localhost:" + port, right}, 200},
		{"LOCALHOST.", "GET /x", []string{"Host: LOCALHOST.", right}, 200},
		{"starts with localhost", "GET /x", []string{"Host: localhost.evil.test", right}, 403},
		{"ends with localhost", "GET /x", []string{"Host: evil.localhost", right}, 403},
		{"configured host", "GET /x", []string{"Host: Box.Example:1", right}, 200},
		{"IPv6", "GET /x", []string{"Host: [::1]:" + port, right}, 200},
		{"IPv6 without a port", "GET /x", []string{"Host: [::1]", right}, 200},
		{"not quite an address", "GET /x", []string{"Host: 127.0.0.1.evil.test", right}, 403},
		{"host in the request line", "GET http://evil.test/x", []string{"Host: " + here, right}, 403},
		{"two hosts", "GET /x", []string{"Host: " + here, "Host: evil.test", right}, 400},
		{"no host", "GET /x", []string{right}, 400},
		{"headers without end", "GET /x", []string{"Host: " + here, "X: " + strings.Repeat("x", maxHeader+8<<10)}, 431},
		{"not a request", "HELO there", nil, 400},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request := test.line + " HTTP/1.1\r\n" + strings.Join(append(test.headers, "", ""), "\r\n")
			response, body := exchange(t, l, request)
			if response.StatusCode != test.want {
				t.Fatalf("status %d %q, want %d", response.StatusCode, body, test.want)
			}
			if strings.Contains(body, token(t, state)) {
				t.Error("the answer has the token in it")
			}
			switch {
			case test.want == 401:
				if response.Header.Get("WWW-Authenticate") != "Bearer" || !response.Close {
					t.Errorf("headers %v", response.Header)
				}
			case test.want == 403 && !response.Close:
				t.Error("a refused connection stays open")
			case test.want == 200 && strings.Contains(test.line, "z"):
				if body != "" || !response.Close {
					t.Errorf("body %q, close %v", body, response.Close)
				}
			case test.want == 200 && body != "door /x trusted=false":
				t.Errorf("body %q", body)
			}
		})
	}

	t.Run("HTTP/1.0 without a host", func(t *testing.T) {
		if response, body := exchange(t, l, "GET /healthz HTTP/1.0\r\n\r\n"); response.StatusCode != 200 {
			t.Errorf("status %d %q", response.StatusCode, body)
		}
	})
	t.Run("one connection, many requests", func(t *testing.T) {
		c := plain(t, l)
		in := bufio.NewReader(c)
		for i := range 3 {
			fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", i, right)
			response, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || string(body) != fmt.Sprintf("door /%d trusted=false", i) {
				t.Errorf("%q, %v", body, err)
			}
		}
	})
	t.Run("no door", func(t *testing.T) {
		state := t.TempDir()
		l, _ := start(t, "ws://127.0.0.1:0", Options{StateDir: state}, Doors{})
		for _, path := range []string{"/", "/mux", "/metrics"} {
			request := "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + token(t, state) + "\r\n\r\n"
			if response, _ := exchange(t, l, request); response.StatusCode != 404 {
				t.Errorf("%s: status %d", path, response.StatusCode)
			}
		}
	})
}

func TestAllowedOriginsAreChecked(t *testing.T) {
	for _, origin := range []string{"*", "null", "", "good.example", "https://", "https://good.example/", "https://*.example", "https://Good.example", "https://u@good.example", "https://good.example?x", "file://"} {
		addr, err := ParseAddress("ws://127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := Listen(t.Context(), addr, Options{StateDir: t.TempDir(), AllowOrigins: []string{origin}})
		if err == nil {
			l.Close()
		}
		wantErr(t, err, "allowed origin")
	}
}

// Neither the right token nor a wrong one gets into a log or an answer, however it comes.
func TestTokensAreNotRepeated(t *testing.T) {
	const right, wrong = "tok-SENTINEL-123", "tok-SENTINEL-456"
	var log lockedBuffer
	file := write(t, filepath.Join(t.TempDir(), "token"), right, 0o600)
	_, addr := start(t, "tcp://127.0.0.1:0", Options{
		TokenFile: file,
		Log:       slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, allDoors)
	address := fmt.Sprintf("127.0.0.1:%d", addr.Port)
	for _, token := range []string{right, wrong} {
		for _, message := range []string{
			"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " + token + "\r\n\r\n",
			"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Basic " + token + "\r\n\r\n",
			"GET /x?token=" + token + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
			"GET /x?token=" + token + " HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n",
			"GET /x HTTP/1.1\r\nHost: localhost\r\nOrigin: " + token + "\r\n\r\n",
			"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nSec-WebSocket-Protocol: " + token + "\r\n\r\n",
			"GET /" + token + " nonsense\r\n\r\n",
			"\x00" + token + "x\n",
			"{" + token + "\n",
			"\x16" + token,
		} {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			c.SetDeadline(time.Now().Add(patience))
			io.WriteString(c, message)
			c.(*net.TCPConn).CloseWrite()
			answer, _ := io.ReadAll(c) // a reset is an end too
			c.Close()
			if strings.Contains(string(answer), "SENTINEL") {
				t.Errorf("%q is answered with %q", message, answer)
			}
		}
	}
	if text := log.String(); strings.Contains(text, "SENTINEL") || !strings.Contains(text, "refused a client") {
		t.Errorf("the log is %s", text)
	}
}

// lockedBuffer is a log that many write to.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
