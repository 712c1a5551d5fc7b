package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"waldo/env"
	"waldo/env/envtest/fake"
	"waldo/pathuri"
)

// -e may be given more than once here, and the other flags are those of all commands.
func TestAgentsFlags(t *testing.T) {
	var c connection
	root := &cobra.Command{Use: programName}
	c.addFlags(root.PersistentFlags())
	command := agentsCommand(&c)
	root.AddCommand(command)
	if err := command.ParseFlags([]string{"-e", "a", "--environment=b", "--token-file", "t", "-C", "d"}); err != nil {
		t.Fatal(err)
	}
	names, err := command.Flags().GetStringArray("environment")
	if !slices.Equal(names, []string{"a", "b"}) || err != nil || c.access.TokenFile != "t" || c.name != "" {
		t.Errorf("environments %q, %v, token file %q", names, err, c.access.TokenFile)
	}
}

func TestDiscoverAgents(t *testing.T) {
	machine := fake.New(pathuri.Windows)
	machine.Tree(map[string]string{`C:\w\.git\`: "", `C:\w\AGENTS.md`: "1", `C:\w\d\AGENTS.md`: "22"})
	project, err := discoverAgents(t.Context(), machine, "box", native(t, `C:\w\d`, pathuri.Windows))
	if err != nil || len(project.Docs) != 2 || project.Environment != "box" || project.Docs[1].Size != 2 {
		t.Errorf("%+v, %v", project, err)
	}
	for path, want := range map[string]error{`C:\w\none`: fs.ErrNotExist, `C:\w\AGENTS.md`: env.ErrNotDirectory} {
		if _, err := discoverAgents(t.Context(), machine, "box", native(t, path, pathuri.Windows)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

func TestOwnAgents(t *testing.T) {
	home := t.TempDir()
	t.Setenv("WALDO_HOME", home)
	if files, err := ownAgents(); files != nil || err != nil {
		t.Errorf("of nothing: %v, %v", files, err)
	}
	for name, text := range map[string]string{"AGENTS.override.md": " \n", "AGENTS.md": "text\n"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(home, "AGENTS.md")
	want := agentsFile{URI: native(t, path, nativeConvention()), Path: path, Size: 5, Used: 5}
	if files, err := ownAgents(); !slices.Equal(files, []agentsFile{want}) || err != nil {
		t.Errorf("%+v, %v, want %+v", files, err, want)
	}
}

func TestPrintAgents(t *testing.T) {
	var out bytes.Buffer
	if err := printAgents(newStyle(&out), []agentsFile{
		{Path: "/home/u/.waldo/AGENTS.md", Size: 5, Used: 5},
		{Environment: "box", Path: "/w/\x1b[31m/AGENTS.md", Size: 40000, Used: 32768},
	}); err != nil {
		t.Fatal(err)
	}
	want := "ENVIRONMENT\tSIZE\tUSED\tFILE\n-\t5\t5\t/home/u/.waldo/AGENTS.md\nbox\t40000\t32768\t/w/\\x1b[31m/AGENTS.md\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
