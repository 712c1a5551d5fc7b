package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	fewProcesses = 512
	fewWatches   = 65536
	fewInstances = 64
)

// limitsRemedy is what makes limits possible.
const limitsRemedy = "they need control groups of version 2 with the controllers memory and pids, in one that this server may divide"

// system looks at what is Linux's own.
func (x *examination) system() {
	x.controlGroup()
	x.openFiles()
	x.processes()
	x.inotify()
}

func kernel() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "kernel unknown"
	}
	return "kernel " + unix.ByteSliceToString(name.Release[:])
}

// controlGroup looks at the control group that the server would make those of its processes in. With one, everything
// that a command has started is found again and ended.
func (x *examination) controlGroup() {
	const what = "control group"
	processes, _ := os.ReadFile("/proc/self/cgroup") //nolint:errcheck // then nothing is found
	mounts, _ := os.ReadFile("/proc/self/mountinfo") //nolint:errcheck // as above
	dir, why := ownControlGroup(string(processes), string(mounts))
	const without = "processes that leave their group are found by other means"
	if why != "" {
		x.warn(what, "boot with version 2 of control groups, or mount it; "+without, "%s", why)
		return
	}
	if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil {
		x.warn(what, "use a service with Delegate=yes, or a container with its own control groups; "+without, "%q is not writable: %v", dir, err)
		return
	}
	if err := tryControlGroup(dir); err != nil {
		x.warn(what, "use Linux 5.14 or later, and let this user make control groups there; "+without, "%v", err)
		return
	}
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		x.warn(what, limitsRemedy, "%v", err)
		return
	}
	x.ok(what, "%q is writable, with the controllers: %s", dir, strings.TrimSpace(string(controllers)))
}

// tryControlGroup makes one below dir, as the server does, and removes it.
func tryControlGroup(dir string) error {
	made, err := os.MkdirTemp(dir, "doctor-*")
	if err != nil {
		return fmt.Errorf("make a control group: %w", err)
	}
	_, err = os.Stat(filepath.Join(made, "cgroup.kill"))
	if err != nil {
		err = fmt.Errorf("what is in a control group cannot be ended at once: %w", err)
	}
	return errors.Join(err, unix.Rmdir(made))
}

// ownControlGroup finds the directory of this program's control group (version 2) in the texts of /proc/self/cgroup and
// /proc/self/mountinfo, or says why there is none.
func ownControlGroup(processes, mounts string) (dir, why string) {
	own, found := "", false
	for text := range strings.Lines(processes) {
		if path, ok := strings.CutPrefix(strings.TrimRight(text, "\n"), "0::"); ok {
			own, found = path, true
		}
	}
	if !found {
		return "", "this machine has no control groups of version 2"
	}
	if strings.HasPrefix(own, "/..") {
		return "", "this program's control group lies outside of what its container shows"
	}
	for text := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(text, " - ")
		fields := strings.Fields(before)
		if ok && len(fields) > 4 && strings.HasPrefix(after, "cgroup2 ") && fields[3] == "/" {
			return filepath.Join(fields[4], own), ""
		}
	}
	return "", "control groups of version 2 are not mounted"
}

// processes looks at how many the user may have.
func (x *examination) processes() {
	const what = "processes"
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		x.warn(what, "look at ulimit -u", "%v", err)
		return
	}
	detail := fmt.Sprintf("%s of this user, at most %s", rlimit(limit.Cur), rlimit(limit.Max))
	if limit.Cur < fewProcesses && !administrator() {
		x.warn(what, "raise it (ulimit -u, LimitNPROC= of a service)", "%s", detail)
		return
	}
	x.ok(what, "%s", detail)
}

// inotify looks at what watching files needs.
func (x *examination) inotify() {
	const what = "inotify"
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		x.fail(what, "end what watches, or: sysctl fs.inotify.max_user_instances=1024", "none to be had: %v", err)
		return
	}
	unix.Close(fd) //nolint:errcheck // nothing was done with it
	const dir = "/proc/sys/fs/inotify/"
	watches, err := readNumber(dir + "max_user_watches")
	if err != nil {
		x.warn(what, "mount /proc", "%v", err)
		return
	}
	instances, err := readNumber(dir + "max_user_instances")
	if err != nil {
		x.warn(what, "mount /proc", "%v", err)
		return
	}
	detail := fmt.Sprintf("%d watches, %d instances of this user", watches, instances)
	switch {
	case watches < fewWatches:
		x.warn(what, "sysctl fs.inotify.max_user_watches=524288: watching a large tree takes one for each directory", "%s", detail)
	case instances < fewInstances:
		x.warn(what, "sysctl fs.inotify.max_user_instances=1024", "%s", detail)
	default:
		x.ok(what, "%s", detail)
	}
}

func readNumber(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", path, err)
	}
	return n, nil
}

func freeSpace(dir string) (uint64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return stat.Bavail * uint64(stat.Frsize), nil
}

// portHolder says who listens on a port, as far as this user may know.
func portHolder(port uint16) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		uid, inode, ok := listenerOf(string(text), port)
		if !ok {
			continue
		}
		if pid, name := socketHolder(inode); pid != 0 {
			return fmt.Sprintf(": process %d (%s) of user %s has it", pid, name, uid)
		}
		return fmt.Sprintf(": a process of user %s has it", uid)
	}
	return ""
}

// listenerOf finds who listens on a port in the text of /proc/net/tcp.
func listenerOf(table string, port uint16) (uid, inode string, ok bool) {
	const listening = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for text := range strings.Lines(table) {
		fields := strings.Fields(text)
		if len(fields) > 9 && strings.HasSuffix(fields[1], suffix) && fields[3] == listening {
			return fields[7], fields[9], true
		}
	}
	return "", "", false
}

// socketHolder finds a process with a socket among those that this user may look at.
func socketHolder(inode string) (pid int, name string) {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*") //nolint:errcheck // a good pattern
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != "socket:["+inode+"]" {
			continue
		}
		process := filepath.Dir(filepath.Dir(link))
		pid, _ = strconv.Atoi(filepath.Base(process))          //nolint:errcheck // the pattern's
		comm, _ := os.ReadFile(filepath.Join(process, "comm")) //nolint:errcheck // it may be gone
		return pid, string(bytes.TrimSpace(comm))
	}
	return 0, ""
}
