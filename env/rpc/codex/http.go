package codex

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"waldo/wire/jsonrpc"
)

const (
	maxBody   = 512 << 20 // of an answer that is not streamed
	bodyPiece = 256 << 10 // of one that is
)

type httpParams struct {
	Method         string       `json:"method"`
	URL            string       `json:"url"`
	RequestID      string       `json:"requestId"`
	Headers        []httpHeader `json:"headers,omitempty"`
	BodyBase64     *string      `json:"bodyBase64"`
	TimeoutMS      *uint64      `json:"timeoutMs"`
	RedirectPolicy *string      `json:"redirectPolicy"`
	StreamResponse bool         `json:"streamResponse,omitempty"`
}

type httpHeader struct {
	Name        string  `json:"name"`
	Value       string  `json:"value"`
	ValueEnvVar *string `json:"valueEnvVar"`
}

type httpHeaderResult struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type httpResult struct {
	Status  int                `json:"status"`
	Headers []httpHeaderResult `json:"headers"`
	Body    []byte             `json:"bodyBase64"`
}

// web is the HTTP client of a connection: its requests leave from the machine.
func (c *connection) web() *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport == nil {
		c.transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return c.door.env.Dial(ctx, network, address)
			},
			IdleConnTimeout:     90 * time.Second,
			TLSHandshakeTimeout: 30 * time.Second,
		}
	}
	return c.transport
}

// request makes the request that params ask for.
func (c *connection) request(params *httpParams) (*http.Request, error) {
	text := params.URL
	for _, scheme := range []string{"http:", "https:"} { // as browsers take it: any number of slashes
		if rest, ok := strings.CutPrefix(text, scheme); ok {
			text = scheme + "//" + strings.TrimLeft(rest, "/")
		}
	}
	target, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, invalidParams("http/request url is invalid: %v", err)
	case target.Scheme == "":
		return nil, invalidParams("http/request url is invalid: relative URL without a base")
	case target.Scheme != "http" && target.Scheme != "https":
		return nil, invalidParams("http/request only supports http and https URLs, got %s", target.Scheme)
	case target.Host == "":
		return nil, invalidParams("http/request url is invalid: empty host")
	case !isToken(params.Method):
		return nil, invalidParams("http/request method is invalid: invalid HTTP method")
	}
	if policy := params.RedirectPolicy; policy != nil {
		if err := oneOf("redirectPolicy", *policy, "follow", "stop"); err != nil {
			return nil, err
		}
	}
	var body io.Reader
	if params.BodyBase64 != nil {
		data, err := base64.StdEncoding.Strict().DecodeString(*params.BodyBase64)
		if err != nil {
			return nil, invalidParams("http/request bodyBase64 is invalid: %v", err)
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequest(params.Method, text, body) //nolint:noctx // the call's own comes later
	if err != nil {
		return nil, invalidParams("http/request url is invalid: %v", err)
	}
	r.Header = http.Header{"Accept": {"*/*"}, "User-Agent": {""}}
	given := make(http.Header)
	for _, header := range params.Headers {
		value, err := c.headerValue(header)
		if err != nil {
			return nil, err
		}
		given.Add(header.Name, value)
		if strings.EqualFold(header.Name, "Host") {
			r.Host = value
		}
	}
	maps.Copy(r.Header, given)
	return r, nil
}

// headerValue is the value of a header, with what the machine adds to it from a variable.
func (c *connection) headerValue(header httpHeader) (string, error) {
	if !isToken(header.Name) {
		return "", invalidParams("http/request header name is invalid: invalid HTTP header name")
	}
	value := header.Value
	if name := header.ValueEnvVar; name != nil {
		set, found := "", false
		for _, entry := range c.door.environ(c.options.Origin) {
			if key, rest, ok := strings.Cut(entry, "="); ok && key == *name {
				set, found = rest, true
			}
		}
		switch {
		case !found:
			return "", invalidParams("http/request header %s requires executor environment variable %s", header.Name, *name)
		case set == "":
			return "", invalidParams("http/request header %s requires a non-empty executor environment variable %s", header.Name, *name)
		}
		value += set
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", invalidParams("http/request header value is invalid for %s: failed to parse header value", header.Name)
	}
	return value, nil
}

// isToken tells whether text can be the name of a method or of a header.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// prepareHTTP takes the request's id, if its answer is to be streamed, in the order of the calls.
func prepareHTTP(c *connection, params *httpParams) (call, error) {
	request, err := c.request(params)
	if err != nil {
		return call{}, err
	}
	stream := params.StreamResponse
	free := func() {}
	if stream {
		c.mu.Lock()
		active := c.streams[params.RequestID]
		c.streams[params.RequestID] = true
		c.mu.Unlock()
		if active {
			return call{}, invalidParams("http/request streamResponse requestId `%s` is already active", params.RequestID)
		}
		free = func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.streams, params.RequestID)
		}
	}
	var body io.ReadCloser
	cancel := func() {}
	return call{
		do: func(ctx context.Context) (any, error) {
			if params.TimeoutMS != nil {
				timeout := time.Duration(min(*params.TimeoutMS, uint64(1<<62/time.Millisecond))) * time.Millisecond
				ctx, cancel = context.WithTimeout(ctx, timeout)
			}
			client := &http.Client{Transport: c.web()}
			if params.RedirectPolicy != nil && *params.RedirectPolicy == "stop" {
				client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			}
			response, err := client.Do(request.WithContext(ctx))
			if err != nil {
				if errors.Is(err, context.DeadlineExceeded) {
					err = errors.New("route-aware request timed out")
				}
				return nil, internal("http/request failed: %v", err)
			}
			result := httpResult{Status: response.StatusCode, Headers: headersOf(response.Header), Body: []byte{}}
			if stream {
				body = response.Body
				return result, nil
			}
			defer cancel()
			defer response.Body.Close() //nolint:errcheck // only read
			result.Body, err = io.ReadAll(io.LimitReader(response.Body, maxBody+1))
			if err == nil && len(result.Body) > maxBody {
				err = fmt.Errorf("it has more than %d bytes; ask for a stream", maxBody)
			}
			if err != nil {
				return nil, internal("failed to read http/request response body: %v", err)
			}
			return result, nil
		},
		then: func(ctx context.Context) {
			defer cancel()
			if body != nil {
				defer body.Close() //nolint:errcheck // only read
				c.streamBody(ctx, params.RequestID, body, free)
				return
			}
			free()
		},
		undone: free,
	}, nil
}

