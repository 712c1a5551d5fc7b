package fake

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"waldo/env"
	"waldo/env/envtest"
	"waldo/pathuri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFiles(t *testing.T) {
	for _, convention := range []pathuri.Convention{pathuri.Posix, pathuri.Windows} {
		t.Run(convention.String(), func(t *testing.T) {
			envtest.RunFiles(t, func(t *testing.T) envtest.FilesMachine {
				m := New(convention)
				scratch, err := m.info().Temp.JoinName("scratch")
				if err == nil {
					err = m.Mkdir(t.Context(), scratch, env.MkdirOptions{})
				}
				if err != nil {
					t.Fatal(err)
				}
				return envtest.FilesMachine{Files: m, Watcher: m, Describer: m, Scratch: scratch, Expendable: true}
			})
		})
	}
}

// TestWindowsNames: names that differ in case alone are one, and keep the case they were made with.
func TestWindowsNames(t *testing.T) {
	m := New(pathuri.Windows)
	m.Tree(map[string]string{`C:\Work\ReadMe.md`: "text", `c:\work\d\`: ""})
	data, _, err := env.ReadFile(t.Context(), m, m.path(`c:\WORK\README.MD`), 100)
	if string(data) != "text" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	want := m.path(`C:\Work\ReadMe.md`)
	if got, err := m.Canonicalize(t.Context(), m.path(`C:\work\readme.md`)); got != want || err != nil {
		t.Errorf("canonical is %q, %v, want %q", got, err, want)
	}
	if err := m.Rename(t.Context(), want, m.path(`C:\work\README.md`), env.RenameOptions{}); err != nil {
		t.Error(err)
	}
	want = m.path(`C:\Work\README.md`)
	if got, err := m.Canonicalize(t.Context(), m.path(`C:\work\readme.md`)); got != want || err != nil {
		t.Errorf("canonical is %q, %v, want %q", got, err, want)
	}
	if _, err := m.Stat(t.Context(), m.path(`D:\x`), true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("on a drive that is not there: %v", err)
	}
}

func TestFaults(t *testing.T) {
	m, broken := New(pathuri.Posix), errors.New("broken")
	m.Tree(map[string]string{"/d/f": "text", "/d/g": "text"})
	m.Fail(m.path("/d/f"), broken)
	for path, want := range map[string]error{"/d/f": broken, "/d/g": nil} {
		_, statErr := m.Stat(t.Context(), m.path(path), true)
		_, _, readErr := env.ReadFile(t.Context(), m, m.path(path), 100)
		for _, err := range []error{statErr, readErr} {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
		}
	}
	m.Fail(m.path("/d/f"), nil)
	var calls []Call
	m.Hook(func(_ context.Context, call Call) error {
		calls = append(calls, call)
		if call.Op == "stat" {
			return broken
		}
		return nil
	})
	if _, err := m.Stat(t.Context(), m.path("/d/f"), true); !errors.Is(err, broken) {
		t.Errorf("stat: %v", err)
	}
	if _, _, err := env.ReadFile(t.Context(), m, m.path("/d/f"), 100); err != nil {
		t.Errorf("read: %v", err)
	}
	if want := []Call{{"stat", m.path("/d/f")}, {"read", m.path("/d/f")}}; !slices.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}
