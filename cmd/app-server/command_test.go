package main

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

func TestExitCode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("every code fits there")
	}
	for _, c := range []struct {
		exit env.Exit
		code int
		note string
	}{
		{env.Exit{}, 0, ""},
		{env.Exit{Code: 255}, 255, ""},
		{env.Exit{Code: 256}, 255, "exit code is 256"},
		{env.Exit{Code: 0xC0000005}, 255, "0xC0000005"},
		{env.Exit{Code: -1, Signal: "KILL"}, 137, ""},
		{env.Exit{Code: -1, Signal: "TERM", Reason: "lease ended"}, 143, "lease ended"},
		{env.Exit{Code: -1, Signal: "34"}, 162, ""},
		{env.Exit{Code: -1, Signal: "NEW"}, 128, ""},
	} {
		code, note := exitCode(c.exit)
		if code != c.code || !strings.Contains(note, c.note) || c.note == "" && note != "" {
			t.Errorf("%+v: %d, %q; want %d, %q", c.exit, code, note, c.code, c.note)
		}
	}
}

func TestStartFailure(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{fmt.Errorf("%w: %w", env.ErrStart, fs.ErrNotExist), 127},
		{fmt.Errorf("%w: %w", env.ErrStart, fs.ErrPermission), 126},
		{env.ErrInvalid, 125},
		{env.ErrLimit, 125},
	} {
		var exit *exitError
		if !errors.As(startFailure(c.err), &exit) || exit.code != c.code {
			t.Errorf("%v: %+v, want %d", c.err, exit, c.code)
		}
	}
}

func TestInHome(t *testing.T) {
	posix := env.Info{Paths: pathuri.Posix, Home: native(t, "/home/u", pathuri.Posix)}
	windows := env.Info{Paths: pathuri.Windows, Home: native(t, `C:\Users\u`, pathuri.Windows)}
	for _, c := range []struct {
		info       env.Info
		text, want string
	}{
		{posix, "p", "/home/u/p"},
		{posix, "/tmp/w", "/tmp/w"},
		{posix, "~", "/home/u"},
		{posix, "~/p/../q", "/home/u/q"},
		{posix, "./~", "/home/u/~"},
		{posix, "$HOME/p", "/home/u/$HOME/p"},
		{posix, `a\b`, `/home/u/a\b`},
		{posix, "~root/p", ""},
		{posix, `~\p`, ""},
		{windows, `src\p`, `C:\Users\u\src\p`},
		{windows, "src/p", `C:\Users\u\src\p`},
		{windows, `~\p`, `C:\Users\u\p`},
		{windows, "~/p", `C:\Users\u\p`},
		{windows, `\p`, `C:\p`},
		{windows, `D:\p`, `D:\p`},
		{windows, `D:p`, ""},
	} {
		got, err := inHome(c.info, c.text)
		if c.want == "" {
			if err == nil {
				t.Errorf("%q: %s, want an error", c.text, got.Display())
			}
			continue
		}
		if err != nil || got.Display() != c.want {
			t.Errorf("%q: %s, %v; want %s", c.text, got.Display(), err, c.want)
		}
	}
}

func native(t *testing.T, text string, c pathuri.Convention) pathuri.URI {
	t.Helper()
	u, err := pathuri.FromNative(text, c)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestFindProcess(t *testing.T) {
	processes := []env.ProcessInfo{
		{ID: "aa11/1", State: env.Closed}, {ID: "aa22/1", State: env.Running}, {ID: "bb11/build", State: env.Running},
		{ID: "bb11/build2", State: env.Running}, {ID: "cc/same", State: env.Running}, {ID: "dd/same", State: env.Running},
		{ID: "ee/x", State: env.Closed}, {ID: "ff/x", State: env.Running},
	}
	for _, c := range []struct{ name, want, err string }{
		{"aa11/1", "aa11/1", ""},
		{"aa1", "aa11/1", ""},
		{"aa", "aa22/1", ""}, // the other has ended
		{"bb11/build", "bb11/build", ""},
		{"bb11", "", "means several"},
		{"build", "bb11/build", ""},
		{"same", "", "cc/same, dd/same"},
		{"x", "ff/x", ""},
		{"zz", "", `unknown process "zz"; app-server ps -a lists them`},
		{"", "", "unknown process"},
	} {
		p, err := findProcess(processes, c.name, "app-server ps -a")
		if p.ID != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %q, %v; want %q, %q", c.name, p.ID, err, c.want, c.err)
		}
	}
}

