//go:build unix

package codex

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"waldo/wire/jsonrpc"
)

func TestFiles(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	big := bytes.Repeat([]byte("0123456789abcdef"), 3<<16) // 3 MiB
	r.write(string(big), "big")
	var content struct {
		Data []byte `json:"dataBase64"`
	}
	c.call("fs/readFile", map[string]any{"path": r.uri("big")}, &content)
	if !bytes.Equal(content.Data, big) {
		t.Errorf("read %d bytes", len(content.Data))
	}
	c.refused("fs/readFile", map[string]any{"path": r.uri("none")}, codeNotFound, "")
	c.refused("fs/readFile", map[string]any{"path": r.uri()}, jsonrpc.CodeInvalidRequest, "path `"+r.dir+"` is not a file")
	c.refused("fs/writeFile", map[string]any{"path": r.uri("x"), "dataBase64": "!"}, jsonrpc.CodeInvalidRequest, "fs/writeFile requires valid base64 dataBase64: ")
	c.refused("fs/writeFile", map[string]any{"path": r.uri("no", "x"), "dataBase64": ""}, codeNotFound, "")

	// Onto itself, by every name that it has: nothing happens.
	if err := os.Link(filepath.Join(r.dir, "big"), filepath.Join(r.dir, "second")); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"big", "second"} {
		c.call("fs/copy", map[string]any{"sourcePath": r.uri("big"), "destinationPath": r.uri(to), "recursive": false}, nil)
		if now, err := os.ReadFile(filepath.Join(r.dir, "big")); err != nil || !bytes.Equal(now, big) {
			t.Errorf("copied onto %s it has %d bytes, %v", to, len(now), err)
		}
	}
	r.write("x", "tree", "x")
	c.refused("fs/copy", map[string]any{"sourcePath": r.uri("tree"), "destinationPath": r.uri("tree", "in"), "recursive": true},
		jsonrpc.CodeInvalidRequest, "fs/copy cannot copy a directory to itself or one of its descendants")
	c.refused("fs/copy", map[string]any{"sourcePath": r.uri("tree"), "destinationPath": r.uri("other"), "recursive": false},
		jsonrpc.CodeInvalidRequest, "fs/copy requires recursive: true when sourcePath is a directory")
}

func TestHandles(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	content := bytes.Repeat([]byte("0123456789"), 50_000)
	r.write(string(content), "f")
	c.call("fs/open", map[string]any{"handleId": "h", "path": r.uri("f")}, nil)
	read := func(offset, length int) {
		t.Helper()
		var result struct {
			Chunk []byte `json:"chunk"`
			EOF   bool   `json:"eof"`
		}
		c.call("fs/readBlock", map[string]any{"handleId": "h", "offset": offset, "len": length}, &result)
		want := content[min(offset, len(content)):min(offset+length, len(content))]
		if !bytes.Equal(result.Chunk, want) || result.EOF != (len(want) < length) {
			t.Errorf("%d bytes at %d: got %d, eof %t", length, offset, len(result.Chunk), result.EOF)
		}
	}
	read(0, 7)
	read(7, 300_000)
	read(300_007, 199_993)
	read(500_000, 10)
	read(1000, 10)
	read(1010, 10)
	read(400_000, 1<<20)
	read(900_000, 1)
	c.refused("fs/readBlock", map[string]any{"handleId": "g", "offset": 0, "len": 1}, codeNotFound, "unknown file handle `g`")
	c.refused("fs/open", map[string]any{"handleId": "h", "path": r.uri("f")}, jsonrpc.CodeInvalidRequest, "file handle `h` already exists")
	for i := range maxHandles - 1 {
		c.call("fs/open", map[string]any{"handleId": fmt.Sprint(i), "path": r.uri("f")}, nil)
	}
	c.refused("fs/open", map[string]any{"handleId": "more", "path": r.uri("f")}, jsonrpc.CodeInvalidRequest, "at most 128 file handles may be open per connection")
	c.call("fs/close", map[string]any{"handleId": "3"}, nil)

	c.call("fs/open", map[string]any{"handleId": "w", "path": r.uri("w"), "mode": "replace"}, nil)
	for _, piece := range []struct {
		offset int
		text   string
	}{{0, "hello "}, {6, "world"}, {15, "far"}, {2, "LL"}} {
		c.call("fs/writeBlock", map[string]any{"handleId": "w", "offset": piece.offset, "chunk": []byte(piece.text)}, nil)
	}
	if got, err := os.ReadFile(filepath.Join(r.dir, "w")); err != nil || string(got) != "heLLo world\x00\x00\x00\x00far" {
		t.Errorf("written is %q, %v", got, err)
	}
	c.cut() // closes them all
}

