//go:build unix

package proc

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"waldo/env"
)

// A startError says what cannot be started and why. It is env.ErrStart and whatever is below it.
type startError struct {
	program string
	reason  string
	err     error
}

func (e *startError) Error() string {
	return fmt.Sprintf("cannot start %q: %s", e.program, e.reason)
}

func (e *startError) Unwrap() []error { return []error{env.ErrStart, e.err} }

const defaultPath = "/usr/local/bin:/usr/bin:/bin" // searched when the environment has no PATH

// lookPath finds the program that name means in environ and dir, as execvp in the child would. What it returns
// is a path that means the same to the child, whose directory is dir.
func lookPath(name string, environ []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // the kernel judges it
	}
	path, ok := lookEnv(environ, "PATH")
	if !ok {
		path = defaultPath
	}
	var refused error
	for _, element := range strings.Split(path, ":") {
		file := filepath.Join(element, name)
		if !filepath.IsAbs(element) {
			file = filepath.Join(dir, element, name)
		}
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if refused == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			refused = explain(name, file, err)
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", &startError{name, fmt.Sprintf("not found in PATH %q", path), fs.ErrNotExist}
}

// executable tells what is wrong with file as a program, as far as it can be seen from outside.
func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return syscall.EISDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
}

// explain says why starting file, which was asked for as program, ended with err.
func explain(program, file string, err error) error {
	fail := func(err error, format string, args ...any) error {
		return &startError{program, fmt.Sprintf(format, args...), err}
	}
	info, statErr := os.Stat(file)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		return fail(fs.ErrNotExist, "%q does not exist", file)
	case statErr != nil:
		return fail(statErr, "%v", quoted(statErr))
	case info.IsDir():
		return fail(syscall.EISDIR, "%q is a directory", file)
	case !info.Mode().IsRegular():
		return fail(fs.ErrPermission, "%q is not a regular file", file)
	}
	switch {
	case errors.Is(err, fs.ErrPermission) && info.Mode()&0o111 == 0:
		return fail(fs.ErrPermission, "%q is not executable; chmod +x makes it so", file)
	case errors.Is(err, fs.ErrPermission):
		if interpreter := interpreterOf(file); interpreter != "" && executable(interpreter) != nil {
			return fail(fs.ErrPermission, "%q may be run, but its interpreter %q may not", file, interpreter)
		}
		return fail(fs.ErrPermission, "permission to run %q is denied (its mode, its directory or its file system forbids it)", file)
	case errors.Is(err, fs.ErrNotExist):
		interpreter := interpreterOf(file)
		switch {
		case strings.HasSuffix(interpreter, "\r"):
			return fail(fs.ErrNotExist, "%q exists, but its interpreter %q does not: its first line ends in a carriage return; save it with line feeds alone", file, interpreter)
		case interpreter != "":
			return fail(fs.ErrNotExist, "%q exists, but its interpreter %q does not", file, interpreter)
		}
		return fail(fs.ErrNotExist, "%q exists, but the program that has to run it does not", file)
	case errors.Is(err, syscall.ENOEXEC):
		return fail(syscall.ENOEXEC, "%q: exec format error: %s", file, formatOf(file))
	case errors.Is(err, syscall.E2BIG):
		return fail(syscall.E2BIG, "its arguments and environment are too long for this machine; pass them in a file or on standard input")
	case errors.Is(err, syscall.ETXTBSY):
		return fail(syscall.ETXTBSY, "%q is open for writing somewhere", file)
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("cannot start %q: %w: %w", program, env.ErrLimit, err)
	}
	return fail(err, "%v", quoted(err))
}

// quoted is err in words whose path, which may hold any bytes, is escaped.
func quoted(err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return fmt.Sprintf("%s %q: %v", pathError.Op, pathError.Path, pathError.Err)
	}
	return err.Error()
}

// interpreterOf is what has to exist besides file for it to run: what its #! line names, or its dynamic loader.
func interpreterOf(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // only read
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.ErrUnexpectedEOF {
		return ""
	}
	head = head[:n]
	if line, ok := bytes.CutPrefix(head, []byte("#!")); ok {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		line = bytes.TrimLeft(line, " \t")
		if i := bytes.IndexAny(line, " \t"); i >= 0 {
			line = line[:i]
		}
		return string(line)
	}
	program, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			loader := make([]byte, min(p.Filesz, 4096))
			if _, err := io.ReadFull(p.Open(), loader); err != nil {
				return ""
			}
			return string(bytes.TrimRight(loader, "\x00"))
		}
	}
	return ""
}

// formatOf says what file is instead of a program of this machine.
func formatOf(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return "it is no program of this machine"
	}
	defer f.Close() //nolint:errcheck // only read
	head := make([]byte, 4)
	switch _, err := io.ReadFull(f, head); {
	case err == io.EOF:
		return "it is empty"
	case err == nil && string(head) == elf.ELFMAG:
		if program, err := elf.NewFile(f); err == nil {
			return fmt.Sprintf("it is built for another machine (%v)", program.Machine)
		}
		return "it is a damaged program"
	case string(head[:2]) == "#!":
		return "its #! line is malformed"
	}
	return "it has no #! line and is no program of this machine; name its interpreter"
}

// checkDirectory tells what is wrong with dir as a working directory.
func checkDirectory(program, dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &startError{program, fmt.Sprintf("the working directory %q does not exist", dir), fs.ErrNotExist}
	case err != nil:
		return &startError{program, "working directory: " + quoted(err), err}
	case !info.IsDir():
		return &startError{program, fmt.Sprintf("the working directory %q is not a directory", dir), syscall.ENOTDIR}
	}
	if err := unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS); err != nil {
		return &startError{program, fmt.Sprintf("the working directory %q may not be entered", dir), fs.ErrPermission}
	}
	return nil
}
