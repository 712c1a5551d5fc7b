package main

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

func ownGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

func killGroup(p *os.Process) error { return p.Kill() }

// lentTerminal is nothing there: every process of a console may ask.
type lentTerminal struct{}

// mayAsk tells whether a child may ask the person at the console.
func mayAsk() bool { return isConsole() }

func lendTerminal(int) *lentTerminal { return nil }

func (*lentTerminal) takeBack() {}
