package host

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/windows/registry"

	"waldo/env"
)

// findShells finds the shells of this machine, one of each kind, the best to work with first. The bash in the
// system's directory is not taken: it leads into another system.
func findShells(string) []env.Shell {
	programs := cmp.Or(os.Getenv("ProgramFiles"), `C:\Program Files`)
	system := filepath.Join(cmp.Or(os.Getenv("SystemRoot"), `C:\Windows`), "System32")
	var shells []env.Shell
	for _, shell := range []struct {
		kind       string
		candidates []string
	}{
		{"pwsh", append(onPath("pwsh.exe"), filepath.Join(programs, "PowerShell", "7", "pwsh.exe"))},
		{"powershell", append([]string{filepath.Join(system, "WindowsPowerShell", "v1.0", "powershell.exe")}, onPath("powershell.exe")...)},
		{"cmd", []string{os.Getenv("COMSPEC"), filepath.Join(system, "cmd.exe")}},
		{"bash", gitBash(programs)},
	} {
		for _, file := range shell.candidates {
			if info, err := os.Stat(file); err == nil && !info.IsDir() && filepath.IsAbs(file) {
				shells = append(shells, env.Shell{Kind: shell.kind, Path: file})
				break
			}
		}
	}
	return shells
}

// onPath returns where a program is found, if it is.
func onPath(name string) []string {
	if file, err := exec.LookPath(name); err == nil && filepath.IsAbs(file) {
		return []string{file}
	}
	return nil
}

// gitBash returns where the bash of Git for Windows may be.
func gitBash(programs string) (files []string) {
	var roots []string
	for _, hive := range []registry.Key{registry.LOCAL_MACHINE, registry.CURRENT_USER} {
		key, err := registry.OpenKey(hive, `SOFTWARE\GitForWindows`, registry.QUERY_VALUE)
		if err != nil {
			continue
		}
		if root, _, err := key.GetStringValue("InstallPath"); err == nil {
			roots = append(roots, root)
		}
		key.Close() //nolint:errcheck // only read
	}
	for _, git := range onPath("git.exe") { // …\Git\cmd\git.exe
		roots = append(roots, filepath.Dir(filepath.Dir(git)))
	}
	roots = append(roots, filepath.Join(programs, "Git"))
	if local := os.Getenv("LocalAppData"); local != "" {
		roots = append(roots, filepath.Join(local, "Programs", "Git"))
	}
	for _, root := range roots {
		files = append(files, filepath.Join(root, "bin", "bash.exe"))
	}
	return files
}
