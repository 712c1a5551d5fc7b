package integration

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// The module's name, and what its packages' import paths start with.
const module = "waldo"

// A rule says where a package stands and what it may link from outside the
// standard library.
type rule struct {
	level   int
	outside []string // modules, with everything below them
	test    bool     // made for tests: only tests and other test packages import it
}

// Modules that are allowed in more than one place.
const (
	xsys      = "golang.org/x/sys"
	xterm     = "golang.org/x/term"
	websocket = "github.com/coder/websocket"
	toml      = "github.com/pelletier/go-toml/v2"
	uuid      = "github.com/google/uuid"
	cobra     = "github.com/spf13/cobra"
	pflag     = "github.com/spf13/pflag"
	goleak    = "go.uber.org/goleak"
	gocmp     = "github.com/google/go-cmp"
	rapid     = "pgregory.net/rapid"
)

// layers gives every package its level. A package imports only packages of a
// lower one. A new package is entered here before the test passes; moving one
// up or adding to its outside list is a decision about the design, so say why
// in the commit.
var layers = map[string]rule{
	"pathuri":   {level: 0},
	"wire":      {level: 0, outside: []string{"github.com/hashicorp/yamux", websocket, xsys}},
	"app/model": {level: 0, outside: []string{"github.com/openai/openai-go"}},

	"wire/wiretest":       {level: 1, outside: []string{goleak, gocmp}, test: true},
	"app/model/modeltest": {level: 1, outside: []string{gocmp}, test: true},
	"wire/listen":         {level: 1, outside: []string{websocket, xsys, "github.com/golang-jwt/jwt/v5"}},
	"wire/jsonrpc":        {level: 1, outside: []string{websocket}},
	"sandbox":             {level: 1},
	"snapshot":            {level: 1},
	"app/config":          {level: 1, outside: []string{toml}},
	"app/rollout":         {level: 1},

	"sandbox/netproxy": {level: 2},
	"sandbox/confine":  {level: 2, outside: []string{xsys, "github.com/elastic/go-seccomp-bpf"}},
	"env":              {level: 2},

	"env/envtest":      {level: 3, outside: []string{goleak, gocmp, rapid}, test: true},
	"env/envtest/fake": {level: 3, test: true},
	"env/host/output":  {level: 3, outside: []string{xsys}},
	"env/host/tree":    {level: 3, outside: []string{xsys}},
	"env/host/files":   {level: 3, outside: []string{xsys}},
	"env/host/search":  {level: 3, outside: []string{"github.com/bmatcuk/doublestar/v4", xsys}},
	"env/host/watch":   {level: 3, outside: []string{"github.com/fsnotify/fsnotify", xsys}},
	"env/rpc":          {level: 3, outside: []string{uuid}},
	"env/agentsmd":     {level: 3},

	"env/host/proc": {level: 4, outside: []string{xsys, "github.com/creack/pty"}},
	"env/rpc/codex": {level: 4, outside: []string{uuid}},
	"env/transfer":  {level: 4},

	"env/host":     {level: 5, outside: []string{xsys}},
	"env/registry": {level: 5, outside: []string{toml}},
	"app/world":    {level: 6},
	"app/tool":     {level: 7},
	"app/thread":   {level: 8, outside: []string{uuid}},
	"app":          {level: 9, outside: []string{"github.com/prometheus/client_golang"}},

	"cmd/exec-server": {level: 10, outside: []string{cobra, pflag, xsys, xterm, "github.com/prometheus/client_golang"}},
	"cmd/app-server":  {level: 10, outside: []string{cobra, pflag, xsys, xterm}},

	"integration":            {level: 11, test: true},
	"integration/winerig":    {level: 12, test: true},
	"integration/testreport": {level: 12, test: true},
	"integration/delayproxy": {level: 12, test: true},
	"integration/bench": {level: 12, test: true, outside: []string{
		"github.com/hashicorp/yamux", websocket, "github.com/creack/pty", // what waldo is measured against
	}},
}

// importers names the packages that only some may import, beyond the levels.
// An entry that ends in "/..." stands for a package and all below it.
var importers = map[string][]string{
	"env/host":         {"cmd/exec-server"},
	"env/host/proc":    {"env/host/...", "cmd/exec-server"},
	"env/host/output":  {"env/host/..."},
	"env/host/tree":    {"env/host/...", "cmd/exec-server"},
	"env/host/files":   {"env/host/...", "cmd/exec-server"},
	"env/host/search":  {"env/host/...", "cmd/exec-server"},
	"env/host/watch":   {"env/host/...", "cmd/exec-server"},
	"sandbox/confine":  {"env/host/...", "cmd/exec-server"},
	"app":              {"cmd/app-server"},
	"cmd/exec-server":  {},
	"cmd/app-server":   {},
	"sandbox/netproxy": {"env/host/...", "cmd/exec-server"},
}

