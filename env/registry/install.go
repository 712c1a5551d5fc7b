package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// installScript takes a server of so many bytes and this hash on its standard input, tries it, and only then gives
// it the name that others find it by. A cut connection ends the input early, so the size is checked first.
const installScript = `umask 077; mkdir -p "$HOME/.waldo/bin" && cd "$HOME/.waldo/bin" || exit 1; ` +
	`t=.exec-server.$$; trap "rm -f $t" EXIT; trap "rm -f $t; exit 1" HUP INT TERM; ` +
	`cat >$t || exit 1; ` +
	`n=$(wc -c <$t); if test $n -ne SIZE; then echo "only $n of SIZE bytes have come" >&2; exit 1; fi; ` +
	`s=; if command -v sha256sum >/dev/null 2>&1; then s=$(sha256sum $t); elif command -v shasum >/dev/null 2>&1; then s=$(shasum -a 256 $t); fi; ` +
	`s=${s%% *}; if test "${s:-HASH}" = HASH; then :; else echo "the bytes that came are not those that were sent" >&2; exit 1; fi; ` +
	`chmod 755 $t && v=$(./$t version) || { echo "the exec-server that came does not run there" >&2; exit 1; }; ` +
	`mv -f $t exec-server && echo "` + doneMarker + `$v"`

// maxSaid bounds what is read of what a script prints.
const maxSaid = 64 << 10

// Install copies an exec-server to the box of an ssh environment, to ~/.waldo/bin there, if it has none: the one
// beside our own executable that is made for such a machine. tell gets a line for people before it takes long.
func Install(ctx context.Context, spec Spec, tell func(format string, args ...any)) error {
	if spec.SSH == (SSH{}) {
		return fmt.Errorf("environment %s: an exec-server is only installed over ssh; name the box as ssh://[USER@]BOX", spec)
	}
	said, err := runScript(ctx, spec, probeScript, nil)
	if err != nil {
		return fmt.Errorf("environment %s: %w", spec, err)
	}
	system, found := findMarker(said, systemMarker)
	if !found {
		return fmt.Errorf("environment %s: the box does not say what machine it is but %s", spec, quoteShown([]byte(said)))
	}
	if _, there := findMarker(said, serverMarker); there {
		return nil
	}
	goos, goarch, err := parseSystem(system)
	if err != nil {
		return fmt.Errorf("environment %s: %w", spec, err)
	}
	path, err := findServerFor(goos, goarch)
	if err != nil {
		return fmt.Errorf("environment %s: %w", spec, err)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	tell("installing %s (%d MB, %s/%s) as ~/.waldo/bin/exec-server on %s", path, (size+1<<19)>>20, goos, goarch, spec)
	script := strings.NewReplacer("SIZE", strconv.FormatInt(size, 10), "HASH", hex.EncodeToString(hash.Sum(nil))).Replace(installScript)
	said, err = runScript(ctx, spec, script, file)
	if err != nil {
		return fmt.Errorf("environment %s: install exec-server: %w", spec, err)
	}
	if _, done := findMarker(said, doneMarker); !done {
		return fmt.Errorf("environment %s: install exec-server: the box said %s", spec, quoteShown([]byte(said)))
	}
	return nil
}

// runScript runs a script on a box, with input, and returns what it printed.
func runScript(ctx context.Context, spec Spec, script string, input io.Reader) (said string, err error) {
	child, err := spec.Spawn(ctx, Program{Argv: spec.SSH.command(script, spec.MayAsk), Ask: spec.MayAsk})
	if err != nil {
		return "", err
	}
	defer child.Close()
	defer context.AfterFunc(ctx, func() { child.Close() })()
	var sending sync.WaitGroup
	defer sending.Wait()
	var sent error
	sending.Go(func() {
		if input != nil {
			_, sent = io.Copy(child, input)
		}
		child.CloseWrite() //nolint:errcheck // it may have ended
	})
	text, err := io.ReadAll(io.LimitReader(child, maxSaid))
	ended := child.Ended()
	child.Close() // so that nothing is sent any more
	sending.Wait()
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case ended != nil:
		return "", fmt.Errorf("%s: %w", quoteProgram(spec.SSH.shown()), ended)
	}
	return string(text), errors.Join(err, sent)
}

// parseSystem reads what "uname -sm" says.
func parseSystem(system string) (goos, goarch string, err error) {
	name, machine, _ := strings.Cut(system, " ")
	switch name = strings.ToLower(name); {
	case name == "linux", name == "darwin", name == "freebsd", name == "netbsd", name == "openbsd":
		goos = name
	case strings.HasPrefix(name, "mingw"), strings.HasPrefix(name, "msys"), strings.HasPrefix(name, "cygwin"):
		goos = "windows"
	default:
		return "", "", fmt.Errorf("no exec-server is made for a machine that calls itself %s", quoteShown([]byte(system)))
	}
	switch machine = strings.ToLower(strings.TrimSpace(machine)); {
	case machine == "x86_64", machine == "amd64":
		goarch = "amd64"
	case machine == "aarch64", machine == "arm64", machine == "armv8l":
		goarch = "arm64"
	case strings.HasPrefix(machine, "armv"):
		goarch = "arm"
	case machine == "i386", machine == "i686":
		goarch = "386"
	case machine == "riscv64", machine == "ppc64le", machine == "s390x":
		goarch = machine
	default:
		return "", "", fmt.Errorf("no exec-server is made for a machine that calls itself %s", quoteShown([]byte(system)))
	}
	return goos, goarch, nil
}

// findServerFor finds the exec-server for a kind of machine beside our own executable: that of this machine, or one
// that has the kind in its name.
func findServerFor(goos, goarch string) (string, error) {
	beside, err := besideUs()
	if err != nil {
		return "", err
	}
	suffix := ""
	if goos == "windows" {
		suffix = ".exe"
	}
	names := []string{fmt.Sprintf("%s-%s-%s%s", serverName, goos, goarch, suffix)}
	if goos == runtime.GOOS && goarch == runtime.GOARCH {
		names = append([]string{serverName + suffix}, names...)
	}
	looked := make([]string, len(names))
	for i, name := range names {
		file := filepath.Join(beside, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file, nil
		}
		looked[i] = strconv.Quote(file)
	}
	return "", fmt.Errorf("no exec-server for %s/%s is here to copy: looked for %s; build it with GOOS=%s GOARCH=%s and put it there",
		goos, goarch, strings.Join(looked, " and "), goos, goarch)
}
