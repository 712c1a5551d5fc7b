package codex

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"waldo/env"
	"waldo/wire/jsonrpc"
)

// codeNotFound is Codex's own code of what is not there.
const codeNotFound = -32004

func invalidRequest(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, format, args...)
}

func invalidParams(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, format, args...)
}

func internal(format string, args ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeInternal, format, args...)
}

// answerOf is the error that a client gets for err: what the machine said in the words and numbers that Codex has for
// it, else the sentence of the contract.
func answerOf(err error) *jsonrpc.Error {
	var answer *jsonrpc.Error
	if errors.As(err, &answer) {
		return answer
	}
	message := err.Error()
	var number syscall.Errno
	if errors.As(err, &number) {
		message = systemText(number)
		switch { // these are something else in the contract than in Codex
		case errors.Is(number, syscall.ELOOP), errors.Is(number, syscall.ENAMETOOLONG), errors.Is(number, syscall.EROFS):
			return internal("%s", message)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return jsonrpc.Errorf(codeNotFound, "%s", message)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, env.ErrInvalid), errors.Is(err, env.ErrNotRegular):
		return invalidRequest("%s", message)
	}
	return internal("%s", message)
}

// systemText is an error of the system as Codex writes it: "Is a directory (os error 21)".
func systemText(number syscall.Errno) string {
	text := number.Error()
	if errors.Is(number, syscall.ELOOP) {
		text = "symbolic link loop"
	}
	first, size := utf8.DecodeRuneInString(text)
	return fmt.Sprintf("%c%s (os error %d)", unicode.ToUpper(first), strings.TrimSuffix(text[size:], "."), int(number))
}
