package main

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"waldo/env"
	"waldo/env/rpc"
	"waldo/pathuri"
)

// stubMachine is a machine whose processes and files are words.
type stubMachine struct {
	env.Env
	broken error
}

func (m stubMachine) Describe(context.Context) (env.Info, error) { return env.Info{OS: "stub"}, nil }
func (m stubMachine) Processes(context.Context) ([]env.ProcessInfo, error) {
	return []env.ProcessInfo{{State: env.Running}, {State: env.Running}, {State: env.Closed}}, m.broken
}
func (m stubMachine) Start(context.Context, env.Command) (env.Process, error) {
	return stubProcess{}, m.broken
}
func (m stubMachine) Attach(context.Context, string, env.Attach) (env.Process, error) {
	return stubProcess{}, m.broken
}
func (m stubMachine) Within(pathuri.URI) env.Files { return m }
func (m stubMachine) Read(context.Context, pathuri.URI, env.ReadOptions) (env.FileReader, error) {
	return stubFile{}, m.broken
}
func (m stubMachine) Write(context.Context, pathuri.URI, env.WriteOptions) (env.FileWriter, error) {
	return stubFile{}, m.broken
}

type stubProcess struct{ env.Process }

func (stubProcess) Output(context.Context) iter.Seq2[env.Chunk, error] {
	return func(yield func(env.Chunk, error) bool) {
		_ = yield(env.Chunk{Data: []byte("12345")}, nil) && yield(env.Chunk{Lost: 1000}, nil) && yield(env.Chunk{}, errors.New("cut"))
	}
}
func (stubProcess) Write(_ context.Context, b []byte) (int, error) {
	return len(b) - 1, errors.New("full")
}

type stubFile struct{ env.FileReader }

func (stubFile) Chunks() iter.Seq2[env.FileChunk, error] {
	return func(yield func(env.FileChunk, error) bool) {
		_ = yield(env.FileChunk{Data: []byte("1234567")}, nil) && yield(env.FileChunk{Hole: 1 << 30}, nil)
	}
}
func (stubFile) Write(b []byte) (int, error)  { return len(b), nil }
func (stubFile) Skip(int64) error             { return nil }
func (stubFile) Taken() int64                 { return 0 }
func (stubFile) Commit() (env.Written, error) { return env.Written{}, nil }
func (stubFile) Close() error                 { return nil }

func TestMetrics(t *testing.T) {
	machine := metered{stubMachine{}, new(traffic)}
	server, err := rpc.NewServer(t.Context(), machine, rpc.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	started, err := machine.Start(t.Context(), env.Command{})
	if err != nil {
		t.Fatal(err)
	}
	attached, err := machine.Attach(t.Context(), "x", env.Attach{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []env.Process{started, attached} {
		var chunks, failures int
		for _, err := range p.Output(t.Context()) {
			chunks++
			if err != nil {
				failures++
			}
		}
		if chunks != 3 || failures != 1 {
			t.Errorf("%d chunks with %d errors went through, want 3 and 1", chunks, failures)
		}
		for range p.Output(t.Context()) {
			break // the step that was taken counts
		}
		if n, err := p.Write(t.Context(), []byte("1234")); n != 3 || err == nil {
			t.Errorf("Write: %d, %v", n, err)
		}
	}
	for _, files := range []env.Files{machine, machine.Within(pathuri.URI{})} {
		r, err := files.Read(t.Context(), pathuri.URI{}, env.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for range r.Chunks() {
		}
		w, err := files.Write(t.Context(), pathuri.URI{}, env.WriteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("123")); err != nil {
			t.Fatal(err)
		}
	}
	server.CountCall(rpc.NativeDoor, "process.start", rpc.OK)
	server.CountCall(rpc.NativeDoor, "process.start", rpc.OK)
	server.CountCall(rpc.CodexDoor, "fs/readFile", `"\`)

	w := httptest.NewRecorder()
	metrics(server, machine).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("status %d, %v", w.Code, w.Header())
	}
	for _, want := range []string{
		`exec_server_connections{door="codex"} 0`,
		`exec_server_connections_total{door="native"} 0`,
		`exec_server_resumes_total{door="native"} 0`,
		`exec_server_sessions 0`,
		`exec_server_calls_total{door="native",method="process.start",outcome="ok"} 2`,
		`exec_server_calls_total{door="codex",method="fs/readFile",outcome="\"\\"} 1`,
		`exec_server_processes{state="running"} 2`,
		`exec_server_processes{state="exited"} 0`,
		`exec_server_processes{state="closed"} 1`,
		`exec_server_process_output_bytes_total 20`,
		`exec_server_process_output_lost_bytes_total 2000`,
		`exec_server_process_input_bytes_total 6`,
		`exec_server_file_read_bytes_total 14`,
		`exec_server_file_written_bytes_total 6`,
		`exec_server_build_info{version="` + version + `"} 1`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	checkExposition(t, text)

	broken := errors.New("no table")
	w = httptest.NewRecorder()
	metrics(server, metered{stubMachine{broken: broken}, new(traffic)}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("a machine that does not answer gives status %d", w.Code)
	}
	if p, err := (metered{stubMachine{broken: broken}, new(traffic)}).Start(t.Context(), env.Command{}); p != nil || !errors.Is(err, broken) {
		t.Errorf("a failed start gives %v, %v", p, err)
	}
}

// checkExposition checks the grammar of Prometheus's text, and that each sample stands below its own name.
func checkExposition(t *testing.T, text string) {
	t.Helper()
	const label = `[a-z_]+="(?:[^"\\\n]|\\["\\n])*"`
	sample := regexp.MustCompile(`^([a-z_]+)(?:\{` + label + `(?:,` + label + `)*\})? [0-9.e+-]+$`)
	seen := map[string]bool{}
	name := ""
	for line := range strings.Lines(text) {
		line, whole := strings.CutSuffix(line, "\n")
		if !whole {
			t.Errorf("the last line has no end: %q", line)
		}
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			name = words[2]
			if seen[line] {
				t.Errorf("%s comes twice", name)
			}
			seen[line] = true
		case strings.HasPrefix(line, "# TYPE "):
			if words[2] != name || words[3] != "gauge" && words[3] != "counter" || strings.HasSuffix(name, "_total") != (words[3] == "counter") {
				t.Errorf("%q below the name %s", line, name)
			}
		default:
			if m := sample.FindStringSubmatch(line); m == nil || m[1] != name {
				t.Errorf("%q below the name %s", line, name)
			}
			if seen[line] {
				t.Errorf("%q comes twice", line)
			}
			seen[line] = true
		}
	}
}
