package registry

import (
	"context"
	"errors"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func TestSSHCommand(t *testing.T) {
	for _, c := range []struct {
		url  string
		ask  bool
		want string
	}{
		{"ssh://box", false, "ssh -T -o BatchMode=yes -- box S"},
		{"ssh://box", true, "ssh -T -- box S"},
		{"ssh://me@box:22", false, "ssh -T -o BatchMode=yes -p 22 -- me@box S"},
		{"ssh://me@[::1]:22", true, "ssh -T -p 22 -- me@::1 S"},
		{"ssh://me@corp.example@Gate", true, "ssh -T -- me@corp.example@Gate S"},
	} {
		s, err := parseSSH(c.url)
		if err != nil {
			t.Fatal(err)
		}
		argv := s.command("true", c.ask)
		if argv[len(argv)-1] != "exec sh -c 'true'" {
			t.Errorf("%q", argv)
		}
		argv[len(argv)-1] = "S"
		if got := strings.Join(argv, " "); got != c.want || s.String() != c.url {
			t.Errorf("%s: %s, want %s", s, got, c.want)
		}
	}
}

// TestSSHAsksOnce: only the first connection may ask; later somebody else may have the terminal.
func TestSSHAsksOnce(t *testing.T) {
	var asked []bool
	var spec Spec
	spec.SSH, spec.MayAsk = SSH{Destination: "box"}, true
	spec.Spawn = func(_ context.Context, p Program) (Child, error) {
		asked = append(asked, p.Ask)
		if p.Ask == strings.Contains(strings.Join(p.Argv, " "), "BatchMode") {
			t.Errorf("%q", p.Argv)
		}
		return nil, errors.New("no")
	}
	dial, err := (&Environment{spec: spec}).dialer()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := dial(t.Context()); err == nil || err.Error() != "environment ssh://box: start ssh box: no" {
			t.Errorf("%v", err)
		}
	}
	if !reflect.DeepEqual(asked, []bool{true, false, false}) {
		t.Errorf("%v", asked)
	}
}

func TestMissingServer(t *testing.T) {
	for _, noise := range []string{"", "Welcome!\n" + strings.Repeat("n", 3000) + "\n"} {
		spec := Spec{SSH: SSH{Destination: "box"}, Spawn: play(t, nil, func(c net.Conn) {
			go drained(c)
			c.Write([]byte(noise))                                  //nolint:errcheck // as far as it is read
			c.Write([]byte(missingMarker + "Linux\x1b[m mips64\n")) //nolint:errcheck // as far as it is read
		})}
		err := openAndCall(t, spec)
		var missing *NoServerError
		want := `ssh://box ("Linux\x1b[m mips64") has no exec-server: it is neither on the PATH that ssh gives to commands there nor in ~/.waldo/bin; --install copies one there`
		if !errors.As(err, &missing) || err.Error() != want {
			t.Errorf("%v", err)
		}
	}
}

func TestParseSystem(t *testing.T) {
	for in, want := range map[string]string{
		"Linux x86_64": "linux/amd64", "Linux aarch64": "linux/arm64", "Darwin arm64": "darwin/arm64", "Linux armv7l": "linux/arm",
		"FreeBSD amd64": "freebsd/amd64", "MINGW64_NT-10.0-22631 x86_64": "windows/amd64", "Linux i686": "linux/386",
		"Linux riscv64": "linux/riscv64", "Linux sparc": "", "Plan9 amd64": "", "": "", "\x1b[31m": "",
	} {
		goos, goarch, err := parseSystem(in)
		if got := goos + "/" + goarch; (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q: %s, %v; want %s", in, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q", err)
		}
	}
}

// TestFindServerFor: beside a test's own executable there is none, and the error says where one was looked for.
func TestFindServerFor(t *testing.T) {
	_, err := findServerFor("plan9", "mips")
	if err == nil || strings.Contains(err.Error(), `" and "`) || !strings.Contains(err.Error(), "exec-server-plan9-mips") {
		t.Errorf("%v", err)
	}
	_, err = findServerFor("windows", "mips")
	if err == nil || !strings.Contains(err.Error(), `exec-server-windows-mips.exe"`) {
		t.Errorf("%v", err)
	}
	_, err = findServerFor(runtime.GOOS, runtime.GOARCH)
	if err == nil || !strings.Contains(err.Error(), `" and "`) {
		t.Errorf("%v", err)
	}
}

func TestInstallIsForSSH(t *testing.T) {
	err := Install(t.Context(), Spec{}, nil)
	if err == nil || !strings.Contains(err.Error(), "environment local: an exec-server is only installed over ssh") {
		t.Errorf("%v", err)
	}
}