func headersOf(header http.Header) []httpHeaderResult {
	headers := []httpHeaderResult{}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			if strings.ToValidUTF8(value, "") == value {
				headers = append(headers, httpHeaderResult{strings.ToLower(name), value})
			}
		}
	}
	return headers
}

// bodyDelta is a piece of a body that is being streamed.
type bodyDelta struct {
	requestID string
	seq       uint64
	data      []byte
	done      bool
	failure   string
}

// AppendJSON implements [jsonrpc.Appender].
func (d bodyDelta) AppendJSON(b []byte) []byte {
	b = jsonrpc.AppendString(append(b, `{"requestId":`...), d.requestID)
	b = strconv.AppendUint(append(b, `,"seq":`...), d.seq, 10)
	b = jsonrpc.AppendBase64(append(b, `,"deltaBase64":`...), d.data)
	b = strconv.AppendBool(append(b, `,"done":`...), d.done)
	if d.failure == "" {
		return append(b, `,"error":null}`...)
	}
	return append(jsonrpc.AppendString(append(b, `,"error":`...), d.failure), '}')
}

// streamBody sends a body as it comes. free frees the request's id, before the end is told.
func (c *connection) streamBody(ctx context.Context, id string, body io.Reader, free func()) {
	piece := make([]byte, bodyPiece)
	for seq := uint64(1); ; {
		n, err := body.Read(piece)
		if n > 0 {
			if c.peer.Notify(ctx, "http/request/bodyDelta", bodyDelta{requestID: id, seq: seq, data: piece[:n]}) != nil {
				free()
				return
			}
			seq++
		}
		if err == nil {
			continue
		}
		last := bodyDelta{requestID: id, seq: seq, done: true}
		if err != io.EOF {
			last.failure = fmt.Sprintf("error decoding response body: %v", err)
		}
		free()
		c.peer.Notify(ctx, "http/request/bodyDelta", last) //nolint:errcheck // the client is gone
		return
	}
}
