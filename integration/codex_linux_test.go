package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ws "github.com/coder/websocket"
)

// codexPeer returns the path of the real Codex, or skips with the reason.
func codexPeer(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CODEX"); path != "" {
		return path
	}
	if testing.Short() {
		t.Skip("the peer takes long")
	}
	out, err := exec.Command("./peer.sh").Output()
	if err != nil {
		t.Skipf("the Codex peer is not to be had: integration/peer.sh: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// codexServer starts an exec-server that speaks Codex's protocol and returns its URL.
func codexServer(t *testing.T, environ []string, argv ...string) string {
	t.Helper()
	command := exec.Command(argv[0], argv[1:]...)
	command.Env = environ
	var said lockedBuffer
	command.Stderr = &said
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		command.Wait()                          //nolint:errcheck // the signal
		if text := said.String(); t.Failed() && text != "" {
			t.Logf("%s said: %s", argv[0], text)
		}
		if strings.Contains(said.String(), "DATA RACE") {
			t.Error("the race detector has found something in the server")
		}
	})
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() {
		t.Fatalf("%s does not listen: %s", argv[0], said.String())
	}
	return lines.Text()
}

// rawClient sends messages as they are and sorts what comes.
type rawClient struct {
	t    *testing.T
	conn *ws.Conn
	dir  string // stands for $DIR in what is sent, and is that in what comes
	mu   sync.Mutex
	news chan struct{}
	got  []map[string]any // answers
	told []map[string]any // notifications
	lost error
}

func dialRaw(t *testing.T, url, dir string) *rawClient {
	t.Helper()
	conn, response, err := ws.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.Body != nil {
		response.Body.Close()
	}
	conn.SetReadLimit(-1)
	c := &rawClient{t: t, conn: conn, dir: dir, news: make(chan struct{}, 1)}
	over := make(chan struct{})
	go func() {
		defer close(over)
		c.read()
	}()
	t.Cleanup(func() {
		conn.CloseNow() //nolint:errcheck // nobody is told
		<-over
	})
	return c
}

