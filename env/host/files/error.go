package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"waldo/env"
)

var (
	// errSwapped says that a link was met where none was a moment before.
	errSwapped = errors.New("it is changed all the time")
	errLoop    = coded{errors.New("too many links"), env.ErrInvalid}
	errEscapes = coded{errors.New("it lies outside the directory that files are confined to"), fs.ErrPermission}
	errSpecial = coded{errors.New("not a regular file"), env.ErrNotRegular}
	errNotLink = coded{errors.New("not a symbolic link"), env.ErrInvalid}
)

// coded is an error of the machine that is an error of the contract as well.
type coded struct {
	err  error
	code error
}

func (c coded) Error() string   { return c.err.Error() }
func (c coded) Unwrap() []error { return []error{c.code, c.err} }

// failure says what was being done to what. It is where the machine's errors become those of the contract.
func failure(op, text string, err error) error {
	var already told
	if errors.As(err, &already) || isContext(err) {
		return err
	}
	return told{fmt.Errorf("%s %q: %w", op, text, contractual(bare(err)))}
}

// failureOf2 is failure of what has two paths.
func failureOf2(op, from, to string, err error) error {
	var already told
	if errors.As(err, &already) || isContext(err) {
		return err
	}
	return told{fmt.Errorf("%s %q to %q: %w", op, from, to, contractual(bare(err)))}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// told is an error that names what it is about already.
type told struct{ error }

func (t told) Unwrap() error { return t.error }

// bare takes the paths off that package os adds: failure says the path, with its bytes escaped.
func bare(err error) error {
	for {
		var (
			path *fs.PathError
			link *os.LinkError
			call *os.SyscallError
		)
		switch {
		case errors.As(err, &path):
			err = path.Err
		case errors.As(err, &link):
			err = link.Err
		case errors.As(err, &call):
			err = call.Err
		default:
			return err
		}
	}
}

// contractual gives an error of the system the meaning that the contract has for it.
func contractual(err error) error {
	if code := codeOf(err); code != nil {
		return coded{err, code}
	}
	return err
}
