package wire

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// table returns the rows of the first table of PROTOCOL.md under a heading, cells trimmed and without back quotes.
func table(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("PROTOCOL.md has no heading %q", heading)
	}
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") { // the bit picture's lines begin with a space
			if rows != nil {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i, cell := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cell), "`")
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("no table under %q", heading)
	}
	return rows[2:]
}

func column(rows [][]string, n int) (cells []string) {
	for _, row := range rows {
		cells = append(cells, row[n])
	}
	return cells
}

func TestProtocolKinds(t *testing.T) {
	want := []string{
		fmt.Sprint(kindHead, " HEAD"), fmt.Sprint(kindData, " DATA"), fmt.Sprint(kindControl, " CONTROL"), fmt.Sprint(kindEnd, " END"),
	}
	var got []string
	for _, row := range table(t, "Frames") {
		got = append(got, row[0]+" "+row[1])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if versions := column(table(t, "Versions"), 0); versions[len(versions)-1] != strconv.Itoa(MaxVersion) {
		t.Errorf("the version table ends with %v", versions)
	}
}

// The codes of the document are those of the source, in the same order, and the tests know them all.
func TestProtocolCodes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var source []string
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			value := spec.(*ast.ValueSpec)
			if name, ok := value.Type.(*ast.Ident); ok && name.Name == "Code" {
				code, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				source = append(source, code)
			}
		}
	}
	if diff := cmp.Diff(source, column(table(t, "Error codes"), 0)); diff != "" {
		t.Error(diff)
	}
	var known []string
	for _, code := range codes {
		known = append(known, string(code))
	}
	if diff := cmp.Diff(source, known); diff != "" {
		t.Error(diff)
	}
}

func TestProtocolLimits(t *testing.T) {
	octets := func(n int) string { return strconv.Itoa(n) + " B" }
	seconds := func(d time.Duration) string { return fmt.Sprint(d.Seconds(), " s") }
	want := [][]string{
		{"payload of a frame", octets(MaxData)},
		{"payload of a HEAD, CONTROL or END frame", octets(maxPart)},
		{"payload of DATA as it is sent to a peer that is far", octets(farData)},
		{"round trip of a peer that is not", fmt.Sprint(near.Milliseconds(), " ms")},
		{"HEAD, all parts", octets(kindHead.limit())},
		{"CONTROL or END, all parts", octets(kindControl.limit())},
		{"CONTROL that nobody takes", octets(maxMessages)},
		{"initial credit", octets(initialCredit)},
		{"reserve of a window", octets(reserve)},
		{"smallest window", octets(minWindow)},
		{"largest window", octets(maxWindow)},
		{"bytes before HELLO is accepted", octets(unauthenticatedBytes)},
		{"streams before HELLO is accepted", strconv.Itoa(maxEarly)},
		{"time until HELLO is accepted", seconds(helloWithin)},
		{"calls in flight on a connection", strconv.Itoa(maxCalls)},
		{"idle streams that a client keeps", strconv.Itoa(maxIdleStreams)},
		{"ack of what was taken", fmt.Sprint(ackWithin.Milliseconds(), " ms")},
		{"silence until a ping", seconds(pingAfter)},
		{"silence until the end", seconds(deadAfter)},
	}
	var got [][]string
	for _, row := range table(t, "Limits") {
		got = append(got, row[:2])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if kindControl.limit() != kindEnd.limit() {
		t.Error("CONTROL and END have limits of their own")
	}
}

// Every member of every message is in the document, and nothing else is.
func TestProtocolMembers(t *testing.T) {
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		value any
		first string // of the table
	}{
		{head{}, "method"}, {end{}, "result"}, {Error{}, "code"}, {Hello{}, "token"}, {Welcome{}, "version"},
	} {
		var members []string
		for i := range reflect.TypeOf(test.value).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(test.value).Field(i).Tag.Get("json"), ",")
			members = append(members, name)
		}
		var documented []string
		_, rest, found := bytes.Cut(text, []byte("\n| `"+test.first+"` |"))
		if !found {
			t.Errorf("no table begins with %s", test.first)
			continue
		}
		documented = append(documented, test.first)
		for line := range strings.Lines(string(rest)) {
			if name, ok := strings.CutPrefix(line, "| `"); ok {
				name, _, _ = strings.Cut(name, "`")
				documented = append(documented, name)
			} else if line == "\n" {
				break
			}
		}
		if diff := cmp.Diff(members, documented); diff != "" {
			t.Errorf("%T: %s", test.value, diff)
		}
	}
	if !bytes.Contains(text, []byte("`{\"ack\":{\"offset\":N,\"frames\":F,\"credit\":C}}`")) {
		t.Error("the ack is not in the document")
	}
	if table(t, "Methods") == nil || !bytes.Contains(text, []byte("\n## Methods\n\n<!-- methods")) {
		t.Error("the table of methods is not where it is looked for")
	}
}
