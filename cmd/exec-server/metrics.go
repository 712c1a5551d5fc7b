package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"waldo/env"
	"waldo/env/rpc"
	"waldo/pathuri"
)

// The text that Prometheus reads is written here. Its client library would add nine modules and 3 MB to a program of
// 10 MB, for a dozen numbers that are counted elsewhere.

// traffic counts bytes that go between clients and the machine.
type traffic struct {
	output, lost, input atomic.Int64 // of processes
	read, written       atomic.Int64 // of files
}

// metered is a machine whose traffic is counted, whatever door it goes through.
type metered struct {
	env.Env
	traffic *traffic
}

func (m metered) Start(ctx context.Context, command env.Command) (env.Process, error) {
	return m.process(m.Env.Start(ctx, command))
}

func (m metered) Attach(ctx context.Context, id string, how env.Attach) (env.Process, error) {
	return m.process(m.Env.Attach(ctx, id, how))
}

func (m metered) process(p env.Process, err error) (env.Process, error) {
	if err != nil {
		return nil, err
	}
	return meteredProcess{p, m.traffic}, nil
}

func (m metered) files() meteredFiles { return meteredFiles{m.Env, m.traffic} }

func (m metered) Within(root pathuri.URI) env.Files { return m.files().Within(root) }

func (m metered) Read(ctx context.Context, path pathuri.URI, options env.ReadOptions) (env.FileReader, error) {
	return m.files().Read(ctx, path, options)
}

func (m metered) Write(ctx context.Context, path pathuri.URI, options env.WriteOptions) (env.FileWriter, error) {
	return m.files().Write(ctx, path, options)
}

func (m metered) ReadFiles(ctx context.Context, paths []pathuri.URI, limit int64) iter.Seq2[env.FileContent, error] {
	return m.files().ReadFiles(ctx, paths, limit)
}

func (m metered) WriteFiles(ctx context.Context, contents []env.FileContent) ([]error, error) {
	return m.files().WriteFiles(ctx, contents)
}

type meteredProcess struct {
	env.Process
	traffic *traffic
}

func (p meteredProcess) Output(ctx context.Context) iter.Seq2[env.Chunk, error] {
	return func(yield func(env.Chunk, error) bool) {
		for chunk, err := range p.Process.Output(ctx) {
			p.traffic.output.Add(int64(len(chunk.Data)))
			p.traffic.lost.Add(chunk.Lost)
			if !yield(chunk, err) {
				return
			}
		}
	}
}

func (p meteredProcess) Write(ctx context.Context, b []byte) (int, error) {
	n, err := p.Process.Write(ctx, b)
	p.traffic.input.Add(int64(n))
	return n, err
}

type meteredFiles struct {
	env.Files
	traffic *traffic
}

func (f meteredFiles) Within(root pathuri.URI) env.Files {
	return meteredFiles{f.Files.Within(root), f.traffic}
}

func (f meteredFiles) Read(ctx context.Context, path pathuri.URI, options env.ReadOptions) (env.FileReader, error) {
	r, err := f.Files.Read(ctx, path, options)
	if err != nil {
		return nil, err
	}
	return meteredReader{r, f.traffic}, nil
}

func (f meteredFiles) Write(ctx context.Context, path pathuri.URI, options env.WriteOptions) (env.FileWriter, error) {
	w, err := f.Files.Write(ctx, path, options)
	if err != nil {
		return nil, err
	}
	return meteredWriter{w, f.traffic}, nil
}

func (f meteredFiles) ReadFiles(ctx context.Context, paths []pathuri.URI, limit int64) iter.Seq2[env.FileContent, error] {
	return func(yield func(env.FileContent, error) bool) {
		for content, err := range f.Files.ReadFiles(ctx, paths, limit) {
			f.traffic.read.Add(int64(len(content.Data)))
			if !yield(content, err) {
				return
			}
		}
	}
}

func (f meteredFiles) WriteFiles(ctx context.Context, contents []env.FileContent) ([]error, error) {
	errs, err := f.Files.WriteFiles(ctx, contents)
	for i, content := range contents {
		if i < len(errs) && errs[i] == nil {
			f.traffic.written.Add(int64(len(content.Data)))
		}
	}
	return errs, err
}

type meteredReader struct {
	env.FileReader
	traffic *traffic
}

