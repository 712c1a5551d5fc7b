package main

import "testing"

func TestOwnControlGroup(t *testing.T) {
	const v2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
	for _, test := range []struct{ name, processes, mounts, dir, why string }{
		{"root", "0::/\n", v2, "/sys/fs/cgroup", ""},
		{"service", "0::/system.slice/a.service\n", "1 2 0:1 / /proc rw - proc proc rw\n" + v2, "/sys/fs/cgroup/system.slice/a.service", ""},
		{"hybrid", "4:memory:/x\n0::/\n", "31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", "/sys/fs/cgroup/unified", ""},
		{"optional fields", "0::/a\n", "30 24 0:26 / /c rw shared:4 master:1 - cgroup2 c rw\n", "/c/a", ""},
		{"version 1", "4:memory:/x\n", v2, "", "this machine has no control groups of version 2"},
		{"nothing", "", "", "", "this machine has no control groups of version 2"},
		{"outside", "0::/../other\n", v2, "", "this program's control group lies outside of what its container shows"},
		{"not mounted", "0::/\n", "1 2 0:1 / /proc rw - proc proc rw\n", "", "control groups of version 2 are not mounted"},
		{"a part is mounted", "0::/a\n", "30 24 0:26 /part /c rw - cgroup2 c rw\n", "", "control groups of version 2 are not mounted"},
		{"short lines", "0::/a\n", "30 - cgroup2\n-\n\n", "", "control groups of version 2 are not mounted"},
	} {
		if dir, why := ownControlGroup(test.processes, test.mounts); dir != test.dir || why != test.why {
			t.Errorf("%s: %q, %q, want %q, %q", test.name, dir, why, test.dir, test.why)
		}
	}
}

func TestListenerOf(t *testing.T) {
	const table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1E61 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1001        0 11 1 x\n" +
		"   1: 0100007F:1E61 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 x\n" +
		"   2: short\n"
	if uid, inode, ok := listenerOf(table, 7777); uid != "1000" || inode != "4711" || !ok {
		t.Errorf("%q %q %v", uid, inode, ok)
	}
	if _, _, ok := listenerOf(table, 7778); ok {
		t.Error("nobody listens there")
	}
}

func FuzzControlGroup(f *testing.F) {
	f.Add("0::/a\n", "30 24 0:26 / /c rw shared:4 - cgroup2 c rw\n")
	f.Add("4:memory:/x\n0::/../b", "30 - cgroup2\n-\n\n")
	f.Fuzz(func(t *testing.T, processes, mounts string) {
		if dir, why := ownControlGroup(processes, mounts); (dir == "") == (why == "") {
			t.Errorf("%q, %q: one of the two is to be told", dir, why)
		}
	})
}

func FuzzListenerOf(f *testing.F) {
	f.Add("   1: 0100007F:1E61 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 x\n", uint16(7777))
	f.Add("   2: short\n", uint16(0))
	f.Fuzz(func(t *testing.T, table string, port uint16) {
		if uid, inode, ok := listenerOf(table, port); ok == (uid == "" || inode == "") {
			t.Errorf("%q %q %v", uid, inode, ok)
		}
	})
}
