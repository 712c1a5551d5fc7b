package watch

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// watchAbove says that a directory's own removal may go untold, so that its parent is watched too: while somebody
// holds the directory, as a shell does that stands in it, inotify says nothing.
const watchAbove = true

// noEvents reports whether path lies on a file system that changes behind the kernel's back.
func noEvents(path string) bool {
	switch typeOf(path) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.V9FS_MAGIC,
		unix.FUSE_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CEPH_SUPER_MAGIC, unix.CODA_SUPER_MAGIC,
		unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC:
		return true
	}
	return false
}

// hasNumbers reports whether file numbers mean something at path. FUSE may make them up as it goes.
func hasNumbers(path string) bool { return typeOf(path) != unix.FUSE_SUPER_MAGIC }

func typeOf(path string) uint32 {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0
	}
	return uint32(st.Type)
}

// watchLimit says which limit was reached after so many directories, and what to do.
func watchLimit(directories int) string {
	name, value := lowest("fs/inotify/max_user_watches", "user/max_inotify_watches")
	return fmt.Sprintf("the kernel watches no more directories for this user: %s is %d, and this watch has %d directories so far; raise it (sysctl -w %s=%d) or watch a smaller directory",
		name, value, directories, name, max(2*value, 1<<19))
}

// instanceLimit says the same of the number of watches.
func instanceLimit() string {
	name, value := lowest("fs/inotify/max_user_instances", "user/max_inotify_instances")
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && value > int(min(files.Cur, 1<<30)) {
		return fmt.Sprintf("this server may open no more files than %d: end some watches or processes, or raise its limit (ulimit -n)", files.Cur)
	}
	return fmt.Sprintf("the kernel allows this user no further watch: %s is %d, counting all programs; raise it (sysctl -w %s=%d) or end other watches",
		name, value, name, max(2*value, 1024))
}

// lowest returns the name of the lowest of some kernel settings, and its value.
func lowest(names ...string) (name string, value int) {
	for _, candidate := range names {
		text, err := os.ReadFile("/proc/sys/" + candidate)
		if err != nil {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && (name == "" || n < value) {
			name, value = candidate, n
		}
	}
	if name == "" {
		name = names[0]
	}
	return strings.ReplaceAll(name, "/", "."), value
}

// mountsBelow describes what is mounted at or below a path.
func mountsBelow(root string) string {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape(fields[4]); within(root, point) {
			found = append(found, fields[0]+" "+point)
		}
	}
	slices.Sort(found)
	return strings.Join(found, "\n")
}

// unescape reads the octal escapes of mountinfo.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+4 <= len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