func TestParseWay(t *testing.T) {
	for _, c := range []struct {
		text string
		want way
	}{
		{"8080", way{8080, "localhost:8080"}},
		{"0:8080", way{0, "localhost:8080"}},
		{"9000:8080", way{9000, "localhost:8080"}},
		{"9000:db.internal:5432", way{9000, "db.internal:5432"}},
		{"9000:[::1]:5432", way{9000, "[::1]:5432"}},
		{"0", way{}}, {"", way{}}, {"x", way{}}, {"1:0", way{}}, {"65536", way{}}, {"-1", way{}}, {"1:2:3:4", way{}},
		{"1::2", way{}}, {"1:", way{}}, {":1", way{}}, {"1:::1:2", way{}},
	} {
		got, err := parseWay(c.text)
		if (err == nil) != (c.want != way{}) || err == nil && got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.text, got, err, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var out strings.Builder
	err := printTable(&out, []env.ProcessInfo{
		{ID: "s/1", Pid: 7, Argv: []string{"sh", "-c", "echo $X"}, State: env.Running, Started: now.Add(-90 * time.Minute), Owned: true,
			CPU: 1500 * time.Millisecond, Memory: 3 << 20, Output: 1 << 30, Full: true, Dropped: 5},
		{ID: "s/2", Pid: 8, Argv: []string{"\x1b]0;x\x07", "\xff"}, State: env.Closed, Started: now.Add(-time.Hour), Ended: now.Add(-59 * time.Minute),
			Exit: &env.Exit{Code: -1, Signal: "KILL", Reason: "lease ended"}, LeaseLeft: 26 * time.Hour},
	}, now)
	want := `ID   PID  STATE            TIME   CPU   MEMORY  OUTPUT  LEASE  NOTE          COMMAND
s/1  7    running          1h30m  1.5s  3.0M    1.0G    -      full,lost 5B  sh -c 'echo $X'
s/2  8    closed(SIGKILL)  1m     0s    0B      0B      1d2h   lease ended   $'\x1b]0;x\x07' $'\xff'
`
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out.String(), want)
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "\u4f60 \u00e9": "\u4f60 \u00e9", "a\x1b[31m\x00": `a\x1b[31m\x00`, "\xff\xc3": `\xff\xc3`, "\u0090": `\xc2\x90`,
		"a\u202eb": `a\u202eb`, "\n\t": `\x0a\x09`, "\ufffd": "\ufffd",
	} {
		if got := escapeControls(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1.0K", 10 << 10: "10K", 1023 << 10: "1.0M", 1 << 40: "1.0T"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", -time.Second: "0s", 1234 * time.Millisecond: "1.23s", 59 * time.Second: "59s", 61 * time.Second: "1m1s",
		10 * time.Minute: "10m", 25 * time.Hour: "1d1h", 7 * 24 * time.Hour: "7d",
	} {
		if got := durationText(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// TestUsageErrors: what is typed wrongly is told in words of ours, with what to do, before anything is dialled.
func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"rnu", `unknown command "rnu" (did you mean run or env?); see app-server --help`},
		{"dance", `unknown command "dance"; see app-server --help`},
		{"ps foo", `ps takes no argument such as "foo"; see app-server ps --help`},
		{"shell tcp://box", `shell takes no argument such as "tcp://box"; see app-server shell --help`},
		{"attach -e tcp://box:1", "no process given; " + self() + " ps -e tcp://box:1 lists them"},
		{"attach a b", "2 processes given; attach comes back to one"},
		{"attach --take --watch a", "--take and --watch exclude each other"},
		{"kill -e tcp://box:1", "no process given; " + self() + " ps -e tcp://box:1 lists them"},
		{"run --lease 5 -- true", `invalid argument "5" for "--lease" flag: want a time such as 90s, 10m or 1h30m; see app-server run --help`},
		{"run --linger=-1s -- true", `invalid argument "-1s" for "--linger" flag: it is negative; see app-server run --help`},
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(c.line))
		if err := root.Execute(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v; want %s", c.line, err, c.want)
		}
	}
}

// TestDefaults: help shows a default once, in words where there is no number.
func TestDefaults(t *testing.T) {
	for _, c := range []struct{ command, want string }{
		{"attach", "--lease duration   how long it outlives our connection (default: the longest that the server grants)\n"},
		{"shell", "--lease duration     how long it outlives our connection (default: the server's, as a rule 10m)\n"},
		{"run", "for what still holds the output (default 2s)\n"},
		{"run", "end it after this time\n"},
		{"kill", "between the polite signal and the kill (default 5s)\n"},
	} {
		command, _, err := newRoot().Find([]string{c.command})
		if err != nil || !strings.Contains(command.UsageString(), c.want) {
			t.Errorf("%v; no %q in\n%s", err, c.want, command.UsageString())
		}
	}
}
