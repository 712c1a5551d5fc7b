package registry

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// pin is a well-formed TLS pin.
const pin = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// TestFileErrors: each error tells file, line and key, and what would be right; all of a file are told at once.
func TestFileErrors(t *testing.T) {
	box := "[[environments]]\nid = 'box'\nurl = 'tls://box'\n"
	for _, c := range []struct {
		name, text string
		want       []string // without the file's name
	}{
		{"syntax", "default = \n", []string{"1: column 11: unexpected character U+000A at start of value"}},
		{"a key twice", box + "id = 'c'\n", []string{"4: column 1: key id is already defined"}},
		{"unknown keys", "defualt = 'local'\n" + box + "token-file = 't'\ncolour = 'red'\n[environments.skills]\nneeded = []\n", []string{
			`1: unknown key "defualt"; did you mean "default"?`,
			`5: environment "box": unknown key "token-file"; did you mean "token_file"?`,
			`6: environment "box": unknown key "colour"; known are id, url, program, args, env, cwd, auth_bearer_token, token_file, tls_pin, tls_ca, client_cert, client_key, connect_timeout_sec, initialize_timeout_sec, lease_sec, skills`,
			`8: environment "box": unknown key "needed"; known are required`,
		}},
		{"kinds", "default = 1\ninclude_local = 'no'\n[[environments]]\nid = 7\nurl = ['tls://box']\nargs = 'x'\nenv = 'A=B'\nlease_sec = '1'\n", []string{
			`1: default: want a string, not a number`,
			`2: include_local: want true or false, not a string`,
			`4: environment "environments[0]": id: want a string, not a number`,
			`5: environment "environments[0]": url: want a string, not an array`,
			`6: environment "environments[0]": args: want an array of strings, not a string`,
			`7: environment "environments[0]": env: want a table of strings, not a string`,
			`8: environment "environments[0]": lease_sec: want a number of seconds, not a string`,
		}},
		{"kinds inside", "[[environments]]\nid = 'a'\nprogram = 'p'\nargs = [\n  'x',\n  1,\n]\n[environments.env]\nA = 1\n", []string{
			`6: environment "a": args: want strings in the array, not a number`,
			`9: environment "a": env: want a string for "A", not a number`,
		}},
		{"no tables", "environments = 'x'\n", []string{`1: environments: want tables, written [[environments]], not a string`}},
		{"inline", "environments = [\n  {id = 'a', url = 'tls://a'},\n  {id = 'b', uri = 'tls://b'},\n]\n", []string{
			`3: environment "b": unknown key "uri"; did you mean "url"?`,
			`3: environment "b": neither "url" nor "program" is there; give one`,
		}},
		{"ids", "[[environments]]\nurl = 'tls://a'\n[[environments]]\nid = ''\nurl = 'tls://a'\n[[environments]]\nid = 'Local'\nurl = 'tls://a'\n[[environments]]\nid = 'NONE'\nurl = 'tls://a'\n" +
			"[[environments]]\nid = ' a'\nurl = 'tls://a'\n[[environments]]\nid = 'a.b'\nurl = 'tls://a'\n[[environments]]\nid = '" + strings.Repeat("x", 65) + "'\nurl = 'tls://a'\n", []string{
			`1: environment "environments[0]": id: it is missing; write id = "NAME"`,
			`4: environment "environments[1]": id: it is empty`,
			`7: environment "environments[2]": id: "Local" has a meaning of its own; choose another name`,
			`10: environment "environments[3]": id: "NONE" has a meaning of its own; choose another name`,
			`13: environment "environments[4]": id: " a" has blanks around it`,
			`16: environment "environments[5]": id: "a.b" has more in it than ASCII letters, digits, - and _`,
			`19: environment "environments[6]": id: it is 65 bytes long, and 64 is the most`,
		}},
		{"an id twice", box + box, []string{`5: environment "box": id: line 1 has the same one`}},
		{"two ways", box + "program = 'p'\n", []string{`4: environment "box": program: "url" is there as well; give one of the two`}},
		{"no way", "[[environments]]\nid = 'a'\n", []string{`1: environment "a": neither "url" nor "program" is there; give one`}},
		{"empty", "[[environments]]\nid = 'a'\nprogram = ' '\n", []string{`3: environment "a": program: it is empty; give it a value or take it out`}},
		{"args of a url", box + "args = []\ncwd = 'd'\nenv = {A = 'b'}\n", []string{
			`4: environment "box": args: it goes with "program"`,
			`5: environment "box": cwd: it goes with "program"`,
			`6: environment "box": env: it goes with "program"`,
		}},
		{"access of a program", "[[environments]]\nid = 'a'\nprogram = 'p'\ntoken_file = 't'\nconnect_timeout_sec = 3\n", []string{
			`4: environment "a": token_file: it goes with a "url" such as tls://HOST:7777, not with "program"`,
			`5: environment "a": connect_timeout_sec: it goes with a "url" such as tls://HOST:7777, not with "program"`,
		}},
		{"access of ssh", "[[environments]]\nid = 'a'\nurl = 'ssh://box'\ntls_pin = '" + pin + "'\n", []string{
			`4: environment "a": tls_pin: it goes with a "url" such as tls://HOST:7777, not with ssh://`,
		}},
		{"names of variables", "[[environments]]\nid = 'a'\nprogram = 'p'\nenv = {'A=B' = 'c'}\n", []string{
			`4: environment "a": env: "A=B" is no name of a variable, or has a value that none can have`,
		}},
		{"urls", "[[environments]]\nid = 'a'\nurl = 'box'\n[[environments]]\nid = 'b'\nurl = 'stdio'\n[[environments]]\nid = 'c'\nurl = 'ssh://-x'\n", []string{
			`3: environment "a": url: address: it has no scheme; write for example tcp://127.0.0.1:7777, unix:///path.sock or stdio`,
			`6: environment "b": url: stdio is for servers; a command is written as "program"`,
			`9: environment "c": url: ssh: the box's name begins with a dash, as an option of ssh would`,
		}},
		{"a bearer token in the clear", "[[environments]]\nid = 'a'\nurl = 'ws://box.example/mux'\nauth_bearer_token = 'secret'\n", []string{
			`4: environment "a": auth_bearer_token: it needs an encrypted URL (tls:// or wss://) or one of this machine, or everybody between could read it`,
		}},
		{"two tokens", box + "auth_bearer_token = 'x'\ntoken_file = 'y'\n", []string{
			`4: environment "box": auth_bearer_token: "token_file" is there as well; give one of the two`,
		}},
		{"TLS without TLS", "[[environments]]\nid = 'a'\nurl = 'tcp://127.0.0.1'\ntls_ca = 'x'\n", []string{
			`4: environment "a": tls_ca: it needs an encrypted URL: tls:// or wss://`,
		}},
		{"half a certificate, a bad pin", box + "client_key = 'x'\ntls_pin = 'md5:1'\n", []string{
			`4: environment "box": client_key: "client_cert" and "client_key" go together`,
			`5: environment "box": tls_pin: TLS pin: it does not start with "sha256:"`,
		}},
		{"times", box + "connect_timeout_sec = -1\ninitialize_timeout_sec = nan\nlease_sec = 1e30\n", []string{
			`4: environment "box": connect_timeout_sec: -1 is no number of seconds from 0 to 3153600000`,
			`5: environment "box": initialize_timeout_sec: NaN is no number of seconds from 0 to 3153600000`,
			`6: environment "box": lease_sec: 1e+30 is no number of seconds from 0 to 3153600000`,
		}},
		{"default", "default = 'bxo'\n" + box, []string{`1: default: no environment has the id "bxo"; did you mean "box"?`}},
		{"default of nothing", "default = 'elsewhere'\n" + box, []string{`1: default: no environment has the id "elsewhere"; write one of the ids, "local" or "none"`}},
		{"default that is left out", "include_local = false\ndefault = 'local'\n", []string{`2: default: "local" is not there, since include_local is false`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseFile("/h/environments.toml", []byte(c.text))
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.Split(err.Error(), "\n")
			for i := range got {
				got[i] = strings.TrimPrefix(got[i], "/h/environments.toml:")
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if strings.Contains(err.Error(), "secret") {
				t.Error("a token was told")
			}
		})
	}
}

// TestFile: a file with everything in it, and what it comes to.
func TestFile(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	text := `# all of it
default = "box"

[[environments]]
id = "box"
url = "  wss://box:1/mux "
token_file = "~/box.token"
tls_pin = "` + pin + `"
tls_ca = "ca.pem"
client_cert = "c.pem"
client_key = "c-key.pem"
connect_timeout_sec = 2.5
initialize_timeout_sec = 0
lease_sec = 3600
skills.required = ["go"]

[[environments]]
id = "Build_1"
program = "./bin/enter"
args = ["-i", "x y"]
cwd = "work"
[environments.env]
B = "2"
A = "1"

[[environments]]
id = "codex"
url = "ws://127.0.0.1:99"
auth_bearer_token = "t"

[[environments]]
id = "web"
url = "ssh://me@Web"
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Load(path, Options{Client: "c", StateDir: "/state"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if runtime.GOOS != "windows" && !strings.Contains(r.Warning(), "can be read by others; close it with chmod 600") {
		t.Errorf("warning %q", r.Warning())
	}
	var shown []string
	for _, l := range r.List() {
		line := l.ID + " " + l.Transport
		if l.Default {
			line += " *"
		}
		shown = append(shown, line)
	}
	want := []string{"local local", "box wss://box:1/mux *", `Build_1 ./bin/enter -i "x y"`, "codex ws://127.0.0.1:99", "web ssh://me@Web"}
	if !reflect.DeepEqual(shown, want) {
		t.Errorf("%q", shown)
	}
	spec, err := r.Spec("")
	if err != nil {
		t.Fatal(err)
	}
	a := spec.Access
	if spec.String() != "box" || spec.Transport() != "wss://box:1/mux" || a.TokenFile != filepath.Join(home, "box.token") ||
		a.TLSCA != filepath.Join(dir, "ca.pem") || a.ClientCert != filepath.Join(dir, "c.pem") || a.StateDir != "/state" ||
		spec.ConnectWithin != 2500*time.Millisecond || spec.InitializeWithin >= 0 || spec.Lease != time.Hour || spec.Client != "c" {
		t.Errorf("%+v", spec)
	}
	if got := r.List()[1].Entry.Skills; got == nil || !reflect.DeepEqual(got.Required, []string{"go"}) {
		t.Errorf("skills %+v", got)
	}
	spec, err = r.Spec("Build_1")
	if err != nil || !reflect.DeepEqual(spec.Program, []string{filepath.Join(dir, "bin/enter"), "-i", "x y"}) ||
		spec.Directory != filepath.Join(dir, "work") || !reflect.DeepEqual(spec.Environ, []string{"A=1", "B=2"}) {
		t.Errorf("%+v, %v", spec, err)
	}
	// A Codex user's file is read; what is not offered yet is told when it is wanted.
	if _, err := r.Spec("codex"); err == nil || !strings.Contains(err.Error(), `environment "codex": as a client ws:// without /mux is the Codex door`) {
		t.Errorf("%v", err)
	}
	if spec, err := r.Spec("web"); err != nil || spec.SSH != (SSH{Destination: "me@Web"}) {
		t.Errorf("%+v, %v", spec, err)
	}
	if _, err := r.Spec("wbe"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), `did you mean "web"?`) {
		t.Errorf("%v", err)
	}
	if spec, err := r.Spec("tcp://127.0.0.1"); err != nil || spec.Access.StateDir != "/state" {
		t.Errorf("%+v, %v", spec, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Load(path, Options{})
	if err != nil || again.Warning() != "" {
		t.Errorf("%v, %q", err, again.Warning())
	}
}

func TestDefaults(t *testing.T) {
	box := "\n[[environments]]\nid = 'box'\nurl = 'tls://box'\n"
	for _, c := range []struct{ text, want string }{
		{"", "local"},
		{box, "local"},
		{"default = 'box'" + box, "box"},
		{"default = 'local'" + box, "local"},
		{"default = 'None'" + box, ""},
		{"include_local = false" + box, ""},
		{"include_local = false\ndefault = 'box'" + box, "box"},
	} {
		path := filepath.Join(t.TempDir(), FileName)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Load(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Default(); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
		if _, err := r.Spec(""); (err == nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), "name one with -e: ") {
			t.Errorf("%q: %v", c.text, err)
		}
		if _, err := r.Spec(Local); (err == nil) == strings.Contains(c.text, "include_local = false") {
			t.Errorf("%q: local: %v", c.text, err)
		}
	}
	// What Codex reads from the environment does not count.
	t.Setenv("CODEX_EXEC_SERVER_URL", "none")
	r, err := Load(filepath.Join(t.TempDir(), FileName), Options{})
	if err != nil || r.Default() != Local || len(r.List()) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

func TestFileOnDisk(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir, Options{}); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("%v", err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(large, Options{}); err == nil || !strings.Contains(err.Error(), "bytes long") {
		t.Errorf("%v", err)
	}
}

// FuzzFile: no text makes the reader panic, and what can be read can be added to and cut from without a change to
// the rest.
func FuzzFile(f *testing.F) {
	f.Add("default = 'a'\n[[environments]]\nid='a'\nurl='tls://a'\n# c\n[environments.skills]\nrequired=['x']\n")
	f.Add("environments = [{id='a',program='p',args=['b']}]\n")
	f.Add("[[environments]]\r\nid='a'\r\nprogram='p'\r\nenv.A='b'\r\n\r\n# next\r\n[[environments]]\r\nid='b'\r\nurl='ssh://b'")
	f.Add("a.b.c = 1\n[[x.y]]\n[x.y.z]\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseFile("f", []byte(text))
		if err != nil {
			return
		}
		e := Entry{ID: "added-by-fuzz", Program: "p'\"\\\n", Args: []string{"", "\x7f \u2028"}, Env: map[string]string{"A": "'''"}}
		added, err := addText("f", []byte(text), e)
		if err != nil {
			return // an inline array
		}
		after, err := parseFile("f", added)
		if err != nil || len(after.entries) != len(c.entries)+1 || !sameEntries(after.entries[:len(c.entries)], c.entries) {
			t.Fatalf("%v\n%s", err, added)
		}
		got := after.entries[len(c.entries)]
		if got.ID != e.ID || !reflect.DeepEqual(got.Args, e.Args) || !reflect.DeepEqual(got.Env, e.Env) {
			t.Fatalf("%+v", got)
		}
		removed, err := removeText("f", added, e.ID)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseFile("f", removed); err != nil || !sameEntries(again.entries, c.entries) {
			t.Fatalf("%v\n%q\n%q", err, added, removed)
		}
	})
}

func sameEntries(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(a, b Entry) bool { return reflect.DeepEqual(a, b) })
}
