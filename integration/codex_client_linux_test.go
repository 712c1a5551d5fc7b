package integration

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"waldo/wire/wiretest"
)

// scriptedModel answers each request with the next list of items; "$SESSION" in them is the newest session of a terminal.
func scriptedModel(t *testing.T, script [][]map[string]any) string {
	t.Helper()
	var mu sync.Mutex
	step := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is missing is noticed by the test
		if !strings.Contains(r.URL.Path, "/responses") {
			http.NotFound(w, r)
			return
		}
		mu.Lock()
		items, err := json.Marshal(script[min(step, len(script)-1)])
		step++
		id := fmt.Sprintf("resp_%d", step)
		mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		session := "0"
		if all := regexp.MustCompile(`session ID (\d+)`).FindAllStringSubmatch(string(body), -1); len(all) > 0 {
			session = all[len(all)-1][1]
		}
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(items), `\"$SESSION\"`, session)), &list); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(kind, rest string) {
			fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,%s}\n\n", kind, kind, rest)
		}
		send("response.created", fmt.Sprintf(`"response":{"id":%q}`, id))
		for i, item := range list {
			send("response.output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, i, item))
		}
		send("response.completed", fmt.Sprintf(`"response":{"id":%q,"usage":{"input_tokens":1,"input_tokens_details":{"cached_tokens":0},"output_tokens":1,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":2}}`, id))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// toolCall is an item in which the model calls a tool.
func toolCall(n int, name string, arguments map[string]any) map[string]any {
	text, _ := json.Marshal(arguments) // strings and numbers
	return map[string]any{"type": "function_call", "id": fmt.Sprintf("fc_%d", n), "call_id": fmt.Sprintf("c%d", n), "name": name, "arguments": string(text)}
}

// TestCodexClient has a real Codex, with a scripted model, work through our exec-server: commands, a terminal that is
// typed into, an image, instructions, a patch.
func TestCodexClient(t *testing.T) {
	peer := codexPeer(t)
	server := filepath.Join(programs(t), "exec-server")
	for _, way := range []string{"websocket", "stdio"} {
		t.Run(way, func(t *testing.T) {
			home := t.TempDir()
			environ := append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "CODEX_") }),
				"CODEX_HOME="+filepath.Join(home, "codex"), "WALDO_HOME="+filepath.Join(home, "waldo"))
			environment := fmt.Sprintf("program=%q\nargs=[\"--listen\",\"stdio\"]\n", server)
			if way == "websocket" {
				url := codexServer(t, environ, server, "--listen", "ws://127.0.0.1:0", "--no-auth")
				environment = fmt.Sprintf("url=%q\n", url)
			}
			checkWork(t, driveCodex(t, peer, home, environ, environment, workScript(), func(string) {}))
		})
	}
}

// A connection that is cut in the middle of a command costs a real Codex nothing of its output.
func TestCodexClientIsCut(t *testing.T) {
	peer := codexPeer(t)
	home := t.TempDir()
	environ := append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "CODEX_") }),
		"CODEX_HOME="+filepath.Join(home, "codex"), "WALDO_HOME="+filepath.Join(home, "waldo"))
	url := codexServer(t, environ, filepath.Join(programs(t), "exec-server"), "--listen", "ws://127.0.0.1:0", "--no-auth")
	proxy := wiretest.NewProxy(t, strings.TrimPrefix(url, "ws://"))
	pieces := 0
	drive := driveCodex(t, peer, home, environ, fmt.Sprintf("url=\"ws://%s\"\n", proxy.Addr()), [][]map[string]any{
		{toolCall(1, "exec_command", map[string]any{"cmd": "for i in $(seq 1 60); do echo line $i; sleep 0.1; done; exit 7", "yield_time_ms": 30000})},
		{{"type": "message", "id": "msg_1", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "done"}}}},
	}, func(method string) {
		if method == "item/commandExecution/outputDelta" {
			if pieces++; pieces%10 == 5 {
				proxy.Cut()
			}
		}
	})
	var want strings.Builder
	for i := range 60 {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	item := drive.items["c1"]
	if item["aggregatedOutput"] != want.String() || item["exitCode"] != 7.0 {
		t.Errorf("exit code %v, output %q", item["exitCode"], item["aggregatedOutput"])
	}
	if proxy.Accepted() < 4 {
		t.Errorf("%d connections: nothing was cut", proxy.Accepted())
	}
}

// drive is what came of a turn.
type drive struct {
	cwd    string
	thread map[string]any
	items  map[string]map[string]any
	kinds  map[string]bool
}

const workPatch = "*** Begin Patch\n*** Add File: deep/patched.txt\n+patched\n*** Update File: made.txt\n@@\n-one\n+two\n*** End Patch\n"

// workScript is a bit of everything.
func workScript() [][]map[string]any {
	return [][]map[string]any{
		{toolCall(1, "exec_command", map[string]any{"cmd": "echo hello; pwd"})},
		{toolCall(2, "exec_command", map[string]any{"cmd": "echo one > made.txt; cat made.txt; exit 3"})},
		{toolCall(3, "exec_command", map[string]any{"cmd": `read -r line; echo "got:$line"`, "tty": true, "yield_time_ms": 500})},
		{toolCall(4, "write_stdin", map[string]any{"session_id": "$SESSION", "chars": "typed\n", "yield_time_ms": 1000})},
		{toolCall(5, "view_image", map[string]any{"path": "pix.png"})},
		{toolCall(6, "exec_command", map[string]any{"cmd": "apply_patch <<'EOF'\n" + workPatch + "EOF\n"})},
		{{"type": "message", "id": "msg_1", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "done"}}}},
	}
}

