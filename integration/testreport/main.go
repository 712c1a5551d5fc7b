// Command testreport runs go test and prints what it found, with nothing left
// unsaid: every failure in full, then every skipped test with its reason, then
// one line of counts. It exits as go test did.
//
//	go run ./integration/testreport [go test flags] ./...
//
// It adds -race where the machine can build with the race detector, and says so
// where it cannot.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	args := []string{"test", "-json"}
	if why := raceMissing(); why == "" {
		args = append(args, "-race")
	} else {
		fmt.Printf("the race detector is left out: %s\n", why)
	}
	r := newReport(os.Stdout)
	err := r.run(append(args, os.Args[1:]...))
	if again := slices.Sorted(maps.Keys(r.crashed)); len(again) > 0 && r.failed == 0 {
		fmt.Printf("the race detector itself broke down, and no test failed; once more: %s\n", strings.Join(again, " "))
		r.crashed = nil
		err = r.run(append(args, again...))
	}
	r.end()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	case r.failed > 0:
		os.Exit(1)
	}
}

// run runs go and takes what it says.
func (r *report) run(args []string) error {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	readErr := r.read(out)
	return errors.Join(cmd.Wait(), readErr)
}

// raceMissing says why the race detector cannot be built here, or "". It builds
// the one package that needs a C compiler and its headers, which costs nothing
// the second time.
func raceMissing() string {
	cmd := exec.Command("go", "build", "-race", "runtime/cgo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	text := strings.TrimSpace(string(out))
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	return cmp.Or(text, err.Error())
}

// detectorFault begins what the race detector says when a check of its own fails, which happens with very many
// goroutines. It is about no test.
const detectorFault = "ThreadSanitizer: CHECK failed:"

// event is one line of go test -json.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// report turns the events of a run into what a person reads.
type report struct {
	w                       io.Writer
	buffered                map[string]*bytes.Buffer // output of tests not yet ended, by package and test
	order                   []string                 // keys of buffered, oldest first
	blamed                  map[string]bool          // packages with a failed test
	crashed                 map[string]bool          // packages that the race detector ended by a fault of its own; nil: it counts as any failure
	skips                   []string
	passed, failed, skipped int
}

func newReport(w io.Writer) *report {
	return &report{w: w, buffered: map[string]*bytes.Buffer{}, blamed: map[string]bool{}, crashed: map[string]bool{}}
}

// read takes events until the end of the stream. A line that is not an event is
// shown as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				r.w.Write(line)
			} else {
				r.take(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		io.WriteString(r.w, e.Output)
	case "output":
		if r.crashed != nil && strings.HasPrefix(e.Output, detectorFault) {
			r.crashed[e.Package] = true
		}
		if e.Test == "" {
			// go test itself says PASS only with -v; the line with the time follows.
			if e.Output != "PASS\n" {
				io.WriteString(r.w, e.Output)
			}
			return
		}
		b := r.buffered[key]
		if b == nil {
			b = new(bytes.Buffer)
			r.buffered[key] = b
			r.order = append(r.order, key)
		}
		b.WriteString(e.Output)
	case "pass":
		if e.Test != "" {
			r.passed++
			r.drop(key)
		}
	case "skip":
		// A package without tests is a skip too, but not of a test.
		if e.Test != "" {
			r.skipped++
			r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(r.buffered[key])))
			r.drop(key)
		}
	case "fail":
		if e.Test != "" {
			r.failed++
			r.blamed[e.Package] = true
			r.show(key)
			return
		}
		// What had not ended when its package failed: a panic, a time-out, or a
		// package that did not build.
		crashed := r.crashed[e.Package] && !r.blamed[e.Package]
		for _, k := range slices.Clone(r.order) {
			if strings.HasPrefix(k, e.Package+" ") {
				r.show(k)
				if crashed {
					continue
				}
				r.failed++
				r.blamed[e.Package] = true
			}
		}
		if !r.blamed[e.Package] && !crashed {
			r.failed++
		}
	}
}

// show prints what a test wrote and forgets it.
func (r *report) show(key string) {
	if b := r.buffered[key]; b != nil {
		for line := range strings.Lines(b.String()) {
			// Only what tells tests apart while they run side by side.
			if !strings.HasPrefix(line, "=== ") {
				io.WriteString(r.w, line)
			}
		}
	}
	r.drop(key)
}

func (r *report) drop(key string) {
	delete(r.buffered, key)
	if i := slices.Index(r.order, key); i >= 0 {
		r.order = slices.Delete(r.order, i, i+1)
	}
}

// end prints the skips and the counts.
func (r *report) end() {
	if len(r.skips) > 0 {
		fmt.Fprintf(r.w, "\nskipped, and why:\n")
		slices.Sort(r.skips)
		for _, s := range r.skips {
			fmt.Fprintf(r.w, "  %s\n", s)
		}
	}
	fmt.Fprintf(r.w, "\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}

// reason is what a skipped test said, without go test's own lines.
func reason(b *bytes.Buffer) string {
	if b == nil {
		return "no reason given"
	}
	var said []string
	for line := range strings.Lines(b.String()) {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ") {
			continue
		}
		said = append(said, text)
	}
	return cmp.Or(strings.Join(said, " "), "no reason given")
}
