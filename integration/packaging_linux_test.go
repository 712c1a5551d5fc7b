package integration

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// An instruction is one of a Containerfile, with its continued lines joined.
type instruction struct {
	name string // in capitals
	rest string
}

// instructions parses as much of the language as our file uses.
func instructions(text string) (all []instruction) {
	var whole strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		head, more := strings.CutSuffix(line, `\`)
		whole.WriteString(head)
		if more {
			continue
		}
		name, rest, _ := strings.Cut(whole.String(), " ")
		all = append(all, instruction{strings.ToUpper(name), strings.TrimSpace(rest)})
		whole.Reset()
	}
	return all
}

func TestInstructions(t *testing.T) {
	got := instructions("# a\nFROM a AS b\n\nrun x \\\n  # in between\n && y\nUSER 1\n")
	want := []instruction{{"FROM", "a AS b"}, {"RUN", "x && y"}, {"USER", "1"}}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The image cannot be built everywhere; what it is built from and with can be looked at, and its commands run.
func TestContainerfile(t *testing.T) {
	text, err := os.ReadFile("../Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	goMod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string]bool{}
	var user, build string
	var entry, args []string
	ports := ""
	for _, i := range instructions(string(text)) {
		fields := strings.Fields(i.rest)
		switch i.name {
		case "ARG", "WORKDIR":
		case "FROM":
			user, entry, args = "", nil, nil // of the stage before
			if len(fields) == 3 && fields[1] == "AS" {
				stages[fields[2]] = true
			}
			if version, ok := strings.CutPrefix(fields[0], "golang:"); ok {
				if !regexp.MustCompile(`(?m)^go ` + regexp.QuoteMeta(version) + `(\.\d+)?$`).Match(goMod) {
					t.Errorf("FROM %s: go.mod wants another Go", i.rest)
				}
			}
		case "COPY":
			from := ""
			for len(fields) > 0 && strings.HasPrefix(fields[0], "--") {
				if name, ok := strings.CutPrefix(fields[0], "--from="); ok {
					from = name
				}
				fields = fields[1:]
			}
			if from != "" {
				if !stages[from] {
					t.Errorf("COPY %s: there is no stage %q before", i.rest, from)
				}
				continue
			}
			for _, source := range fields[:len(fields)-1] {
				if _, err := os.Stat(filepath.Join("..", source)); err != nil {
					t.Errorf("COPY %s: %v", i.rest, err)
				}
			}
		case "RUN":
			if strings.Contains(i.rest, "go build") {
				build = i.rest
			}
			if out, err := exec.Command("sh", "-n", "-c", i.rest).CombinedOutput(); err != nil {
				t.Errorf("RUN %s: %v %s", i.rest, err, out)
			}
		case "ENV":
			if regexp.MustCompile(`(?i)token|secret|password|key`).MatchString(i.rest) {
				t.Errorf("ENV %s: a secret in the image", i.rest)
			}
		case "USER":
			user = i.rest
		case "EXPOSE":
			ports = i.rest
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(i.rest), &entry); err != nil {
				t.Errorf("ENTRYPOINT %s: %v", i.rest, err)
			}
		case "CMD":
			if err := json.Unmarshal([]byte(i.rest), &args); err != nil {
				t.Errorf("CMD %s: %v", i.rest, err)
			}
		default:
			t.Errorf("%s: not known to this test", i.name)
		}
	}
	// A number, so that a cluster can see that it is not root.
	if !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(user) {
		t.Errorf("the user is %q, want numbers that are not 0", user)
	}
	const listens = "tls://0.0.0.0:7777"
	if ports != "7777" || len(entry) != 1 || !slices.Contains(args, listens) {
		t.Fatalf("EXPOSE %s, ENTRYPOINT %q, CMD %q", ports, entry, args)
	}

	out := t.TempDir()
	if !strings.Contains(build, " -o /out/usr/local/bin/ ") || entry[0] != "/usr/local/bin/exec-server" {
		t.Fatalf("RUN %s does not make ENTRYPOINT %q", build, entry)
	}
	command := exec.Command("sh", "-c", strings.Replace(build, "/out/usr/local/bin/", out+"/", 1))
	command.Dir = ".."
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, text)
	}
	program := filepath.Join(out, "exec-server")
	wantStatic(t, program)

	// The command line of the image, with a port and a token of the test.
	for i, arg := range args {
		switch {
		case arg == listens:
			args[i] = "tls://127.0.0.1:0"
		case strings.HasPrefix(arg, "/run/secrets/"):
			args[i] = filepath.Join(out, "token")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), storyPatience)
	defer cancel()
	server := exec.CommandContext(ctx, program, args...)
	server.Env = []string{"HOME=" + out}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || !strings.HasPrefix(url, "tls://127.0.0.1:") {
		t.Errorf("it says %q, %v", url, err)
	}
	server.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	if err := server.Wait(); err != nil {
		t.Errorf("it was told to end: %v", err)
	}
}

// wantStatic wants a program that runs where there is no other file.
func wantStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s wants a dynamic linker", path)
		}
	}
	if libraries, err := f.ImportedLibraries(); len(libraries) > 0 || err != nil {
		t.Errorf("%s wants %q, %v", path, libraries, err)
	}
}

// systemd itself says what it thinks of the units.
func TestServices(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	if out, err := exec.Command(analyze, "verify", "--help").CombinedOutput(); err != nil || !strings.Contains(string(out), "--recursive-errors") {
		t.Skip("this systemd-analyze is older than 250")
	}
	program := filepath.Join(programs(t), "exec-server")
	const installed = "/usr/local/bin/exec-server"
	verify := func(t *testing.T, name, unit string, user bool) (said string, err error) {
		dir := t.TempDir()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"verify", "--man=no", "--recursive-errors=no", file}
		if user {
			args = append([]string{"--user"}, args...)
		}
		command := exec.Command(analyze, args...)
		command.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "HOME="+dir)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	for name, user := range map[string]bool{"exec-server.service": false, "exec-server-user.service": true} {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("../packaging", name))
			if err != nil {
				t.Fatal(err)
			}
			unit := string(content)
			start := regexp.MustCompile(`(?m)^ExecStart=(\S+) (.*)$`).FindStringSubmatch(unit)
			if start == nil || start[1] != installed {
				t.Fatalf("ExecStart is %q", start)
			}
			unit = strings.ReplaceAll(unit, "ExecStart="+installed, "ExecStart="+program)
			if said, err := verify(t, name, unit, user); err != nil || said != "" {
				t.Errorf("%v\n%s", err, said)
			}
			// It would have said so.
			said, err := verify(t, name, strings.Replace(unit, "[Service]", "[Service]\nNoSuchKey=yes\nKillMode=perhaps", 1), user)
			if !strings.Contains(said, "NoSuchKey") {
				t.Errorf("a wrong unit is accepted: %v %q", err, said)
			}
			if said, err := verify(t, name, strings.ReplaceAll(unit, program, program+"-missing"), user); err == nil {
				t.Errorf("a missing program is accepted: %q", said)
			}
			// The flags are the program's.
			if out, err := exec.Command(program, append(strings.Fields(start[2]), "--help")...).CombinedOutput(); err != nil {
				t.Errorf("exec-server %s: %v\n%s", start[2], err, out)
			}
			for _, secret := range []string{"--no-auth", "0.0.0.0", "Environment=WALDO_TOKEN"} {
				if strings.Contains(start[2], secret) {
					t.Errorf("ExecStart has %s", secret)
				}
			}
			if !strings.Contains(start[2], "tcp://127.0.0.1:7777") || !strings.Contains(unit, "\nType=exec\n") {
				t.Errorf("it is not what it says it is:\n%s", unit)
			}
		})
	}
}

// What a release is made of is there. Whether goreleaser likes the file is "make check-release": it takes minutes to
// compile.
func TestReleaseFiles(t *testing.T) {
	text, err := os.ReadFile("../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	release := string(text)
	for _, want := range []string{
		"version: 2\n", "CGO_ENABLED=0", "flags: [-trimpath]", "goos: [linux, windows, darwin]", "goarch: [amd64, arm64]",
		"main: ./cmd/exec-server", "main: ./cmd/app-server", "checksums.txt",
	} {
		if !strings.Contains(release, want) {
			t.Errorf("there is no %q", want)
		}
	}
	listed := regexp.MustCompile(`(?m)^      - ([A-Za-z/.*]+)$`).FindAllStringSubmatch(release, -1)
	if len(listed) < 3 {
		t.Fatalf("only %q are listed", listed)
	}
	for _, file := range listed {
		found, err := filepath.Glob(filepath.Join("..", file[1]))
		if err != nil || len(found) == 0 && file[1] != "LICENSE*" {
			t.Errorf("%s: nothing is there, %v", file[1], err)
		}
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if version := regexp.MustCompile(`goreleaser/v2@v2\.\d+\.\d+\n`).Find(makefile); version == nil {
		t.Errorf("the Makefile pins no goreleaser: %s", makefile)
	}
}
