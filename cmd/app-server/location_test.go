package main

import (
	"strings"
	"testing"
)

func TestParseLocation(t *testing.T) {
	for text, want := range map[string]location{
		"file":       {environment: "local", path: "file"},
		"":           {environment: "local"},
		"/a/b":       {environment: "local", path: "/a/b"},
		":":          {environment: "given"},
		":a":         {environment: "given", path: "a"},
		":/a:b":      {environment: "given", path: "/a:b"},
		"box:":       {environment: "box"},
		"box:a b":    {environment: "box", path: "a b"},
		"box:/a":     {environment: "box", path: "/a"},
		"a-b_1:~/x":  {environment: "a-b_1", path: "~/x"},
		"local:x":    {environment: "local", path: "x"},
		`box:C:\x`:   {environment: "box", path: `C:\x`},
		"C:":         {environment: "local", path: "C:"},
		`c:\x`:       {environment: "local", path: `c:\x`},
		"C:x":        {environment: "local", path: "C:x"},
		"./box:x":    {environment: "local", path: "./box:x"},
		"dir/box:x":  {environment: "local", path: "dir/box:x"},
		"bo x:y":     {environment: "local", path: "bo x:y"},
		"b\xff:y":    {environment: "local", path: "b\xff:y"},
		"box:\xff":   {environment: "box", path: "\xff"},
		"~/box:x":    {environment: "local", path: "~/box:x"},
		"name.x:y":   {environment: "local", path: "name.x:y"},
		"\nbox:path": {environment: "local", path: "\nbox:path"},
	} {
		want.text = text
		if got := parseLocation(text, "given"); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestAsDirectory(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "a": "", ".": "contents directory", "a/.": "contents directory", "/.": "contents directory", "a/": "directory", "/": "directory",
		"..": "", "a/..": "", "a.": "", `a\.`: "contents directory", ".a": "",
	} {
		var got []string
		if l := (location{path: path}); l.asContents() {
			got = append(got, "contents")
		}
		if l := (location{path: path}); l.asDirectory() {
			got = append(got, "directory")
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
