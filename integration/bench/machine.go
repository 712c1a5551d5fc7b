//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// describeMachine collects what the figures depend on.
func describeMachine(ctx context.Context, b *bench) []fact {
	said := func(dir, name string, args ...string) string {
		c := exec.CommandContext(ctx, name, args...)
		c.Dir = dir
		out, err := c.Output()
		if err != nil {
			return "not known"
		}
		return strings.TrimSpace(string(out))
	}
	facts := []fact{
		{"cpu", fmt.Sprintf("%d × %s", runtime.NumCPU(), procField("/proc/cpuinfo", "model name"))},
		{"kernel", said("", "uname", "-sr")},
		{"go", runtime.Version()},
		{"waldo", said(b.root, "git", "describe", "--always", "--dirty")},
		{"codex", "not run"},
		{"load before", load()},
		{"sizes", "full"},
	}
	if b.codex != "" {
		facts[4].Value = said("", b.codex, "--version")
	}
	if b.quick {
		facts[6].Value = "quick"
	}
	return facts
}

// load is the load average of one minute. More than a little of it before a run says that the figures are not to be
// believed.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	one, _, _ := strings.Cut(string(data), " ")
	return one
}

// procField is the value of the first line "name : value" of a file of /proc.
func procField(path, name string) string {
	data, _ := os.ReadFile(path)
	for text := range bytes.Lines(data) {
		key, value, ok := strings.Cut(string(text), ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// resident is how many bytes of a process are in memory, counted exactly.
func resident(pid int) (float64, error) {
	return procNumber(pid, "smaps_rollup", "Rss", 1024)
}

func threads(pid int) (float64, error) {
	return procNumber(pid, "status", "Threads", 1)
}

func procNumber(pid int, file, field string, factor float64) (float64, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	text := strings.TrimSuffix(procField(path, field), " kB")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", field, path, err)
	}
	return float64(n) * factor, nil
}