func (c *rawClient) read() {
	for {
		_, text, err := c.conn.Read(context.Background())
		c.mu.Lock()
		var message map[string]any
		if err == nil {
			decoder := json.NewDecoder(strings.NewReader(strings.ReplaceAll(string(text), c.dir, "$DIR")))
			decoder.UseNumber()
			err = decoder.Decode(&message)
		}
		switch {
		case err != nil:
			c.lost = err
		case message["method"] != nil:
			c.told = append(c.told, message)
		default:
			c.got = append(c.got, message)
		}
		c.mu.Unlock()
		select {
		case c.news <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (c *rawClient) send(text string) {
	c.t.Helper()
	if err := c.conn.Write(c.t.Context(), ws.MessageText, []byte(strings.ReplaceAll(text, "$DIR", c.dir))); err != nil {
		c.t.Logf("send %.200s: %v", text, err)
	}
}

// wait waits until found says so, and tells false when the connection has ended, or patience has.
func (c *rawClient) wait(patience time.Duration, found func() bool) bool {
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		ok, lost := found(), c.lost
		c.mu.Unlock()
		if ok || lost != nil {
			return ok
		}
		select {
		case <-c.news:
		case <-timeout:
			return false
		}
	}
}

// answer sends a message and waits for one more answer.
func (c *rawClient) answer(text string) any {
	c.mu.Lock()
	before := len(c.got)
	c.mu.Unlock()
	c.send(text)
	if !c.wait(storyPatience, func() bool { return len(c.got) > before }) {
		if c.lost != nil {
			return "the connection was ended"
		}
		return "no answer"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[before]
}

// process is what was told of a process: its output by stream, its exit code, and whether it has closed.
func (c *rawClient) process(id string) map[string]any {
	about := map[string]any{}
	c.wait(storyPatience, func() bool {
		clear(about)
		var outputs []struct {
			seq    int64
			stream string
			data   []byte
		}
		for _, message := range c.told {
			params, _ := message["params"].(map[string]any)
			if params["processId"] != id {
				continue
			}
			seq, _ := params["seq"].(json.Number).Int64()
			switch message["method"] {
			case "process/output":
				var data []byte
				json.Unmarshal([]byte(`"`+params["chunk"].(string)+`"`), &data) //nolint:errcheck // then it is empty
				outputs = append(outputs, struct {
					seq    int64
					stream string
					data   []byte
				}{seq, params["stream"].(string), data})
			case "process/exited":
				about["exitCode"] = params["exitCode"]
			case "process/closed":
				about["closed"] = true
			}
		}
		slices.SortFunc(outputs, func(a, b struct {
			seq    int64
			stream string
			data   []byte
		}) int {
			return int(a.seq - b.seq)
		})
		for _, output := range outputs {
			text, _ := about[output.stream].(string)
			about[output.stream] = text + strings.ReplaceAll(string(output.data), c.dir, "$DIR")
		}
		return about["closed"] == true
	})
	return about
}

// leftOut are members whose values differ between any two servers, or two runs.
var leftOut = []string{
	"sessionId", "createdAtMs", "modifiedAtMs", "environmentInfo", "providerId", "seq", "nextSeq", "chunks", "message",
}

// normalised is an answer without what may differ: texts for people, times, ids that servers make.
func normalised(value any) any {
	switch v := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(v))
		for key, member := range v {
			if !slices.Contains(leftOut, key) {
				result[key] = normalised(member)
			}
		}
		return result
	case []any:
		result := make([]any, len(v))
		for i, member := range v {
			result[i] = normalised(member)
		}
		return result
	}
	return value
}

func shown(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	if len(text) > 600 {
		text = append(text[:600], "…"...)
	}
	return string(text)
}

// sorted puts the entries of a list in order, for answers that have none.
func sorted(value any) any {
	message, _ := value.(map[string]any)
	result, _ := message["result"].(map[string]any)
	if entries, ok := result["entries"].([]any); ok {
		slices.SortFunc(entries, func(a, b any) int { return strings.Compare(shown(a), shown(b)) })
	}
	return value
}

// TestCodexDifferences sends the same requests to Codex's own exec-server and to ours and compares the answers. What
// differs on purpose is said beside the request, and in docs/codex.md.
func TestCodexDifferences(t *testing.T) {
	peer := codexPeer(t)
	dir := programs(t)
	home := t.TempDir()
	environ := append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "CODEX_") }),
		"CODEX_HOME="+home, "WALDO_HOME="+filepath.Join(home, "waldo"), "SOME_SECRET=s", "PLAIN=p")
	theirs := codexServer(t, environ, peer, "exec-server", "--listen", "ws://127.0.0.1:0")
	ours := codexServer(t, environ, filepath.Join(dir, "exec-server"), "--listen", "ws://127.0.0.1:0", "--no-auth")
	clients := make([]*rawClient, 2)
	for i, url := range []string{theirs, ours} {
		clients[i] = dialRaw(t, url, prepareTree(t))
	}
	counted := 0
	for i, request := range codexRequests() {
		name := fmt.Sprintf("%03d %s", i, request.about())
		t.Run(name, func(t *testing.T) {
			var answers [2]any
			var asking sync.WaitGroup
			for k, c := range clients {
				asking.Go(func() {
					c.t = t
					answers[k] = request.ask(c, i)
				})
			}
			asking.Wait()
			counted++
			if request.checkOurs != "" {
				if text := shown(normalised(answers[1])); !strings.Contains(text, request.checkOurs) {
					t.Errorf("want %s\n got %s", request.checkOurs, shown(answers[1]))
				}
				if reflect.DeepEqual(normalised(sorted(answers[0])), normalised(sorted(answers[1]))) {
					t.Errorf("this is no difference any more (%s): %s", request.differs, shown(answers[1]))
				}
				return
			}
			if !reflect.DeepEqual(normalised(sorted(answers[0])), normalised(sorted(answers[1]))) {
				t.Errorf("%s\ntheirs %s\nours   %s", request.text, shown(answers[0]), shown(answers[1]))
			}
		})
		for k, c := range clients {
			c.mu.Lock()
			lost := c.lost
			c.mu.Unlock()
			if lost != nil { // asked for by the request: go on with a new one
				clients[k] = dialRaw(t, []string{theirs, ours}[k], c.dir)
				clients[k].answer(`{"id":"again","method":"initialize","params":{"clientName":"test"}}`)
				clients[k].send(`{"method":"initialized"}`)
			}
		}
	}
	t.Logf("%d requests", counted)
}

// prepareTree makes the files that the requests are about.
func prepareTree(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"d", "d/sub", "d/.hidden", "empty", "tree", "tree/one", "tree/one/two", "odd", "w", "w/d", "w/d/sub", "w/d/.hidden", "w/empty"} {
		must(os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	for name, content := range map[string]string{
		"a.txt": "hello\n", "b": "second", "d/x.txt": "x", "d/sub/y.txt": "y", "d/.hidden/z": "z", "tree/one/two/f": "f",
		"a b": "blank", "p%q": "percent", "ünï": "wide", "same": "same", "big": strings.Repeat("0123456789", 20000),
		"w/a.txt": "a", "w/b": "b", "w/d/x": "x", "w/d/sub/y": "y", "w/d/.hidden/z": "z", "w/ünï": "u",
	} {
		must(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	must(os.WriteFile(filepath.Join(dir, "odd", "bad\xff"), []byte("bytes"), 0o644))
	must(os.Chmod(filepath.Join(dir, "b"), 0o751))
	for link, target := range map[string]string{
		"link": "a.txt", "dangling": "nowhere", "loop": "loop", "dirlink": "d",
		"w/link": "a.txt", "w/dangling2": "nowhere", "w/loop": "loop", "w/dirlink": "d", "w/d/up": "..",
	} {
		must(os.Symlink(target, filepath.Join(dir, link)))
	}
	must(os.Link(filepath.Join(dir, "same"), filepath.Join(dir, "same2")))
	must(syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	must(syscall.Mkfifo(filepath.Join(dir, "w", "fifo"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "noexec"), []byte("#!/bin/sh\n"), 0o644))
	must(os.WriteFile(filepath.Join(dir, "notaprogram"), []byte("what"), 0o755))
	return dir
}
