//go:build unix

package codex

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"waldo/env"
	"waldo/wire/jsonrpc"
)

func TestLives(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	for _, test := range []struct {
		name   string
		more   map[string]any
		script string
		output map[string]string
		code   int64
	}{
		{"streams", nil, "echo out; echo err >&2; exit 3", map[string]string{"stdout": "out\n", "stderr": "err\n"}, 3},
		{"silent", nil, "exit 0", map[string]string{}, 0},
		{"killed", nil, "kill -KILL $$", map[string]string{}, 137},
		{"", nil, "echo of no name", map[string]string{"stdout": "of no name\n"}, 0},
		{"terminal", map[string]any{"tty": true}, "stty size; exit 4", map[string]string{"pty": "24 80\r\n"}, 4},
		{"terminal killed", map[string]any{"tty": true}, "kill -TERM $$", map[string]string{}, 143},
		{"environment", nil, "echo $HOME-$X", map[string]string{"stdout": "-\n"}, 0},
		{"arg0", map[string]any{"arg0": "other"}, "echo $0", map[string]string{"stdout": "other\n"}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.start(test.name, test.more, "/bin/sh", "-c", test.script)
			l := c.ended(test.name)
			if fmt.Sprint(l.output) != fmt.Sprint(test.output) || l.code != test.code {
				t.Errorf("got %q, exit %d, want %q, %d", l.output, l.code, test.output, test.code)
			}
			if last := len(l.events) - 1; l.events[last] != "closed" || l.events[last-1] != "exited" {
				t.Errorf("events %v", l.events)
			}
			c.refused("process/start", r.startParams(test.name, nil, "/bin/sh"), jsonrpc.CodeInvalidRequest, "process "+test.name+" already exists")
		})
	}
}

