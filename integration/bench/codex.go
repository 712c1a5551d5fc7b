//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"github.com/coder/websocket"
)

// codexServer is Codex's exec-server as a child, with the settings it has by itself.
type codexServer struct {
	*program
	url string
}

// startCodex starts Codex's exec-server; nil, with the reason told, if it is not measured.
func (b *bench) startCodex(ctx context.Context) *codexServer {
	if b.codex == "" {
		return nil
	}
	home, err := os.MkdirTemp(b.dir, "codex-")
	if err != nil {
		b.leaveOut(ctx, err)
		return nil
	}
	c := exec.Command(b.codex, "exec-server", "--listen", "ws://127.0.0.1:0")
	c.Env = append(os.Environ(), "CODEX_HOME="+home)
	p, err := b.start(ctx, c)
	if err != nil {
		b.leaveOut(ctx, err)
		return nil
	}
	return &codexServer{p, p.first}
}

// connectCodex starts Codex's exec-server and connects; both are nil if it is not measured.
func (b *bench) connectCodex(ctx context.Context) (*codexServer, *codexClient) {
	s := b.startCodex(ctx)
	if s == nil {
		return nil, nil
	}
	c, err := dialCodex(ctx, s.url)
	if err == nil {
		err = c.ready(ctx)
	}
	if err != nil {
		b.leaveOut(ctx, err)
		s.stop()
		return nil, nil
	}
	return s, c
}

// codexClient speaks with Codex's exec-server. It is made not to be what limits: requests are not held back for
// answers, and output, nearly all of what comes, is found and decoded without a JSON parser.
type codexClient struct {
	ws      *websocket.Conn
	session codexAnswer // to initialize

	mu        sync.Mutex
	lastID    int64
	answers   map[int64]codexAnswer
	processes map[string]*codexProcess
	lost      error
	ended     chan struct{}
}

type codexAnswer chan codexMessage