// forbidden names imports from the standard library that a package must do
// without.
var forbidden = map[string][]string{
	// A path URI names a file on any machine, so nothing of this one may count.
	"pathuri": {"os", "path/filepath", "runtime"},
}

// nameless are package names that say nothing about a package's job.
var nameless = []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "shared"}

func TestLayers(t *testing.T) {
	problems, packages, err := checkTree(os.DirFS(".."), layers)
	if err != nil {
		t.Fatal(err)
	}
	// A walk that looks in the wrong place would find nothing to complain of.
	if !slices.Contains(packages, "integration") {
		t.Fatalf("the walk did not even find this package, only %q", packages)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// goPackage is the non-test source of one directory.
type goPackage struct {
	dir   string
	files map[string]*ast.File
	tests int
}

// checkTree reads every Go file below the root, whatever its build tags, and
// tells what breaks the rules, and which packages it saw.
func checkTree(root fs.FS, table map[string]rule) (problems, packages []string, err error) {
	fset := token.NewFileSet()
	found := map[string]*goPackage{}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			// The go command does not see these either.
			if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
			return nil
		}
		dir := path.Dir(name)
		p := found[dir]
		if p == nil {
			p = &goPackage{dir: dir, files: map[string]*ast.File{}}
			found[dir] = p
		}
		if strings.HasSuffix(name, "_test.go") {
			p.tests++
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files[name] = f
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	packages = slices.Sorted(maps.Keys(found))
	for _, dir := range packages {
		problems = append(problems, checkPackage(fset, found[dir], table)...)
	}
	return problems, packages, nil
}

// checkPackage tells what breaks the rules in one package.
func checkPackage(fset *token.FileSet, p *goPackage, table map[string]rule) (problems []string) {
	say := func(at, format string, args ...any) {
		problems = append(problems, at+": "+fmt.Sprintf(format, args...))
	}
	r, ok := table[p.dir]
	if !ok {
		say(p.dir, "has no level: enter the package in the table of integration/layers_test.go")
		return problems
	}
	if slices.Contains(nameless, path.Base(p.dir)) {
		say(p.dir, "is named for nothing: name a package for its single job")
	}
	var comments []string
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		f := p.files[name]
		if f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" {
			comments = append(comments, path.Base(name))
		}
		if slices.Contains(nameless, f.Name.Name) {
			say(name, "package name %s says nothing about its job", f.Name.Name)
		}
		for _, spec := range f.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				say(name, "import %s: %v", spec.Path.Value, err)
				continue
			}
			if why := mayImport(p.dir, r, target, table); why != "" {
				say(name, "imports %s: %s", target, why)
			}
		}
		undocumented(f, func(n ast.Node, what string) {
			say(fset.Position(n.Pos()).String(), "%s is exported and has no comment", what)
		})
		if !r.test {
			foreignTypes(f, func(n ast.Node, what string) {
				say(fset.Position(n.Pos()).String(), "%s is a dependency's type in an exported name", what)
			})
		}
	}
	if len(p.files) > 0 && len(comments) != 1 {
		say(p.dir, "wants exactly one package comment, has %d %v", len(comments), comments)
	}
	return problems
}

// mayImport says why a package may not import another, or "".
func mayImport(dir string, r rule, target string, table map[string]rule) string {
	if target == "C" {
		return "no cgo"
	}
	if rest, ours := strings.CutPrefix(target, module+"/"); ours {
		to, ok := table[rest]
		if !ok {
			return "it has no level"
		}
		if to.level >= r.level {
			return fmt.Sprintf("its level is %d and this package's is %d, so it is not below", to.level, r.level)
		}
		if to.test && !r.test {
			return "it is for tests alone"
		}
		if list, limited := importers[rest]; limited && !r.test && !slices.ContainsFunc(list, func(pattern string) bool { return matches(pattern, dir) }) {
			return fmt.Sprintf("only %v may", list)
		}
		return ""
	}
	if slices.Contains(forbidden[dir], target) {
		return "this package must do without it"
	}
	if first, _, _ := strings.Cut(target, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for _, allowed := range r.outside {
		if target == allowed || strings.HasPrefix(target, allowed+"/") {
			return ""
		}
	}
	return "it is not in the list of what this package may link from outside the standard library"
}

// matches reports whether dir is what pattern stands for.
func matches(pattern, dir string) bool {
	if stem, tree := strings.CutSuffix(pattern, "/..."); tree {
		return dir == stem || strings.HasPrefix(dir, stem+"/")
	}
	return dir == pattern
}

// undocumented tells each exported name at the top of a file, each exported
// method of an exported type and each method of an exported interface that has
// no comment. A comment over a group of constants or variables counts for all
// of them.
func undocumented(f *ast.File, tell func(ast.Node, string)) {
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				recv := receiver(d)
				if !ast.IsExported(recv) {
					continue
				}
				name = recv + "." + name
			}
			if d.Name.IsExported() && !said(d.Doc) {
				tell(d, name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if !s.Name.IsExported() {
						continue
					}
					if !said(s.Doc, s.Comment) && (len(d.Specs) > 1 || !said(d.Doc)) {
						tell(s, s.Name.Name)
					}
					if i, ok := s.Type.(*ast.InterfaceType); ok {
						for _, m := range i.Methods.List {
							for _, n := range m.Names {
								if n.IsExported() && !said(m.Doc, m.Comment) {
									tell(n, s.Name.Name+"."+n.Name)
								}
							}
						}
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.IsExported() && !said(d.Doc, s.Doc, s.Comment) {
							tell(n, n.Name)
						}
					}
				}
			}
		}
	}
}