// A file that is another by now is not spliced with what was read before.
func TestHandleOfChangedFile(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	r.write("first content", "f")
	c.call("fs/open", map[string]any{"handleId": "h", "path": r.uri("f")}, nil)
	c.call("fs/readBlock", map[string]any{"handleId": "h", "offset": 0, "len": 5}, nil)
	r.write("another", "g")
	if err := os.Rename(filepath.Join(r.dir, "g"), filepath.Join(r.dir, "f")); err != nil {
		t.Fatal(err)
	}
	c.refused("fs/readBlock", map[string]any{"handleId": "h", "offset": 2, "len": 5}, jsonrpc.CodeInternal, "")
}

func TestWatchMissing(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	r.write("x", "there")
	id := 0
	watch := func(want bool, present any, missing ...string) {
		t.Helper()
		id++
		var result watchMissingResult
		uris := []string{}
		for _, name := range missing {
			uris = append(uris, r.uri(name))
		}
		c.call("fs/watchMissing", map[string]any{"watchId": id, "missing": uris, "present": present}, &result)
		if result.Watching != want {
			t.Errorf("watch %d of %v: %t", id, missing, result.Watching)
		}
	}
	fires := func() {
		t.Helper()
		c.await("fs/missingChanged", func(all []told) bool {
			for _, one := range all {
				var params missingChanged
				if one.method == "fs/missingChanged" && json.Unmarshal(one.params, &params) == nil && params.WatchID == uint64(id) {
					return true
				}
			}
			return false
		})
	}
	watch(true, nil, "one", "two/three/four")
	r.write("", "one")
	fires()
	watch(false, nil, "one")
	watch(false, nil)
	watch(false, r.uri("none"), "else")
	watch(true, nil, "two/three/four")
	if err := os.Mkdir(filepath.Join(r.dir, "two"), 0o755); err != nil {
		t.Fatal(err)
	}
	fires()
	watch(true, r.uri("there"), "else")
	r.write("changed", "there")
	fires()
	watch(true, r.uri("there"), "else")
	if err := os.Remove(filepath.Join(r.dir, "there")); err != nil {
		t.Fatal(err)
	}
	fires()
	watch(true, nil, "two/three/four")
	if err := os.Remove(filepath.Join(r.dir, "two")); err != nil { // what is missing is missing still
		t.Fatal(err)
	}
	r.write("", "two/three/four")
	fires()
}

// What has to be enforced is refused, and what has not runs.
func TestSandboxes(t *testing.T) {
	r := newRig(t)
	c, _ := r.open("")
	r.write("x", "f")
	context := func(permissions string) json.RawMessage {
		return json.RawMessage(`{"permissions":` + permissions + `,"windowsSandboxLevel":"disabled","cwd":"` + r.uri() + `"}`)
	}
	entries := func(list string) string {
		return `{"type":"managed","file_system":{"type":"restricted","entries":[` + list + `]},"network":"restricted"}`
	}
	const root = `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}`
	for _, test := range []struct {
		permissions    string
		reads, writes_ bool
	}{
		{`{"type":"disabled"}`, true, true},
		{`{"type":"external","network":"restricted"}`, true, true},
		{`{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}`, true, true},
		{entries(root), true, false},
		{entries(root + `,{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}`), true, false},
		{entries(root + `,{"path":{"type":"path","path":"` + r.uri("f") + `"},"access":"deny"}`), false, false},
		{entries(root + `,{"path":{"type":"glob_pattern","pattern":"/x/*"},"access":"none"}`), false, false},
		{entries(`{"path":{"type":"special","value":{"kind":"root","subpath":"etc"}},"access":"read"}`), false, false},
		{entries(``), false, false},
	} {
		err := c.try("fs/readFile", map[string]any{"path": r.uri("f"), "sandbox": context(test.permissions)}, nil)
		if (err == nil) != test.reads {
			t.Errorf("%s: read: %v", test.permissions, err)
		}
		err = c.try("fs/writeFile", map[string]any{"path": r.uri("w"), "dataBase64": "", "sandbox": context(test.permissions)}, nil)
		if (err == nil) != test.writes_ {
			t.Errorf("%s: write: %v", test.permissions, err)
		}
	}
	for _, permissions := range []string{
		entries(root), `{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}`,
	} {
		c.refused("process/start", r.startParams("p", map[string]any{"sandbox": context(permissions)}, "/bin/sh"), jsonrpc.CodeInternal, notEnforced)
	}
}