// driveCodex has a Codex do one turn of a script in an environment; heard is called with each notification's method.
func driveCodex(t *testing.T, peer, home string, environ []string, environment string, script [][]map[string]any, heard func(string)) drive {
	t.Helper()
	cwd := filepath.Join(home, "work")
	for _, dir := range []string{cwd, filepath.Join(home, "codex")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	model := scriptedModel(t, script)
	pixel, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"work/AGENTS.md": "Use tabs.\n",
		"work/pix.png":   string(pixel),
		"codex/config.toml": fmt.Sprintf("model=\"gpt-5.1-codex\"\nmodel_provider=\"scripted\"\napproval_policy=\"never\"\nsandbox_mode=\"danger-full-access\"\n"+
			"[model_providers.scripted]\nname=\"scripted\"\nbase_url=%q\nwire_api=\"responses\"\nrequest_max_retries=0\nstream_max_retries=0\n", model+"/v1"),
		"codex/environments.toml": "default=\"box\"\ninclude_local=false\n[[environments]]\nid=\"box\"\n" + environment,
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	app := exec.Command(peer, "app-server")
	app.Env = environ
	stdin, err := app.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := app.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		app.Process.Kill() //nolint:errcheck // it may have ended
		app.Wait()         //nolint:errcheck // it was killed
	}()
	timeout := time.AfterFunc(2*time.Minute, func() { app.Process.Kill() }) //nolint:errcheck // it may have ended
	defer timeout.Stop()

	messages := bufio.NewReaderSize(stdout, 1<<20)
	items := map[string]map[string]any{}
	kinds := map[string]bool{}
	var turn map[string]any
	// next reads messages until one is the answer to a request, or the end of the turn for 0.
	next := func(id int) map[string]any {
		for {
			line, err := messages.ReadBytes('\n')
			if err != nil {
				t.Fatalf("codex app-server: %v", err)
			}
			var message map[string]any
			if json.Unmarshal(line, &message) != nil {
				continue
			}
			params, _ := message["params"].(map[string]any)
			if method, ok := message["method"].(string); ok {
				heard(method)
			}
			switch {
			case message["method"] == nil && message["id"] == float64(id):
				return message
			case message["id"] != nil && message["method"] != nil:
				fmt.Fprintf(stdin, "{\"id\":%v,\"result\":{\"decision\":\"accept\"}}\n", message["id"])
			case message["method"] == "item/completed":
				item := params["item"].(map[string]any)
				items[fmt.Sprint(item["id"])] = item
				kinds[fmt.Sprint(item["type"])] = true
			case message["method"] == "turn/completed":
				turn = params["turn"].(map[string]any)
				if id == 0 {
					return message
				}
			}
		}
	}
	sent := 0
	ask := func(method string, params any) map[string]any {
		t.Helper()
		sent++
		text, err := json.Marshal(map[string]any{"id": sent, "method": method, "params": params})
		if err != nil {
			t.Fatal(err)
		}
		stdin.Write(append(text, '\n')) //nolint:errcheck // the answer tells
		answer := next(sent)
		result, ok := answer["result"].(map[string]any)
		if !ok {
			t.Fatalf("%s: %v", method, answer["error"])
		}
		return result
	}
	ask("initialize", map[string]any{
		"clientInfo": map[string]any{"name": "test", "title": "test", "version": "1"}, "capabilities": map[string]any{"experimentalApi": true},
	})
	fmt.Fprintln(stdin, `{"method":"initialized"}`)
	thread := ask("thread/start", map[string]any{"environments": []any{map[string]any{"environmentId": "box", "cwd": cwd}}})
	ask("turn/start", map[string]any{
		"threadId": thread["thread"].(map[string]any)["id"], "input": []any{map[string]any{"type": "text", "text": "go", "text_elements": []any{}}},
	})
	for turn == nil {
		next(0)
	}
	if turn["status"] != "completed" {
		t.Fatalf("the turn is %v: %v", turn["status"], turn)
	}
	return drive{cwd, thread, items, kinds}
}

// checkWork checks what came of workScript.
func checkWork(t *testing.T, d drive) {
	t.Helper()
	if !strings.Contains(fmt.Sprint(d.thread["instructionSources"]), "AGENTS.md") {
		t.Errorf("the instructions were not found: %v", d.thread["instructionSources"])
	}
	for _, want := range []struct {
		id     string
		output string
		code   float64
	}{
		{"c1", "hello\n" + d.cwd + "\n", 0}, {"c2", "one\n", 3}, {"c3", "got:typed", 0},
	} {
		item := d.items[want.id]
		if output, _ := item["aggregatedOutput"].(string); !strings.Contains(output, want.output) || item["exitCode"] != want.code {
			t.Errorf("command %s: exit code %v, output %q", want.id, item["exitCode"], output)
		}
	}
	if !d.kinds["imageView"] {
		t.Error("the image was not seen")
	}
	for name, want := range map[string]string{"made.txt": "two\n", "deep/patched.txt": "patched\n"} {
		if content, err := os.ReadFile(filepath.Join(d.cwd, name)); err != nil || string(content) != want {
			t.Errorf("%s holds %q, %v; item %v", name, content, err, d.items["c6"])
		}
	}
}