// said reports whether one of the comments says something.
func said(comments ...*ast.CommentGroup) bool {
	return slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool {
		return c != nil && strings.TrimSpace(c.Text()) != ""
	})
}

// receiver is the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	for {
		switch t := e.(type) {
		case *ast.StarExpr:
			e = t.X
		case *ast.ParenExpr:
			e = t.X
		case *ast.IndexExpr:
			e = t.X
		case *ast.IndexListExpr:
			e = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// foreignTypes tells each use of a package from outside the standard library
// and this module in the type of an exported name.
func foreignTypes(f *ast.File, tell func(ast.Node, string)) {
	foreign := map[string]bool{}
	for _, spec := range f.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		first, _, _ := strings.Cut(target, "/")
		if first == module || !strings.Contains(first, ".") {
			continue
		}
		name := path.Base(target)
		if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
			name = path.Base(path.Dir(target))
		}
		name = strings.TrimPrefix(name, "go-")
		if spec.Name != nil {
			name = spec.Name.Name
		}
		foreign[name] = true
	}
	look := func(e ast.Node) {
		if e == nil {
			return
		}
		ast.Inspect(e, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				if len(n.Names) > 0 && !slices.ContainsFunc(n.Names, func(i *ast.Ident) bool { return i.IsExported() }) {
					return false
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && foreign[x.Name] {
					tell(n, x.Name+"."+n.Sel.Name)
				}
			}
			return true
		})
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if !d.Name.IsExported() || d.Recv != nil && !ast.IsExported(receiver(d)) {
				continue
			}
			// A parameter's name is never exported, so its type is looked at alone.
			for _, list := range []*ast.FieldList{d.Type.Params, d.Type.Results} {
				if list != nil {
					for _, field := range list.List {
						look(field.Type)
					}
				}
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						look(s.Type)
					}
				case *ast.ValueSpec:
					if s.Type != nil && slices.ContainsFunc(s.Names, func(i *ast.Ident) bool { return i.IsExported() }) {
						look(s.Type)
					}
				}
			}
		}
	}
}