// codexMessage is what both an answer and a notification may hold.
type codexMessage struct {
	ID     int64           `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Params struct {
		ProcessID string `json:"processId"`
		ExitCode  int    `json:"exitCode"`
		Chunk     []byte `json:"chunk"`
	} `json:"params"`
}

// codexProcess is one process of the peer. onOutput is called by the client's reader and must not keep the bytes.
type codexProcess struct {
	client   *codexClient
	id       string
	onOutput func([]byte)
	exited   chan int // gets the exit code
	closed   chan struct{}
	writes   int
	told     int // how many of exited and closed have come; guarded by client.mu
}

// dialCodex connects. The handshake's messages are sent without waiting for an answer, which the peer allows.
func dialCodex(ctx context.Context, url string) (*codexClient, error) {
	ws, _, err := websocket.Dial(ctx, url, nil) //nolint:bodyclose // the library has it
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(-1)
	c := &codexClient{
		ws:        ws,
		answers:   make(map[int64]codexAnswer),
		processes: make(map[string]*codexProcess),
		ended:     make(chan struct{}),
	}
	go c.read()
	c.session, err = c.send(ctx, "initialize", map[string]any{"clientName": "bench"})
	if err == nil {
		err = c.write(ctx, map[string]any{"method": "initialized"})
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// ready waits until the peer has accepted the client.
func (c *codexClient) ready(ctx context.Context) error { return c.wait(ctx, c.session, nil) }

func (c *codexClient) close() {
	c.ws.CloseNow() //nolint:errcheck // nobody is told
	<-c.ended
}

func (c *codexClient) write(ctx context.Context, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return c.ws.Write(ctx, websocket.MessageText, text)
}

// send sends a request.
func (c *codexClient) send(ctx context.Context, method string, params any) (codexAnswer, error) {
	answer := make(codexAnswer, 1)
	c.mu.Lock()
	c.lastID++
	id := c.lastID
	c.answers[id] = answer
	c.mu.Unlock()
	return answer, c.write(ctx, struct {
		ID     int64  `json:"id"`
		Method string `json:"method"`
		Params any    `json:"params"`
	}{id, method, params})
}

// wait waits for the answer to a request and decodes it into result, unless that is nil.
func (c *codexClient) wait(ctx context.Context, answer codexAnswer, result any) error {
	select {
	case m := <-answer:
		if m.Error != nil {
			return fmt.Errorf("the peer says %d: %s", m.Error.Code, m.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-c.ended:
		return c.lost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *codexClient) call(ctx context.Context, method string, params, result any) error {
	answer, err := c.send(ctx, method, params)
	if err != nil {
		return err
	}
	return c.wait(ctx, answer, result)
}

// begin asks for a process. answer tells whether it has started; output may come before.
func (c *codexClient) begin(ctx context.Context, tty bool, onOutput func([]byte), argv ...string) (p *codexProcess, answer codexAnswer, err error) {
	p = &codexProcess{client: c, onOutput: onOutput, exited: make(chan int, 1), closed: make(chan struct{})}
	c.mu.Lock()
	c.lastID++
	p.id = "p" + strconv.FormatInt(c.lastID, 10)
	c.processes[p.id] = p
	c.mu.Unlock()
	answer, err = c.send(ctx, "process/start", map[string]any{
		"processId": p.id,
		"argv":      argv,
		"cwd":       (&url.URL{Scheme: "file", Path: os.TempDir()}).String(),
		"env":       map[string]string{"PATH": os.Getenv("PATH")},
		"tty":       tty,
	})
	return p, answer, err
}

// start starts a process.
func (c *codexClient) start(ctx context.Context, tty bool, onOutput func([]byte), argv ...string) (*codexProcess, error) {
	p, answer, err := c.begin(ctx, tty, onOutput, argv...)
	if err != nil {
		return nil, err
	}
	return p, c.wait(ctx, answer, nil)
}

// await waits for the exit of a process.
func (p *codexProcess) await(ctx context.Context) error {
	select {
	case code := <-p.exited:
		if code != 0 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	case <-p.client.ended:
		return p.client.lost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitClosed waits for the end of its output.
func (p *codexProcess) awaitClosed(ctx context.Context) error {
	select {
	case <-p.closed:
		return nil
	case <-p.client.ended:
		return p.client.lost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write sends input without waiting for the answer.
func (p *codexProcess) write(ctx context.Context, input []byte) error {
	p.writes++
	_, err := p.client.send(ctx, "process/write", map[string]any{
		"processId": p.id, "chunk": input, "writeId": strconv.Itoa(p.writes),
	})
	return err
}

// read is the goroutine that receives.
func (c *codexClient) read() {
	defer close(c.ended)
	var message bytes.Buffer
	var scratch []byte
	for {
		_, r, err := c.ws.Reader(context.Background())
		if err == nil {
			message.Reset()
			_, err = message.ReadFrom(r)
		}
		if err != nil {
			c.lost = fmt.Errorf("connection to the peer: %w", errors.Join(err, io.ErrUnexpectedEOF))
			return
		}
		if scratch, err = c.dispatch(message.Bytes(), scratch); err != nil {
			c.lost = err
			return
		}
	}
}

var outputStart = []byte(`{"method":"process/output","params":{"processId":"`)

// dispatch hands a message to whom it is for. scratch is reused for decoded output.
func (c *codexClient) dispatch(text, scratch []byte) ([]byte, error) {
	if rest, ok := bytes.CutPrefix(text, outputStart); ok {
		id, rest, _ := bytes.Cut(rest, []byte(`"`)) // ids and base64 hold nothing that JSON escapes
		_, chunk, found := bytes.Cut(rest, []byte(`"chunk":"`))
		if end := bytes.IndexByte(chunk, '"'); found && end >= 0 {
			scratch = grown(scratch, base64.StdEncoding.DecodedLen(end))
			n, err := base64.StdEncoding.Decode(scratch, chunk[:end])
			if err != nil {
				return scratch, fmt.Errorf("output of the peer: %w", err)
			}
			c.mu.Lock()
			p := c.processes[string(id)]
			c.mu.Unlock()
			if p != nil && p.onOutput != nil {
				p.onOutput(scratch[:n])
			}
			return scratch, nil
		}
	}
	var m codexMessage
	if err := json.Unmarshal(text, &m); err != nil {
		return scratch, fmt.Errorf("message of the peer: %w", err)
	}
	c.mu.Lock()
	p := c.processes[m.Params.ProcessID]
	answer := c.answers[m.ID]
	if m.Method == "" {
		delete(c.answers, m.ID)
	}
	if p != nil && (m.Method == "process/exited" || m.Method == "process/closed") {
		// They come in either order: now and then closed is first.
		if p.told++; p.told == 2 {
			delete(c.processes, p.id)
		}
	}
	c.mu.Unlock()
	switch {
	case m.Method == "" && answer != nil:
		answer <- m
	case p == nil:
	case m.Method == "process/output" && p.onOutput != nil:
		p.onOutput(m.Params.Chunk)
	case m.Method == "process/exited":
		p.exited <- m.Params.ExitCode
	case m.Method == "process/closed":
		close(p.closed)
	}
	return scratch, nil
}

func grown(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}
