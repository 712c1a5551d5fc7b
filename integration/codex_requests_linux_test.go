package integration

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// codexRequest is one message to both servers.
type codexRequest struct {
	text      string // with $ID and $DIR
	process   string // whose life is a part of the answer
	silent    bool   // a notification
	differs   string // why the answers are not the same; docs/codex.md says it too
	checkOurs string // then: what ours holds
}

func (r codexRequest) about() string {
	text := strings.ReplaceAll(r.text, "/", "|")
	return text[:min(len(text), 90)]
}

func (r codexRequest) ask(c *rawClient, i int) any {
	text := strings.ReplaceAll(r.text, "$ID", strconv.Itoa(i))
	if r.silent {
		c.send(text)
		return nil
	}
	answer := c.answer(text)
	if r.process == "" {
		return answer
	}
	return map[string]any{"answer": answer, "process": c.process(r.process)}
}

// differing says that ours answers otherwise, and how.
func (r codexRequest) differing(why, ours string) codexRequest {
	r.differs, r.checkOurs = why, ours
	return r
}

// codexRequests is the list, in the order it is sent.
func codexRequests() (list []codexRequest) {
	add := func(method, params string) *codexRequest {
		list = append(list, codexRequest{text: fmt.Sprintf(`{"id":$ID,"method":%q,"params":%s}`, method, params)})
		return &list[len(list)-1]
	}
	raw := func(text string) *codexRequest {
		list = append(list, codexRequest{text: text})
		return &list[len(list)-1]
	}
	differs := func(r *codexRequest, why, ours string) { *r = r.differing(why, ours) }
	b64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

	// Before initialize, and initialize.
	add("environment/info", "null")
	add("environment/status", "null")
	add("process/read", `{"processId":"p"}`)
	add("process/read", `{}`)
	add("process/start", `{}`)
	add("fs/readFile", `{"path":"file:///x"}`)
	add("http/request", `{}`)
	add("nope", `{}`)
	add("initialize", `null`)
	add("initialize", `{}`)
	add("initialize", `{"clientName":1}`)
	add("initialize", `{"clientname":"x"}`)
	add("initialize", `{"clientName":"x","resumeSessionId":"nobody"}`)
	add("initialize", `{"clientName":"x","resumeSessionId":""}`)
	add("initialize", `{"clientName":"x","resumeSessionId":5}`)
	add("initialize", `{"clientName":"x","resumeSessionId":null,"more":1}`)
	add("fs/readFile", `{"path":"file:///x"}`)
	add("initialize", `{"clientName":"x"}`)
	add("initialized", `{}`)
	list = append(list, codexRequest{text: `{"method":"initialized"}`, silent: true})
	list = append(list, codexRequest{text: `{"method":"initialized","params":{"again":1}}`, silent: true})

	// The envelope.
	const lost = "the id is told where it can be read"
	raw(`{"id":"text","method":"environment/status"}`)
	raw(`{"id":-5,"method":"environment/status","jsonrpc":"2.0","more":[1]}`)
	raw(`{"id":9223372036854775807,"method":"environment/status"}`)
	raw(`{"id":9223372036854775808,"method":"environment/status"}`)
	raw(`{"id":1.5,"method":"environment/status"}`)
	raw(`{"id":true,"method":"environment/status"}`)
	raw(`{"id":null,"method":"environment/status"}`)
	raw(`{"id":{},"method":"environment/status"}`)
	raw(`{"id":7,"id":8,"method":"environment/status"}`)
	differs(raw(`{"id":7,"method":"environment/status","method":"x"}`), lost, `"id":7`)
	differs(raw(`{"id":7,"method":"environment/status","params":{"a":1,"a":2}}`), lost, `"id":7`)
	differs(raw(`{"id":7,"method":5}`), lost, `"id":7`)
	differs(raw(`{"id":7,"method":"environment/status","trace":5}`), lost, `"id":7`)
	raw(`{"id":7,"method":"environment/status","trace":{"traceparent":"00-x","tracestate":null}}`)
	raw(`[]`)
	raw(`[{"id":1,"method":"environment/status"}]`)
	raw(`5`)
	raw(`null`)
	raw(`"x"`)
	raw(`{`)
	differs(raw(`{"id":7,`), lost, `"id":7`)
	raw(`not json`)
	raw(``)
	raw(`{}`)
	differs(raw(`{"id":3}`), lost, `"id":3`)
	differs(raw(`{"id":3,"method":"environment/status","params":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+`}`), lost, `"id":3`)
	raw(`{"id":"\ud83d\ude00","method":"environment/status"}`)
	raw(`{"id":"","method":"environment/status"}`)
	for _, method := range []string{"environment/Status", "ENVIRONMENT/STATUS", "", "process/list", "fs/rename", "network/policyRequest", "fs/missingChanged", "rpc.discover"} {
		add(method, `{}`)
	}
	add("environment/status", "null")
	add("environment/status", "{}")
	add("environment/status", `{"x":1}`)
	add("environment/status", `[]`)
	add("environment/status", `5`)
	differs(add("environment/info", `{}`), "capabilities are those that there are", `"environmentConfigRead":false`)
	add("initialize", `{"clientName":"x"}`)

	// Processes: what is refused.
	start := func(id, argv, more string) *codexRequest {
		r := add("process/start", fmt.Sprintf(`{"processId":%q,"argv":%s,"cwd":"file://$DIR","env":{"PATH":"/usr/bin:/bin"},"tty":false%s}`, id, argv, more))
		return r
	}
	run := func(id, argv, more string) *codexRequest {
		r := start(id, argv, more)
		r.process = id
		return r
	}
	add("process/start", `null`)
	add("process/start", `{}`)
	add("process/start", `{"processId":"x"}`)
	add("process/start", `{"processId":5,"argv":["true"],"cwd":"file:///","env":{},"tty":false}`)
	add("process/start", `{"processId":"x","argv":"true","cwd":"file:///","env":{},"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"/","env":{},"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"C:\\x","env":{},"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"file:///C:/x","env":{},"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"file://server/share","env":{},"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":null,"env":{},"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"file:///","env":null,"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"file:///","env":{"A":1},"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"file:///","env":{}}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"file:///","env":{},"tty":null}`)
	start("x", `[]`, "")
	start("x", `["true"]`, `,"pipeStdin":null`)
	start("x", `["true"]`, `,"pipeStdin":"yes"`)
	start("x", `["true"]`, `,"arg0":5`)
	start("x", `["true"]`, `,"envPolicy":{}`)
	start("x", `["true"]`, `,"envPolicy":{"inherit":"most","ignoreDefaultExcludes":false,"exclude":[],"set":{},"includeOnly":[]}`)
	start("x", `["true"]`, `,"envPolicy":{"inherit":"all","ignoreDefaultExcludes":false,"exclude":[],"set":{}}`)
	start("x", `["true"]`, `,"metadata":{"threadId":"no uuid"}`)
	start("x", `["true"]`, `,"enforceManagedNetwork":null`)
	start("x", `["true"]`, `,"managedNetwork":{"loopbackPorts":[70000]}`)
	start("x", `["true"]`, `,"sandbox":{}`)
	start("x", `["true"]`, `,"sandbox":5`)
	start("x", `["true"]`, `,"sandbox":{"permissions":{"type":"most"},"windowsSandboxLevel":"disabled"}`)
	start("x", `["true"]`, `,"sandbox":{"permissions":{"type":"disabled"}}`)
	start("x", `["true"]`, `,"sandbox":{"permissions":{"type":"disabled"},"windowsSandboxLevel":"high"}`)
	start("x", `["true"]`, `,"sandbox":{"permissions":{"type":"managed"},"windowsSandboxLevel":"disabled"}`)
	start("x", `["true"]`, `,"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted"},"network":"enabled"},"windowsSandboxLevel":"disabled"}`)
	start("x", `["true"]`, `,"sandbox":{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"path","path":"/x"},"access":"read"}]},"network":"enabled"},"windowsSandboxLevel":"disabled"}`)
	start("x", `["nosuchprogram"]`, "")
	start("x", `["/no/such/program"]`, "")
	start("x", `["./noexec"]`, "")
	start("x", `["./notaprogram"]`, "")
	start("x", `["./d"]`, "")
	start("x", `[""]`, "")
	start("x", `["true","a\u0000b"]`, "")
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"file://$DIR/none","env":{},"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"file://$DIR/a.txt","env":{},"tty":false}`)
	add("process/start", `{"processId":"x","argv":["true"],"cwd":"file://$DIR","env":{"A":"b\u0000c"},"tty":false}`)

	// Processes: what runs.
	run("p1", `["sh","-c","echo out; echo err >&2; exit 3"]`, "")
	run("", `["true"]`, "")
	start("p1", `["true"]`, "")
	run("p2", `["sh","-c","pwd; env"]`, "")
	run("p3", `["sh","-c","kill -9 $$"]`, "")
	run("p4", `["sh","-c","kill -TERM $$"]`, "")
	run("p5", `["sh","-c","echo $0"]`, `,"arg0":"other"`)
	run("p6", `["cat"]`, "")
	run("p7", `["sh","-c","printf '\\377\\000x'"]`, "")
	run("p8", `["sh","-c","head -c 100000 /dev/zero | tr '\\0' a"]`, "")
	run("p10", `["sh","-c","ulimit -n >/dev/null; ls -l /proc/self/fd | wc -l"]`, "")
	run("p11", `["sh","-c","exit 255"]`, `,"metadata":{"threadId":"0b8f5e2c-1111-4222-8333-444455556666","toolCallId":"x"},"networkProxy":null,"shellSnapshot":null,"sandbox":null,"managedNetwork":null`)
	run("p12", `["sh","-c","echo $FOO-$BAR-$SOME_SECRET-$PLAIN"]`, `,"envPolicy":{"inherit":"all","ignoreDefaultExcludes":false,"exclude":[],"set":{"FOO":"f"},"includeOnly":[]}`)
	run("p13", `["sh","-c","echo $FOO-$BAR-$SOME_SECRET-$PLAIN"]`, `,"envPolicy":{"inherit":"all","ignoreDefaultExcludes":true,"exclude":["PLA*","fo?"],"set":{"FOO":"f","BAR":"b"},"includeOnly":[]}`)
	run("p14", `["sh","-c","env | cut -d= -f1 | sort"]`, `,"envPolicy":{"inherit":"none","ignoreDefaultExcludes":true,"exclude":[],"set":{"FOO":"f","BAR":"b","BAZ":"z"},"includeOnly":["ba*"]}`)
	run("p15", `["sh","-c","env | cut -d= -f1 | grep -v '^_$' | sort"]`, `,"envPolicy":{"inherit":"core","ignoreDefaultExcludes":false,"exclude":[],"set":{},"includeOnly":[]}`)
	run("p16", `["sh","-c","exit 0"]`, `,"pipeStdin":true,"enforceManagedNetwork":true,"managedNetwork":{"loopbackPorts":[1],"allowLocalBinding":true}`)
	pty := func(id, argv string) *codexRequest {
		r := add("process/start", fmt.Sprintf(`{"processId":%q,"argv":%s,"cwd":"file://$DIR","env":{"PATH":"/usr/bin:/bin"},"tty":true}`, id, argv))
		r.process = id
		return r
	}
	pty("t1", `["sh","-c","stty size; echo TERM=$TERM; tty >/dev/null && echo tty; exit 4"]`)
	differs(pty("t2", `["sh","-c","kill -9 $$"]`), "a death by signal on a terminal is 128 and its number", `"exitCode":137`)
	differs(pty("t3", `["sh","-c","kill -INT $$"]`), "a death by signal on a terminal is 128 and its number", `"exitCode":130`)

	// Input, reading, ending.
	start("w1", `["cat"]`, `,"pipeStdin":true`)
	write := func(id, text, writeID string) *codexRequest {
		return add("process/write", fmt.Sprintf(`{"processId":%q,"chunk":%q,"writeId":%q}`, id, b64(text), writeID))
	}
	write("w1", "one\n", "1")
	write("w1", "one\n", "1")
	write("w1", "", "2")
	add("process/read", `{"processId":"w1","afterSeq":0,"waitMs":20000}`)
	write("w1", "two\n", "3")
	add("process/read", `{"processId":"w1","afterSeq":1,"waitMs":20000}`)
	write("w1", "x", "")
	write("none", "x", "1")
	write("p2", "x", "1")
	add("process/write", `{"processId":"w1","chunk":"!!","writeId":"9"}`)
	add("process/write", `{"processId":"w1","chunk":"YQ","writeId":"9"}`)
	add("process/write", `{"processId":"w1","chunk":"YR==","writeId":"9"}`)
	add("process/write", `{"processId":"w1","chunk":5,"writeId":"9"}`)
	add("process/write", `{"processId":"w1","chunk":"YQ=="}`)
	add("process/write", `{"processId":"w1","chunk":"YQ==","writeId":null}`)
	add("process/signal", `{"processId":"w1","signal":"term"}`)
	add("process/signal", `{"processId":"w1","signal":"Interrupt"}`)
	add("process/signal", `{"processId":"w1"}`)
	add("process/signal", `{"processId":"none","signal":"interrupt"}`)
	add("process/signal", `{"processId":"p1","signal":"interrupt"}`)
	add("process/signal", `{"processId":"w1","signal":"interrupt"}`).process = "w1"
	add("process/terminate", `{"processId":"w1"}`)
	add("process/terminate", `{"processId":"none"}`)
	add("process/terminate", `{}`)
	differs(write("w1", "late", "20"), "who has ended reads no more", `"stdinClosed"`)
	start("k1", `["sleep","100"]`, "")
	add("process/read", `{"processId":"k1"}`)
	add("process/read", `{"processId":"k1","afterSeq":null,"maxBytes":null,"waitMs":null}`)
	add("process/read", `{"processId":"k1","waitMs":20}`)
	add("process/terminate", `{"processId":"k1"}`).process = "k1"
	add("process/terminate", `{"processId":"k1"}`)
	add("process/read", `{"processId":"k1","waitMs":60000}`)
	for _, params := range []string{`"afterSeq":0`, `"afterSeq":1000`, `"afterSeq":3,"waitMs":5000`, `"maxBytes":0`, `"maxBytes":4`, `"afterSeq":-1`, `"afterSeq":1.5`, `"afterSeq":"1"`, `"maxBytes":-1`, `"waitMs":-1`, `"waitMs":18446744073709551615`, `"waitMs":18446744073709551616`} {
		add("process/read", `{"processId":"p3",`+params+`}`)
	}
	add("process/read", `{"processId":"none"}`)
	add("process/read", `{}`)
	add("process/read", `null`)
	add("process/read", `[]`)

	// Files, with every path.
	const slash = "an escaped slash is no separator"
	paths := []string{
		"a.txt", "b", "d", "d/", "d/x.txt", "d/../a.txt", "./a.txt", "d/%2e%2e/a.txt", "none", "none/below", "a.txt/below", "link", "dangling",
		"loop", "dirlink", "dirlink/x.txt", "fifo", "a%20b", "a b", "p%25q", "p%q", "%C3%BCn%C3%AF", "odd/bad%FF", "odd", "empty", "d//x.txt", `d\\x.txt`, "a.txt%00",
		"a.txt?x", "a.txt#x", "a.txt/", "%61.txt",
	}
	for _, path := range paths {
		for _, method := range []string{"fs/getMetadata", "fs/readFile", "fs/canonicalize", "fs/readDirectory"} {
			r := add(method, `{"path":"file://$DIR/`+path+`"}`)
			if method == "fs/canonicalize" && path == "p%q" {
				_ = r
			}
		}
	}
	differs(add("fs/readFile", `{"path":"file://$DIR/d%2F..%2Fa.txt"}`), slash, `"code":-32602`)
	for _, uri := range []string{
		"file:$DIR/a.txt", "file:/$DIR/a.txt", "file:////$DIR/a.txt", "FILE://$DIR/a.txt", "file://localhost$DIR/a.txt", "file://LOCALHOST$DIR/a.txt",
		" file://$DIR/a.txt ", "$DIR/a.txt", "a.txt", "", "http://x/y", "vscode-remote://ssh/x", "untitled:x", "file:///C:/x", "file://server/share/x",
		"file://user@host/x", "file://host:80/x", "file://ho st/x", "file:///%00/x", "file:///%00/bad/path/YQ", "file:///%00/bad/path/YQ==", "file:///%00/bad/path/", `C:\\x`, `\\\\srv\\share`,
		`file://$DIR/a\t.txt`, `file://$DIR/a\n.txt`,
	} {
		add("fs/getMetadata", `{"path":"`+uri+`"}`)
	}
	for _, path := range []string{"a.txt", "link", "dirlink/x.txt", "dangling", "none", "d", "fifo", "loop"} {
		for _, method := range []string{"fs/getMetadata", "fs/readFile"} {
			add(method, `{"path":"file://$DIR/`+path+`","followSymlinks":false}`)
		}
	}
	add("fs/getMetadata", `{"path":"file:///dev/null"}`)
	add("fs/readFile", `{"path":"file:///dev/null"}`)
	add("fs/readFile", `{"path":"file:///proc/self/status"}`).text = `{"id":$ID,"method":"fs/getMetadata","params":{"path":"file:///proc/version"}}`
	add("fs/readFile", `{"path":"file://$DIR/a.txt","followSymlinks":null,"sandbox":null}`)
	add("fs/readFile", `{"path":5}`)
	add("fs/readFile", `{}`)
	add("fs/readFile", `null`)
	add("fs/readFile", `{"Path":"file://$DIR/a.txt"}`)
	add("fs/readFile", `{"path":"file://$DIR/a.txt","followSymlinks":"no"}`)

	// Sandboxes that let all through.
	for _, sandbox := range []string{
		`{"permissions":{"type":"disabled"},"windowsSandboxLevel":"disabled"}`,
		`{"permissions":{"type":"external","network":"restricted"},"windowsSandboxLevel":"disabled"}`,
		`{"permissions":{"type":"external"},"windowsSandboxLevel":"disabled"}`,
		`{"permissions":{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"},"windowsSandboxLevel":"disabled"}`,
		`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}]},"network":"restricted"},"windowsSandboxLevel":"disabled","cwd":"file://$DIR"}`,
		`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`,
		`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"special","value":{"kind":"moon"}},"access":"write"}]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`,
		`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[],"glob_scan_max_depth":0},"network":"restricted"},"windowsSandboxLevel":"disabled"}`,
	} {
		add("fs/readFile", `{"path":"file://$DIR/a.txt","sandbox":`+sandbox+`}`)
	}

	// Writing.
	writeFile := func(path, text, more string) *codexRequest {
		return add("fs/writeFile", fmt.Sprintf(`{"path":"file://$DIR/%s","dataBase64":%q%s}`, path, b64(text), more))
	}
	look := func(path string) {
		add("fs/readFile", `{"path":"file://$DIR/`+path+`"}`)
		add("fs/getMetadata", `{"path":"file://$DIR/`+path+`"}`)
	}
	writeFile("new", "fresh", "")
	look("new")
	writeFile("new", "", "")
	look("new")
	writeFile("link", "through", "")
	look("a.txt")
	writeFile("dangling", "made", "")
	look("nowhere")
	look("dangling")
	writeFile("none/below", "x", "")
	writeFile("d", "x", "")
	writeFile("a.txt/x", "x", "")
	writeFile("link", "x", `,"followSymlinks":false`)
	writeFile("dirlink/x.txt", "x", `,"followSymlinks":false`)
	writeFile("quite-new", "x", `,"followSymlinks":false`)
	add("fs/writeFile", `{"path":"file://$DIR/new","dataBase64":"!!"}`)
	add("fs/writeFile", `{"path":"file://$DIR/new","dataBase64":"YQ"}`)
	add("fs/writeFile", `{"path":"file://$DIR/new","dataBase64":5}`)
	add("fs/writeFile", `{"path":"file://$DIR/new"}`)

	// Directories.
	for _, params := range []string{
		`"path":"file://$DIR/m1/m2"`, `"path":"file://$DIR/m1/m2"`, `"path":"file://$DIR/m1/m3","recursive":false`, `"path":"file://$DIR/m1/m3","recursive":false`,
		`"path":"file://$DIR/m4/m5","recursive":false`, `"path":"file://$DIR/a.txt"`, `"path":"file://$DIR/a.txt/x"`, `"path":"file://$DIR/dirlink"`,
		`"path":"file://$DIR/loop"`, `"path":"file://$DIR/m6","recursive":null,"followSymlinks":null`,
	} {
		add("fs/createDirectory", "{"+params+"}")
	}
	add("fs/readDirectory", `{"path":"file://$DIR"}`)
	add("fs/readDirectory", `{"path":"file://$DIR/m1"}`)

	// Walking.
	walk := func(path, options string) *codexRequest {
		return add("fs/walk", `{"path":"file://$DIR/w/`+path+`","options":`+options+`}`)
	}
	walk("", `{"maxDepth":6,"maxDirectories":2000,"maxEntries":20000,"followDirectorySymlinks":true,"pruneHiddenDirectories":true}`)
	walk("", `{"maxDepth":6,"maxDirectories":2000,"maxEntries":20000,"followDirectorySymlinks":false}`)
	walk("", `{"maxDepth":0,"maxDirectories":10,"maxEntries":100,"followDirectorySymlinks":false}`)
	walk("", `{"maxDepth":1,"maxDirectories":10,"maxEntries":100,"followDirectorySymlinks":true,"pruneHiddenDirectories":null}`)
	walk("", `{"maxDepth":1,"maxDirectories":10,"maxEntries":100,"followDirectorySymlinks":true}`)
	walk("", `{"maxDepth":9,"maxDirectories":1,"maxEntries":100,"followDirectorySymlinks":false}`)
	walk("", `{"maxDepth":9,"maxDirectories":100,"maxEntries":5,"followDirectorySymlinks":false}`)
	walk("", `{"maxDepth":9,"maxDirectories":3,"maxEntries":14,"followDirectorySymlinks":true}`)
	walk("", `{"maxDepth":1,"maxDirectories":0,"maxEntries":5,"followDirectorySymlinks":false}`)
	walk("", `{"maxDepth":65,"maxDirectories":1,"maxEntries":5,"followDirectorySymlinks":false}`)
	walk("", `{"maxDepth":1,"maxDirectories":10001,"maxEntries":5,"followDirectorySymlinks":false}`)
	walk("", `{"maxDepth":1,"maxDirectories":1,"maxEntries":50001,"followDirectorySymlinks":false}`)
	walk("", `{"maxDepth":1}`)
	differs(walk("../odd", `{"maxDepth":1,"maxDirectories":10,"maxEntries":100,"followDirectorySymlinks":false}`), "names keep their bytes", `odd/bad%FF`)
	for _, path := range []string{"a.txt", "none", "dirlink", "dangling2", "d/.hidden", "loop", "empty", "fifo"} {
		walk(path, `{"maxDepth":6,"maxDirectories":20,"maxEntries":200,"followDirectorySymlinks":false}`)
		walk(path, `{"maxDepth":6,"maxDirectories":20,"maxEntries":200,"followDirectorySymlinks":true,"pruneHiddenDirectories":true}`)
	}

	// Copying.
	copying := func(from, to string, recursive bool) *codexRequest {
		return add("fs/copy", fmt.Sprintf(`{"sourcePath":"file://$DIR/%s","destinationPath":"file://$DIR/%s","recursive":%t}`, from, to, recursive))
	}
	copying("b", "b2", false)
	look("b2")
	copying("a.txt", "b2", false)
	look("b2")
	copying("tree", "tree2", false)
	copying("tree", "tree2", true)
	walk("../tree2", `{"maxDepth":6,"maxDirectories":20,"maxEntries":200,"followDirectorySymlinks":false}`)
	copying("tree", "tree2", true)
	copying("tree", "tree/one/in", true)
	copying("tree", "tree", true)
	copying("none", "x", true)
	copying("a.txt", "none/x", false)
	copying("a.txt", "d", false)
	copying("link", "link2", false)
	add("fs/getMetadata", `{"path":"file://$DIR/link2"}`)
	copying("link", "b2", false)
	copying("fifo", "fifo2", false)
	copying("d", "a.txt", true)
	copying("b", "tree2/b", true)
	add("fs/copy", `{"sourcePath":"file://$DIR/a.txt","destinationPath":"file://$DIR/c"}`)
	add("fs/copy", `{"sourcePath":"file://$DIR/a.txt","destinationPath":"file://$DIR/c","recursive":null}`)
	const itself = "copying a file onto itself changes nothing"
	copying("same", "same", false)
	differs(add("fs/readFile", `{"path":"file://$DIR/same"}`), itself, b64("same"))
	copying("same", "same2", false)
	differs(add("fs/readFile", `{"path":"file://$DIR/same2"}`), itself, b64("same"))

	// Open files.
	open := func(id, path, more string) *codexRequest {
		return add("fs/open", fmt.Sprintf(`{"handleId":%q,"path":"file://$DIR/%s"%s}`, id, path, more))
	}
	block := func(id string, offset, length int) *codexRequest {
		return add("fs/readBlock", fmt.Sprintf(`{"handleId":%q,"offset":%d,"len":%d}`, id, offset, length))
	}
	writeBlock := func(id string, offset int, text string) *codexRequest {
		return add("fs/writeBlock", fmt.Sprintf(`{"handleId":%q,"offset":%d,"chunk":%q}`, id, offset, b64(text)))
	}
	open("h", "big", "")
	open("h", "big", "")
	block("h", 0, 100)
	block("h", 100, 50000)
	block("h", 50100, 1048576)
	block("h", 200000, 10)
	block("h", 199990, 10)
	block("h", 5, 10)
	block("h", 300000, 10)
	block("h", 0, 0)
	block("h", 0, 1048577)
	block("g", 0, 10)
	add("fs/readBlock", `{"handleId":"h","offset":18446744073709551615,"len":1}`)
	block("h", 0, 10)
	open("", "b", `,"mode":"read"`)
	block("", 0, 10)
	writeBlock("", 0, "x")
	block("", 0, 10)
	open("i", "b", `,"mode":null`)
	open("i", "b", `,"mode":"append"`)
	open("123456789012345678901234567890123", "b", "")
	open("i", "d", "")
	open("i", "none", "")
	open("i", "fifo", "")
	open("i", "dangling2", "")
	open("w", "written", `,"mode":"replace"`)
	look("written")
	writeBlock("w", 0, "hello ")
	writeBlock("w", 6, "world")
	look("written")
	writeBlock("w", 20, "far")
	look("written")
	writeBlock("w", 2, "LL")
	look("written")
	writeBlock("w", 0, "")
	add("fs/writeBlock", `{"handleId":"w","offset":9223372036854775807,"chunk":"YQ=="}`)
	writeBlock("w", 22, "!")
	block("w", 0, 1)
	writeBlock("w", 0, "x")
	open("w", "d", `,"mode":"replace"`)
	open("w", "none/x", `,"mode":"replace"`)
	open("v", "b", `,"mode":"replace"`)
	look("b")
	add("fs/close", `{"handleId":"v"}`)
	add("fs/close", `{"handleId":"v"}`)
	add("fs/close", `{"handleId":"never"}`)
	add("fs/close", `{}`)
	open("u", "new", "")
	add("fs/remove", `{"path":"file://$DIR/new"}`)
	block("u", 0, 10)

	// Watching.
	for _, params := range []string{
		`{"watchId":1,"missing":["file://$DIR/none"]}`, `{"watchId":2,"missing":["file://$DIR/a.txt"]}`, `{"watchId":1,"missing":[]}`,
		`{"watchId":3,"missing":["file://$DIR/none","file://$DIR/none2/x"],"present":"file://$DIR/a.txt"}`,
		`{"watchId":4,"missing":["file://$DIR/none"],"present":"file://$DIR/none"}`, `{"watchId":5,"missing":["file://$DIR/none"],"present":null}`,
		`{"watchId":2,"missing":["file://$DIR/none"]}`, `{"watchId":7,"missing":["file://$DIR/none"]}`, `{"watchId":7,"missing":["file://$DIR/none"]}`,
		`{"watchId":-1,"missing":[]}`, `{"watchId":"1","missing":[]}`, `{"missing":[]}`, `{"watchId":1}`, `{"watchId":1,"missing":["/x"]}`,
	} {
		add("fs/watchMissing", params)
	}

	// Removing.
	for _, params := range []string{
		`"path":"file://$DIR/none"`, `"path":"file://$DIR/none","force":false`, `"path":"file://$DIR/tree","recursive":false`, `"path":"file://$DIR/a.txt/x"`,
		`"path":"file://$DIR/empty","recursive":false`, `"path":"file://$DIR/link2","recursive":false,"followSymlinks":false`, `"path":"file://$DIR/link2","followSymlinks":false`,
		`"path":"file://$DIR/dirlink/x.txt","recursive":false,"followSymlinks":false`, `"path":"file://$DIR/link2"`, `"path":"file://$DIR/tree"`, `"path":"file://$DIR/dirlink"`,
		`"path":"file://$DIR/fifo"`, `"path":"file://$DIR/b","recursive":null,"force":null`,
	} {
		add("fs/remove", "{"+params+"}")
	}
	add("fs/readDirectory", `{"path":"file://$DIR"}`)
	add("fs/getMetadata", `{"path":"file://$DIR/d/x.txt"}`)

	// HTTP, as far as it needs no server.
	for _, params := range []string{
		`{"method":"GET","url":"ftp://x/","requestId":"r"}`, `{"method":"GET","url":"nothing","requestId":"r"}`, `{"method":"GE T","url":"http://127.0.0.1:1/","requestId":"r"}`,
		`{"method":"GET","url":"http://127.0.0.1:1/","requestId":"r"}`, `{"method":"GET","url":"http://127.0.0.1:1/"}`, `{"url":"http://127.0.0.1:1/","requestId":"r"}`,
		`{"method":"GET","url":"http://127.0.0.1:1/","requestId":"r","headers":[{"name":"a b","value":"x"}]}`,
		`{"method":"GET","url":"http://127.0.0.1:1/","requestId":"r","headers":[{"name":"a","value":"x\ny"}]}`,
		`{"method":"GET","url":"http://127.0.0.1:1/","requestId":"r","headers":[{"name":"a","value":"","valueEnvVar":"NOT_SET"}]}`,
		`{"method":"GET","url":"http://127.0.0.1:1/","requestId":"r","headers":null}`, `{"method":"GET","url":"http://127.0.0.1:1/","requestId":"r","redirectPolicy":"maybe"}`,
		`{"method":"GET","url":"http://127.0.0.1:1/","requestId":"r","streamResponse":true}`, `{"method":"GET","url":"http://127.0.0.1:1/","requestId":"r","bodyBase64":"!!"}`,
		`{"method":"GET","url":"http://127.0.0.1:1/","requestId":"r","timeoutMs":0}`, `{"method":"GET","url":"http:///x","requestId":"r"}`,
	} {
		add("http/request", params)
	}

	// What ends a connection.
	raw(`{"method":"nothing/known"}`)
	raw(`{"id":1,"result":{}}`)
	raw(`{"id":1,"error":{"code":1,"message":"x"}}`)
	raw(`{"method":"fs/readFile","params":{"path":"file:///x"}}`)
	add("environment/status", "null")
	return list
}
