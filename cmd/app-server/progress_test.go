package main

import (
	"strings"
	"testing"
	"time"

	"waldo/env"
	"waldo/env/envtest/fake"
	"waldo/env/transfer"
	"waldo/pathuri"
)

func TestProgressLine(t *testing.T) {
	source, target := fake.New(pathuri.Posix), fake.New(pathuri.Posix)
	uri := func(path string) pathuri.URI {
		u, err := pathuri.FromNative(path, pathuri.Posix)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	source.Tree(map[string]string{"/s/a": strings.Repeat("x", 3<<20), "/s/b": strings.Repeat("x", 1<<20)})
	source.Fail(uri("/s/b"), env.ErrLimit)
	var begun, whole transfer.Progress
	err := transfer.Copy(t.Context(), transfer.End{Files: source, Path: uri("/s")}, transfer.End{Files: target, Path: uri("/t")},
		transfer.Options{Recursive: true, Progress: &whole})
	if err == nil {
		t.Fatal("no error")
	}
	for _, test := range []struct {
		name     string
		progress *transfer.Progress
		since    time.Duration
		columns  int
		want     []string
	}{
		{"nothing yet", &begun, 0, 100, []string{"  0% [", "0 of 0 files", "(counting)"}},
		{"three quarters", &whole, 3 * time.Second, 100, []string{" 75% [======================        ]", "1 of 2 files", "1s left"}},
		{"narrower", &whole, 3 * time.Second, 80, []string{" 75% [=", "1 of 2 files"}},
		{"no room for a bar", &whole, 3 * time.Second, 50, []string{"1 of 2 files"}},
		{"very narrow", &whole, 3 * time.Second, 10, nil},
		{"no width at all", &whole, 3 * time.Second, 0, nil},
	} {
		line := progressLine(test.progress, test.since, test.columns)
		for _, want := range test.want {
			if !strings.Contains(line, want) {
				t.Errorf("%s: no %q in %q", test.name, want, line)
			}
		}
		if len(line) >= max(test.columns, 2) {
			t.Errorf("%s: %d columns in %d: %q", test.name, len(line), test.columns, line)
		}
	}
}
