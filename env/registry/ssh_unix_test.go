//go:build unix

package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shells are those that a login shell may be.
var shells = []string{"sh", "dash", "bash", "zsh", "ksh", "csh", "tcsh", "fish"}

// inShell runs a script as a box does whose login shell this is, with a home and a PATH that holds more.
func inShell(t *testing.T, shell, home, more, script, input string) (stdout, stderr string, err error) {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("no %s here", shell)
	}
	c := exec.Command(path, "-c", remote(script))
	c.Env = []string{"HOME=" + home, "PATH=" + more + ":/usr/bin:/bin"}
	c.Dir = home
	c.Stdin = strings.NewReader(input)
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	err = c.Run()
	return out.String(), said.String(), err
}

// TestScriptsInShells: what a box is told to run means the same to every login shell, whatever its home is called.
func TestScriptsInShells(t *testing.T) {
	for _, text := range []string{serveScript, probeScript, installScript} {
		if strings.ContainsAny(text, "'!\\\n") {
			t.Errorf("some shell takes a character for something else: %s", text)
		}
	}
	if _, err := exec.LookPath(serverName); err == nil {
		if path, err := exec.LookPath(serverName); err == nil && (strings.HasPrefix(path, "/usr/bin/") || strings.HasPrefix(path, "/bin/")) {
			t.Skip("this machine has an exec-server of its own")
		}
	}
	for _, shell := range shells {
		t.Run(shell, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "it is $HOME; a home")
			if err := os.Mkdir(home, 0o700); err != nil {
				t.Fatal(err)
			}
			stdout, stderr, err := inShell(t, shell, home, "/nowhere", serveScript, "")
			if system, missing := findMarker(stdout, missingMarker); !missing || len(strings.Fields(system)) != 2 || err == nil || stderr != "" {
				t.Errorf("%q, %q, %v", stdout, stderr, err)
			}
			stdout, stderr, err = inShell(t, shell, home, "/nowhere", probeScript, "")
			if _, there := findMarker(stdout, serverMarker); there || err != nil || stderr != "" {
				t.Errorf("%q, %q, %v", stdout, stderr, err)
			}

			// What is installed is a program that says how it is called.
			program := "#!/bin/sh\necho exec-server $*\n"
			install := func(size int, hash string) (string, string, error) {
				script := strings.NewReplacer("SIZE", fmt.Sprint(size), "HASH", hash).Replace(installScript)
				return inShell(t, shell, home, "/nowhere", script, program)
			}
			sum := sha256.Sum256([]byte(program))
			hash := hex.EncodeToString(sum[:])
			bin := filepath.Join(home, ".waldo", "bin")
			if _, stderr, err = install(len(program)+1, hash); err == nil || !strings.Contains(stderr, fmt.Sprintf("only %d of %d bytes", len(program), len(program)+1)) {
				t.Errorf("too short: %q, %v", stderr, err)
			}
			if _, stderr, err = install(len(program), strings.Repeat("0", 64)); err == nil || !strings.Contains(stderr, "not those that were sent") {
				t.Errorf("another hash: %q, %v", stderr, err)
			}
			if entries, err := os.ReadDir(bin); err != nil || len(entries) != 0 {
				t.Errorf("left: %v, %v", entries, err)
			}
			stdout, stderr, err = install(len(program), hash)
			if version, done := findMarker(stdout, doneMarker); !done || version != "exec-server version" || err != nil || stderr != "" {
				t.Errorf("%q, %q, %v", stdout, stderr, err)
			}
			info, err := os.Stat(filepath.Join(bin, serverName))
			if err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("%v, %v", info, err)
			}
			if entries, err := os.ReadDir(bin); err != nil || len(entries) != 1 {
				t.Errorf("%v, %v", entries, err)
			}

			stdout, _, err = inShell(t, shell, home, "/nowhere", probeScript, "")
			if server, _ := findMarker(stdout, serverMarker); server != filepath.Join(bin, serverName) || err != nil {
				t.Errorf("%q, %v", stdout, err)
			}
			stdout, stderr, err = inShell(t, shell, home, "/nowhere", serveScript, "")
			if stdout != "exec-server --listen stdio\n" || err != nil {
				t.Errorf("%q, %q, %v", stdout, stderr, err)
			}
			// One on the PATH comes first.
			other := t.TempDir()
			if err := os.WriteFile(filepath.Join(other, serverName), []byte("#!/bin/sh\necho other\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if stdout, _, err = inShell(t, shell, home, other, serveScript, ""); stdout != "other\n" || err != nil {
				t.Errorf("%q, %v", stdout, err)
			}
		})
	}
}
