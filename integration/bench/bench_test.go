//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
)

// The bare peer is this test's own binary in another role.
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == bareRole {
		exitOn(serveBare())
		return
	}
	os.Exit(m.Run())
}

// No figure is judged here: a loaded machine must not fail a test. That there is one, and a likely one, is.
func TestQuickRows(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds programs")
	}
	var out, progress bytes.Buffer
	rows := []string{"true", "parallel", "stat", "terminals"}
	if err := run(append([]string{"-quick", "-json", "-codex=off"}, rows...), &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	var document struct {
		Machine map[string]string
		Lines   []struct {
			Row, What, Unit   string
			Waldo, Raw, Codex float64
		}
	}
	if err := json.Unmarshal(out.Bytes(), &document); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if document.Machine["codex"] != "not run" || document.Machine["cpu"] == "" {
		t.Errorf("the machine is told as %v", document.Machine)
	}
	told := make(map[string]bool)
	for _, l := range document.Lines {
		told[l.Row] = true
		if l.Codex != 0 {
			t.Errorf("%s: %s: Codex has a figure and was off", l.Row, l.What)
		}
		// Within wide bounds: a start takes more than 10 µs and less than 10 s anywhere.
		low, high := 1e-7, 10.0
		switch unit(l.Unit) {
		case perSecond:
			low, high = 1, 1e6
		case count:
			low, high = 1, 1000
		case bytesHeld:
			low, high = -1e6, 1e8 // a server may have given memory back meanwhile
		}
		figures := []float64{l.Waldo}
		if l.Row != "terminals" {
			figures = append(figures, l.Raw)
		}
		for _, v := range figures {
			if v < low || v > high || math.IsNaN(v) {
				t.Errorf("%s: %s: %g %s", l.Row, l.What, v, l.Unit)
			}
		}
	}
	for _, row := range rows {
		if !told[row] {
			t.Errorf("row %s is missing in %s", row, out.String())
		}
	}
	if !strings.Contains(progress.String(), "one at a time") {
		t.Errorf("progress is %q", progress.String())
	}
}

func TestTable(t *testing.T) {
	r := report{
		Machine: []fact{{"cpu", "one"}},
		Lines: []line{
			{Row: "true", What: "median", Unit: seconds, Waldo: 0.001, Raw: 0.0004, RawIs: "os/exec", Must: bound{ofRaw, 2}, Aim: bound{ofRaw, 1.5}},
			{Row: "parallel", What: "rate", Unit: perSecond, Waldo: 1200, Raw: 1500, Codex: 200, Must: bound{ofCodex, 5}, Aim: bound{ofRaw, 0.6}},
			{Row: "stat", What: "median", Unit: seconds, Waldo: 50e-6, Must: bound{ofCodex, 1.2}},
			{Row: "terminals", What: "each", Unit: bytesHeld, Waldo: 32 << 10, Must: bound{limit: 64 << 10}},
		},
	}
	var out strings.Builder
	if err := r.writeTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{"true: median", "1 ms", "400 µs os/exec", "not run", "2.50×", "≤ 2× raw", "NO"},
		{"parallel: rate", "1200/s", "200/s", "0.80×", "6.00×", "≥ 5× Codex", "≥ 0.6× raw", "yes, the aim too"},
		{"stat: median", "50 µs", "≤ 1.2× Codex", "not known"},
		{"terminals: each", "32 KiB", "≤ 64 KiB", "yes"},
	} {
		found := false
		for text := range strings.Lines(out.String()) {
			found = found || strings.HasPrefix(text, want[0]) && inOrder(text, want)
		}
		if !found {
			t.Errorf("no line with %q in\n%s", want, out.String())
		}
	}
}

func inOrder(text string, want []string) bool {
	for _, part := range want {
		_, rest, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = rest
	}
	return true
}

func TestQuantile(t *testing.T) {
	of := []float64{3, 1, 2, 5, 4}
	for _, test := range []struct{ q, want float64 }{{0, 1}, {0.5, 3}, {0.99, 5}, {1, 5}} {
		if got := quantile(of, test.q); got != test.want {
			t.Errorf("quantile %g is %g, want %g", test.q, got, test.want)
		}
	}
	if got := median(nil); got != 0 {
		t.Errorf("the median of nothing is %g", got)
	}
}

func TestCodexOutput(t *testing.T) {
	var got []byte
	c := &codexClient{
		processes: map[string]*codexProcess{"p1": {onOutput: func(p []byte) { got = append(got, p...) }}},
		answers:   make(map[int64]codexAnswer),
	}
	var scratch []byte
	for _, text := range []string{
		`{"method":"process/output","params":{"processId":"p1","seq":1,"stream":"stdout","chunk":"aGk="}}`, // as the peer writes it
		`{"params":{"chunk":"IQo=","processId":"p1"},"method":"process/output"}`,                           // as it may
		`{"method":"process/output","params":{"processId":"p2","seq":1,"stream":"stdout","chunk":"aGk="}}`,
	} {
		var err error
		if scratch, err = c.dispatch([]byte(text), scratch); err != nil {
			t.Fatal(err)
		}
	}
	if string(got) != "hi!\n" {
		t.Errorf("output is %q", got)
	}
	if _, err := c.dispatch([]byte(`{"method":"process/output","params":{"processId":"p1","chunk":"?"}}`), nil); err == nil {
		t.Error("a bad chunk passed")
	}
}

// The peer tells the end of its output and the exit in either order.
func TestCodexExit(t *testing.T) {
	exited := `{"method":"process/exited","params":{"processId":"p1","seq":1,"exitCode":3,"sandboxDenied":false}}`
	closed := `{"method":"process/closed","params":{"processId":"p1","seq":2}}`
	for _, order := range [][]string{{exited, closed}, {closed, exited}} {
		p := &codexProcess{id: "p1", exited: make(chan int, 1), closed: make(chan struct{})}
		c := &codexClient{processes: map[string]*codexProcess{"p1": p}, answers: make(map[int64]codexAnswer)}
		for _, text := range order {
			if _, err := c.dispatch([]byte(text), nil); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case code := <-p.exited:
			if code != 3 {
				t.Errorf("exit code is %d", code)
			}
		default:
			t.Errorf("no exit after %q", order)
		}
		select {
		case <-p.closed:
		default:
			t.Errorf("not closed after %q", order)
		}
		if len(c.processes) != 0 {
			t.Error("the process is not forgotten")
		}
	}
}
