package main

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"

	"waldo/env"
)

// signalNumbers are those that are the same wherever POSIX is, and Linux's for the rest.
var signalNumbers = map[env.Signal]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "IOT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
	"USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16, "CHLD": 17, "CONT": 18,
	"STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27,
	"WINCH": 28, "IO": 29, "POLL": 29, "PWR": 30, "SYS": 31,
}

// exitCode is the code that a command's end comes to here, and what is to be said about it, if anything.
func exitCode(exit env.Exit) (code int, note string) {
	if exit.Reason != "" {
		note = "the server ended the command: " + exit.Reason
	}
	if exit.Signal != "" {
		number, known := signalNumbers[exit.Signal]
		if !known {
			number, _ = strconv.Atoi(string(exit.Signal)) //nolint:errcheck // 0 is left for a name that nobody knows
		}
		return codeSignalled + number, note
	}
	if runtime.GOOS != "windows" && exit.Code != int64(uint8(exit.Code)) {
		if note == "" {
			note = fmt.Sprintf("the command's exit code is %d (0x%08X), which does not fit here", exit.Code, uint32(exit.Code))
		}
		return codeOutOfRange, note
	}
	return int(exit.Code), note
}

// startFailure gives the error of a start its exit code.
func startFailure(err error) error {
	switch {
	case !errors.Is(err, env.ErrStart):
		return &exitError{codeOurFailure, err}
	case errors.Is(err, fs.ErrNotExist):
		return &exitError{codeNotFound, err}
	}
	return &exitError{codeNoStart, err}
}