func (r meteredReader) Chunks() iter.Seq2[env.FileChunk, error] {
	return func(yield func(env.FileChunk, error) bool) {
		for chunk, err := range r.FileReader.Chunks() {
			r.traffic.read.Add(int64(len(chunk.Data)))
			if !yield(chunk, err) {
				return
			}
		}
	}
}

type meteredWriter struct {
	env.FileWriter
	traffic *traffic
}

func (w meteredWriter) Write(b []byte) (int, error) {
	n, err := w.FileWriter.Write(b)
	w.traffic.written.Add(int64(n))
	return n, err
}

// metrics tells Prometheus what a server does.
func metrics(server *rpc.Server, machine metered) http.Handler {
	started := time.Now()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		processes, err := machine.Processes(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var e exposition
		e.metric("exec_server_build_info", "gauge", "What program this is.")
		e.sample(1, "version", version)
		e.metric("process_start_time_seconds", "gauge", "When the server was started.")
		e.sample(float64(started.UnixMilli()) / 1000)

		stats := server.Stats()
		e.metric("exec_server_connections", "gauge", "Connections that speak for a session.")
		e.byDoor(stats.Open)
		e.metric("exec_server_connections_total", "counter", "Connections that have come to speak for a session.")
		e.byDoor(stats.Connections)
		e.metric("exec_server_resumes_total", "counter", "Connections that went on with a session that was there.")
		e.byDoor(stats.Resumes)
		e.metric("exec_server_sessions", "gauge", "Sessions, connected or not.")
		e.sample(float64(stats.Sessions))
		e.metric("exec_server_calls_total", "counter", "Calls that have ended.")
		byName := func(a, b rpc.CallKind) int {
			return cmp.Or(cmp.Compare(a.Door, b.Door), cmp.Compare(a.Method, b.Method), cmp.Compare(a.Outcome, b.Outcome))
		}
		for _, kind := range slices.SortedFunc(maps.Keys(stats.Calls), byName) {
			e.sample(float64(stats.Calls[kind]), "door", kind.Door, "method", kind.Method, "outcome", kind.Outcome)
		}

		states := map[env.ProcessState]int{env.Running: 0, env.Exited: 0, env.Closed: 0}
		for _, p := range processes {
			states[p.State]++
		}
		e.metric("exec_server_processes", "gauge", "Processes that are known, by state: running, exited with output to come, closed.")
		for _, state := range slices.Sorted(maps.Keys(states)) {
			e.sample(float64(states[state]), "state", string(state))
		}
		for _, c := range []struct {
			name, help string
			count      *atomic.Int64
		}{
			{"process_output", "Bytes of output that were given to clients.", &machine.traffic.output},
			{"process_output_lost", "Bytes of output that clients were told to be lost.", &machine.traffic.lost},
			{"process_input", "Bytes that processes were given.", &machine.traffic.input},
			{"file_read", "Bytes of files that were given to clients.", &machine.traffic.read},
			{"file_written", "Bytes of files that clients have sent.", &machine.traffic.written},
		} {
			e.metric("exec_server_"+c.name+"_bytes_total", "counter", c.help)
			e.sample(float64(c.count.Load()))
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Write(e.text.Bytes()) //nolint:errcheck // whoever asked is gone
	})
}

// exposition is text in Prometheus's format.
type exposition struct {
	text bytes.Buffer
	name string
}

// metric begins the samples of one name.
func (e *exposition) metric(name, kind, help string) {
	e.name = name
	fmt.Fprintf(&e.text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// sample adds one, with pairs of a label's name and value.
func (e *exposition) sample(value float64, labels ...string) {
	e.text.WriteString(e.name)
	for i := 0; i < len(labels); i += 2 {
		fmt.Fprintf(&e.text, `%c%s="%s"`, "{,"[min(i, 1)], labels[i], escapeLabel.Replace(labels[i+1]))
	}
	if len(labels) > 0 {
		e.text.WriteByte('}')
	}
	fmt.Fprintf(&e.text, " %v\n", value)
}

func (e *exposition) byDoor(counts map[string]int64) {
	for _, door := range []string{rpc.CodexDoor, rpc.NativeDoor} {
		e.sample(float64(counts[door]), "door", door)
	}
}