// The exit has its place: behind what the leader wrote, before what others write later; and closed waits for them.
func TestExitAmongOutput(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	if err := syscall.Mkfifo(r.dir+"/go", 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("p", nil, "/bin/sh", "-c", "(read x <go; echo later) & echo first; exit 5")
	c.await("exit", func(all []told) bool {
		return len(all) > 0 && all[len(all)-1].method == "process/exited"
	})
	r.write("\n", "go")
	l := c.ended("p")
	if got := strings.Join(l.events, " "); got != "output exited output closed" || l.output["stdout"] != "first\nlater\n" || l.code != 5 {
		t.Errorf("%s: %+v", got, l)
	}
}

// Nothing delays the end of a process: not polls, not writes to one that reads nothing, not a FIFO.
func TestNothingWaitsForAnother(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	if err := syscall.Mkfifo(r.dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("p", map[string]any{"pipeStdin": true}, "/bin/sh", "-c", "sleep 1000")
	var waiting sync.WaitGroup
	for i := range 20 {
		waiting.Go(func() { c.call("process/read", map[string]any{"processId": "p", "waitMs": 600_000}, nil) })
		waiting.Go(func() {
			c.try("process/write", map[string]any{"processId": "p", "chunk": make([]byte, 256<<10), "writeId": fmt.Sprint(i)}, nil) //nolint:errcheck // it may come too late
		})
	}
	c.refused("fs/writeFile", map[string]any{"path": r.uri("fifo"), "dataBase64": "YQ=="}, jsonrpc.CodeInvalidRequest, "not a regular file")
	c.refused("fs/readFile", map[string]any{"path": r.uri("fifo")}, jsonrpc.CodeInvalidRequest, "is not a file")
	c.call("environment/status", nil, nil)
	var result terminateResult
	c.call("process/terminate", map[string]any{"processId": "p"}, &result)
	if !result.Running {
		t.Error("it is said not to run")
	}
	if l := c.ended("p"); l.code != 137 {
		t.Errorf("exit code %d", l.code)
	}
	waiting.Wait()
	var status writeResult
	c.call("process/write", map[string]any{"processId": "p", "chunk": "YQ==", "writeId": "late"}, &status)
	if status.Status != "stdinClosed" {
		t.Errorf("a write to what has ended is %q", status.Status)
	}
}

// Requests sent without waiting for answers are all answered, and input keeps its order.
func TestPipelined(t *testing.T) {
	r := newRig(t)
	near, far := net.Pipe()
	defer near.Close()
	r.serving.Go(func() {
		r.door.Serve(context.Background(), jsonrpc.NewLines(far, jsonrpc.Options{}), ServeOptions{Remote: "test"})
	})
	const writes = 1000
	params, err := json.Marshal(r.startParams("p", map[string]any{"pipeStdin": true}, "/bin/cat"))
	if err != nil {
		t.Fatal(err)
	}
	var text, want strings.Builder
	text.WriteString(`{"id":"i","method":"initialize","params":{"clientName":"x"}}` + "\n" + `{"method":"initialized"}` + "\n")
	fmt.Fprintf(&text, `{"id":"s","method":"process/start","params":%s}`+"\n", params)
	for i := range writes {
		line := fmt.Sprintf("%d\n", i)
		want.WriteString(line)
		fmt.Fprintf(&text, `{"id":%d,"method":"process/write","params":{"processId":"p","writeId":"%d","chunk":%q}}`+"\n", i, i, base64.StdEncoding.EncodeToString([]byte(line)))
		fmt.Fprintf(&text, `{"id":"m%d","method":"fs/getMetadata","params":{"path":%q}}`+"\n", i, r.uri())
	}
	sending := make(chan error, 1)
	go func() {
		_, err := near.Write([]byte(text.String()))
		sending <- err
	}()
	near.SetReadDeadline(time.Now().Add(patience)) //nolint:errcheck // a pipe has deadlines
	answers, got := 0, ""
	for lines := bufio.NewScanner(near); (answers < 2*writes+2 || len(got) < want.Len()) && lines.Scan(); {
		var message struct {
			ID     any             `json:"id"`
			Error  *jsonrpc.Error  `json:"error"`
			Params processEvent    `json:"params"`
			Result json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			t.Fatal(err)
		}
		switch {
		case message.Error != nil:
			t.Fatalf("%v: %v", message.ID, message.Error)
		case message.ID != nil:
			answers++
		default:
			got += string(message.Params.Chunk)
		}
	}
	if err := <-sending; err != nil {
		t.Error(err)
	}
	if answers != 2*writes+2 || got != want.String() {
		t.Errorf("%d answers; %d bytes came back, which is equal: %t", answers, len(got), got == want.String())
	}
}

// A repeated write is written once, across connections too.
func TestWriteIDs(t *testing.T) {
	r := newRig(t)
	c, session := r.open("")
	c.start("p", map[string]any{"pipeStdin": true}, "/bin/sh", "-c", "read a; read b; echo $a $b")
	write := func(c *client, text, id string) {
		t.Helper()
		var result writeResult
		c.call("process/write", map[string]any{"processId": "p", "chunk": []byte(text), "writeId": id}, &result)
		if result.Status != "accepted" {
			t.Errorf("write %s: %s", id, result.Status)
		}
	}
	write(c, "one\n", "1")
	write(c, "one\n", "1")
	c.cut()
	c, _ = r.open(session)
	write(c, "one\n", "1")
	write(c, "two\n", "2")
	c.await("output", func(all []told) bool { return len(all) > 0 })
	var result struct {
		Chunks []processEvent `json:"chunks"`
		Closed bool           `json:"closed"`
	}
	for !result.Closed {
		c.call("process/read", map[string]any{"processId": "p", "waitMs": 10_000, "afterSeq": 2}, &result)
	}
	c.call("process/read", map[string]any{"processId": "p"}, &result)
	if len(result.Chunks) != 1 || string(result.Chunks[0].Chunk) != "one two\n" {
		t.Errorf("%+v", result)
	}
}

// codexLike is a client that recovers as Codex's own does.
type codexLike struct {
	rig     *rig
	session string
	*client

	mu      sync.Mutex
	last    uint64 // number up to which all has come
	early   map[uint64]func()
	output  []byte
	code    int64
	closed  bool
	changed chan struct{}
}

// take takes an event in the order of the numbers.
func (c *codexLike) take(seq uint64, do func()) {
	if seq <= c.last {
		return
	}
	c.early[seq] = do
	for c.early[c.last+1] != nil {
		c.last++
		c.early[c.last]()
		delete(c.early, c.last)
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *codexLike) hear(one told) {
	var event processEvent
	if json.Unmarshal(one.params, &event) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.take(event.Seq, func() { c.apply(one.method, event) })
}

func (c *codexLike) apply(method string, event processEvent) {
	switch method {
	case "process/output":
		c.output = append(c.output, event.Chunk...)
	case "process/exited":
		c.code = event.ExitCode
	case "process/closed":
		c.closed = true
	}
}

// connect connects, and asks for what was missed.
func (c *codexLike) connect() error {
	c.client = c.rig.dial()
	c.client.seen = c.hear
	session, err := c.initialize(c.session)
	if err != nil {
		return err
	}
	resumed := c.session != ""
	c.session = session
	if !resumed {
		return nil
	}
	c.mu.Lock()
	after := c.last
	c.mu.Unlock()
	var result struct {
		Chunks   []processEvent `json:"chunks"`
		NextSeq  uint64         `json:"nextSeq"`
		Exited   bool           `json:"exited"`
		ExitCode *int64         `json:"exitCode"`
		Closed   bool           `json:"closed"`
		Failure  *string        `json:"failure"`
	}
	if err := c.try("process/read", map[string]any{"processId": "p", "afterSeq": after, "maxBytes": nil, "waitMs": 0}, &result); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if result.Failure != nil {
		c.rig.Errorf("failure %q", *result.Failure)
	}
	seen := map[uint64]bool{}
	for _, chunk := range result.Chunks {
		seen[chunk.Seq] = true
		c.take(chunk.Seq, func() { c.apply("process/output", chunk) })
	}
	// What has a number and is no output is the exit, and then the end.
	exited := false
	for seq := after + 1; seq < result.NextSeq; seq++ {
		switch {
		case seen[seq] || seq <= c.last:
		case result.Exited && !exited:
			exited = true
			c.take(seq, func() { c.code = *result.ExitCode })
		case result.Closed && seq == result.NextSeq-1:
			c.take(seq, func() { c.closed = true })
		default:
			c.rig.Errorf("number %d of %d is missing after %d", seq, result.NextSeq, after)
		}
	}
	return nil
}

// A connection that is cut again and again loses nothing of a process's output and input, and doubles nothing.
func TestCuts(t *testing.T) {
	r := newRig(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	c := &codexLike{rig: r, early: make(map[uint64]func()), changed: make(chan struct{}, 1)}
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	c.start("p", map[string]any{"pipeStdin": true}, "/bin/cat")
	var sent []byte
	cuts := 30
	if testing.Short() {
		cuts = 10
	}
	for i := range cuts {
		piece := make([]byte, 1+random.IntN(400_000))
		for k := range piece {
			piece[k] = byte(random.Uint32())
		}
		sent = append(sent, piece...)
		params := map[string]any{"processId": "p", "chunk": piece, "writeId": fmt.Sprint(i)}
		after := time.Duration(random.IntN(3000)) * time.Microsecond
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		answered := make(chan error, 1)
		go func() { answered <- c.peer.Call(ctx, "process/write", params, nil) }()
		timer := time.NewTimer(after) // the moment is what is random here
		select {
		case err := <-answered:
			answered <- err
			<-timer.C
		case <-timer.C:
		}
		c.cut()
		err := <-answered
		cancel()
		if reconnect := c.connect(); reconnect != nil {
			t.Fatal(reconnect)
		}
		if err != nil { // whether it was taken is not known: it is repeated
			if err := c.try("process/write", params, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for {
		c.mu.Lock()
		whole := len(c.output) >= len(sent)
		c.mu.Unlock()
		if whole {
			break
		}
		select {
		case <-c.changed:
		case <-time.After(patience):
			t.Fatalf("%d of %d bytes came back", len(c.output), len(sent))
		}
	}
	c.mu.Lock()
	if sha256.Sum256(c.output) != sha256.Sum256(sent) {
		t.Errorf("%d bytes came back, other than the %d that were sent", len(c.output), len(sent))
	}
	c.mu.Unlock()
	c.call("process/terminate", map[string]any{"processId": "p"}, nil)
	for closed := false; !closed; {
		select {
		case <-c.changed:
		case <-time.After(patience):
			t.Fatal("it does not close")
		}
		c.mu.Lock()
		closed = c.closed
		c.mu.Unlock()
	}
}

// What is printed while nobody is there is kept, far more than Codex keeps.
func TestDetachedOutput(t *testing.T) {
	r := newRig(t)
	c := &codexLike{rig: r, early: make(map[uint64]func()), changed: make(chan struct{}, 1)}
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	c.start("p", nil, "/bin/sh", "-c", "head -c 8000000 /dev/zero; echo >done")
	c.cut()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		processes, err := r.door.env.Processes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(processes) == 1 && processes[0].State == env.Closed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", processes)
		}
	}
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	for closed := false; !closed; {
		select {
		case <-c.changed:
		case <-time.After(patience):
			t.Fatal("it does not close")
		}
		c.mu.Lock()
		closed = c.closed
		c.mu.Unlock()
	}
	if len(c.output) != 8000000 || c.code != 0 {
		t.Errorf("%d bytes, exit code %d", len(c.output), c.code)
	}
}

// Many processes that print without pause leave room for small calls and for their own ends, and every message of theirs
// comes, in order.
func TestCrowd(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	const crowd, calls = 50, 1000
	next := make(map[string]uint64)
	codes := make(map[string]int64)
	closed := make(chan string, crowd)
	c.mu.Lock()
	c.seen = func(one told) {
		var event processEvent
		if err := json.Unmarshal(one.params, &event); err != nil {
			t.Errorf("%s: %v", one, err)
			return
		}
		if next[event.ProcessID]++; next[event.ProcessID] != event.Seq {
			t.Errorf("%s of %s has the number %d, want %d", one.method, event.ProcessID, event.Seq, next[event.ProcessID])
		}
		switch one.method {
		case "process/exited":
			codes[event.ProcessID] = event.ExitCode
		case "process/closed":
			closed <- event.ProcessID
		}
	}
	c.mu.Unlock()
	for i := range crowd {
		c.start(fmt.Sprint(i), nil, "/bin/sh", "-c", "while :; do echo something to be seen; done")
	}
	var calling sync.WaitGroup
	for range 10 {
		calling.Go(func() {
			for range calls / 10 {
				c.call("fs/getMetadata", map[string]any{"path": r.uri()}, nil)
			}
		})
	}
	calling.Wait()
	for i := range crowd {
		calling.Go(func() { c.call("process/terminate", map[string]any{"processId": fmt.Sprint(i)}, nil) })
	}
	calling.Wait()
	for range crowd {
		select {
		case <-closed:
		case <-time.After(patience):
			t.Fatal("a process does not close")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, code := range codes {
		if code != 137 {
			t.Errorf("process %s: exit code %d", id, code)
		}
	}
}
