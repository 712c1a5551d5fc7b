package rpc

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// names reads the first column of the table that follows a mark in PROTOCOL.md.
func names(t *testing.T, mark string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../wire/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), mark)
	if !found {
		t.Fatalf("PROTOCOL.md has no %q", mark)
	}
	for line := range strings.Lines(rest) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			names = append(names, name)
		} else if names != nil {
			break
		}
	}
	slices.Sort(names)
	return names
}

// PROTOCOL.md has what the code has, and the other way round.
func TestProtocolTables(t *testing.T) {
	want := append(slices.Collect(maps.Keys(methods)), "hello")
	slices.Sort(want)
	if got := names(t, "<!-- methods:"); !slices.Equal(got, want) {
		t.Errorf("methods %q, the code has %q", got, want)
	}
	want = nil
	for _, of := range []any{control{}, forwardControl{}, fileControl{}} {
		for i := range reflect.TypeOf(of).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
			want = append(want, name)
		}
	}
	slices.Sort(want)
	if got := names(t, "<!-- controls:"); !slices.Equal(got, want) {
		t.Errorf("CONTROL messages %q, the code has %q", got, want)
	}
}