// The check itself must be able to fail: each fake tree breaks one rule.
func TestLayersCanFail(t *testing.T) {
	const doc = "// Package p is one.\n"
	file := func(src string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(src)} }
	tests := []struct {
		name string
		tree fstest.MapFS
		want string // part of the only problem; "" for none
	}{
		{"clean", fstest.MapFS{
			"pathuri/a.go":         file(doc + "package pathuri\nimport \"strings\"\n// A is.\nvar A = strings.ToLower(\"a\")\n"),
			"sandbox/a.go":         file(doc + "package sandbox\nimport _ \"waldo/pathuri\"\n"),
			"sandbox/a_test.go":    file("package sandbox\nimport _ \"waldo/app\"\n"),
			"sandbox/testdata/x":   file("not Go"),
			"sandbox/.git/x.go":    file("not Go"),
			"wire/wiretest/a.go":   file(doc + "package wiretest\nimport _ \"waldo/wire\"\nimport _ \"go.uber.org/goleak\"\n"),
			"env/host/a.go":        file(doc + "package host\nimport _ \"waldo/env/host/proc\"\n"),
			"cmd/exec-server/a.go": file(doc + "package main\nimport _ \"waldo/env/host\"\nimport _ \"github.com/spf13/cobra\"\n"),
		}, ""},
		{"same level", fstest.MapFS{"sandbox/a.go": file(doc + "package sandbox\nimport _ \"waldo/snapshot\"\n")}, "imports waldo/snapshot: its level is 1"},
		{"upwards", fstest.MapFS{"wire/a.go": file(doc + "package wire\nimport _ \"waldo/wire/listen\"\n")}, "imports waldo/wire/listen"},
		{"upwards under a build tag", fstest.MapFS{"wire/a_windows.go": file("//go:build windows\n\n" + doc + "package wire\nimport _ \"waldo/env\"\n")}, "imports waldo/env"},
		{"no level", fstest.MapFS{"surprise/a.go": file(doc + "package surprise\n")}, "has no level"},
		{"no level, tests only", fstest.MapFS{"surprise/a_test.go": file("package surprise\n")}, "has no level"},
		{"importing what has no level", fstest.MapFS{"app/a.go": file(doc + "package app\nimport _ \"waldo/surprise\"\n")}, "it has no level"},
		{"importer list", fstest.MapFS{"app/thread/a.go": file(doc + "package thread\nimport _ \"waldo/env/host\"\n")}, "only [cmd/exec-server] may"},
		{"app-server links the host", fstest.MapFS{"cmd/app-server/a.go": file(doc + "package main\nimport _ \"waldo/env/host/proc\"\n")}, "only [env/host/... cmd/exec-server] may"},
		{"test package in production", fstest.MapFS{"app/tool/a.go": file(doc + "package tool\nimport _ \"waldo/env/envtest\"\n")}, "for tests alone"},
		{"dependency", fstest.MapFS{"sandbox/a.go": file(doc + "package sandbox\nimport _ \"golang.org/x/sys/unix\"\n")}, "not in the list"},
		{"dependency with a like name", fstest.MapFS{"wire/a.go": file(doc + "package wire\nimport _ \"golang.org/x/sysx\"\n")}, "not in the list"},
		{"cgo", fstest.MapFS{"wire/a.go": file(doc + "package wire\nimport \"C\"\n")}, "no cgo"},
		{"pathuri and the machine", fstest.MapFS{"pathuri/a.go": file(doc + "package pathuri\nimport _ \"path/filepath\"\n")}, "must do without"},
		{"no package comment", fstest.MapFS{"wire/a.go": file("package wire\n")}, "exactly one package comment, has 0"},
		{"two package comments", fstest.MapFS{"wire/a.go": file(doc + "package wire\n"), "wire/b.go": file(doc + "package wire\n")}, "exactly one package comment, has 2"},
		{"undocumented function", fstest.MapFS{"wire/a.go": file(doc + "package wire\n\nfunc F() {}\n")}, "F is exported"},
		{"undocumented method", fstest.MapFS{"wire/a.go": file(doc + "package wire\n\n// T is.\ntype T[P any] struct{}\n\nfunc (t *T[P]) M() {}\n\nfunc (t *T[P]) m() {}\n")}, "T.M is exported"},
		{"undocumented type", fstest.MapFS{"wire/a.go": file(doc + "package wire\n\ntype T int\n")}, "T is exported"},
		{"undocumented constant", fstest.MapFS{"wire/a.go": file(doc + "package wire\n\nconst (\n\tA = 1 // a\n\tB = 2\n)\n")}, "B is exported"},
		{"undocumented interface method", fstest.MapFS{"wire/a.go": file(doc + "package wire\n\n// I is.\ntype I interface {\n\t// A does.\n\tA()\n\tB()\n}\n")}, "I.B is exported"},
		{"dependency's type in a signature", fstest.MapFS{"wire/a.go": file(doc + "package wire\nimport \"github.com/hashicorp/yamux\"\n\n// F does.\nfunc F(s *yamux.Session) {}\n\nfunc g(s *yamux.Session) {}\n")}, "yamux.Session is a dependency's type"},
		{"dependency's type in a field", fstest.MapFS{"wire/a.go": file(doc + "package wire\nimport \"github.com/hashicorp/yamux\"\n\n// T is.\ntype T struct {\n\ts *yamux.Session\n\tS *yamux.Stream\n}\n")}, "yamux.Stream is a dependency's type"},
		{"package named for nothing", fstest.MapFS{"wire/a.go": file(doc + "package util\n")}, "says nothing"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			problems, _, err := checkTree(test.tree, layers)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.want == "" && len(problems) > 0:
				t.Errorf("a clean tree has problems: %q", problems)
			case test.want != "" && len(problems) != 1:
				t.Errorf("want one problem, have %q", problems)
			case test.want != "" && !strings.Contains(problems[0], test.want):
				t.Errorf("problem is %q, want %q in it", problems[0], test.want)
			}
		})
	}
	if _, _, err := checkTree(fstest.MapFS{"wire/a.go": file("package")}, layers); err == nil {
		t.Error("a file that is not Go passed")
	}
	for name := range layers {
		if slices.Contains(nameless, path.Base(name)) {
			t.Errorf("the table holds %s", name)
		}
	}
	for name, list := range importers {
		for _, pattern := range append([]string{name}, list...) {
			if _, ok := layers[strings.TrimSuffix(pattern, "/...")]; !ok {
				t.Errorf("importers names %s, which has no level", pattern)
			}
		}
	}
}
