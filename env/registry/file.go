package registry

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxFile bounds the file.
const maxFile = 4 << 20

// config is what environments.toml says.
type config struct {
	path         string
	entries      []Entry
	lines        []int // of the entries
	fallback     string
	fallbackLine int // 0: default is not there
	includeLocal bool
}

var (
	topKeys   = []string{"default", "include_local", "environments"}
	entryKeys = []string{"id", "url", "program", "args", "env", "cwd", "auth_bearer_token", "token_file", "tls_pin", "tls_ca",
		"client_cert", "client_key", "connect_timeout_sec", "initialize_timeout_sec", "lease_sec", "skills"}
	skillKeys = []string{"required"}
)

// readFile reads the file. One that is not there says that there is only this machine. warning is what should be
// told, if anything.
func readFile(path string) (c *config, warning string, err error) {
	data, info, err := loadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &config{path: path, includeLocal: true}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	if c, err = parseFile(path, data); err != nil {
		return nil, "", err
	}
	secret := func(e Entry) bool { return e.AuthBearerToken != "" }
	if slices.ContainsFunc(c.entries, secret) && openToOthers(info) {
		warning = fmt.Sprintf("%s holds a token and can be read by others; close it with chmod 600, or name a token_file", path)
	}
	return c, warning, nil
}

func loadFile(path string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(path) // a FIFO would make us wait
	if err != nil {
		return nil, nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return nil, nil, fmt.Errorf("%s is over %d bytes long", path, maxFile)
	}
	data, err := os.ReadFile(path)
	return data, info, err
}

// parseFile reads the text of the file, strictly: all that is wrong with it is told at once, with line and key.
func parseFile(path string, data []byte) (*config, error) {
	var tree map[string]any
	if err := toml.Unmarshal(data, &tree); err != nil {
		var wrong *toml.DecodeError
		if errors.As(err, &wrong) {
			line, column := wrong.Position()
			return nil, fmt.Errorf("%s:%d: column %d: %s", path, line, column, strings.TrimPrefix(wrong.Error(), "toml: "))
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	places, _, err := findPlaces(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d := decoder{path: path, places: places}
	c := d.file(tree)
	return c, d.err()
}

// header is where a table begins.
type header struct {
	path  string // as environments[0].skills
	start int    // offset of the beginning of its line
}

// findPlaces finds every table and key of a document. places has the line of each path.
func findPlaces(data []byte) (places map[string]int, headers []header, err error) {
	var p unstable.Parser
	p.Reset(data)
	places = map[string]int{}
	counts := map[string]int{}
	prefix := ""
	note := func(path string, node *unstable.Node, isHeader bool) {
		line := p.Shape(node.Raw).Start.Line
		if _, there := places[path]; !there {
			places[path] = line
		}
		if isHeader {
			start := bytes.LastIndexByte(data[:node.Raw.Offset], '\n') + 1
			headers = append(headers, header{path: path, start: start})
		}
	}
	var value func(path string, node *unstable.Node)
	keyValue := func(prefix string, node *unstable.Node) {
		path := prefix
		var last *unstable.Node
		for keys := node.Key(); keys.Next(); {
			last = keys.Node()
			path = joinPath(path, string(last.Data))
			note(path, last, false)
		}
		value(path, node.Value())
	}
	value = func(path string, node *unstable.Node) {
		switch node.Kind {
		case unstable.InlineTable:
			for children := node.Children(); children.Next(); {
				keyValue(path, children.Node())
			}
		case unstable.Array:
			i := 0
			for children := node.Children(); children.Next(); {
				if children.Node().Kind == unstable.Comment {
					continue
				}
				element := fmt.Sprintf("%s[%d]", path, i)
				if _, there := places[element]; !there {
					places[element] = elementLine(&p, children.Node(), places[path])
				}
				value(element, children.Node())
				i++
			}
		}
	}
	for p.NextExpression() {
		node := p.Expression()
		switch node.Kind {
		case unstable.KeyValue:
			keyValue(prefix, node)
		case unstable.Table, unstable.ArrayTable:
			path := ""
			var last *unstable.Node
			for keys := node.Key(); keys.Next(); {
				if n := counts[path]; n > 0 {
					path = fmt.Sprintf("%s[%d]", path, n-1)
				}
				last = keys.Node()
				path = joinPath(path, string(last.Data))
			}
			if node.Kind == unstable.ArrayTable {
				counts[path]++
				path = fmt.Sprintf("%s[%d]", path, counts[path]-1)
			}
			note(path, last, true)
			prefix = path
		}
	}
	return places, headers, p.Error()
}

// elementLine is the line of an element of an array; inline tables have no place of their own, their first key has.
func elementLine(p *unstable.Parser, node *unstable.Node, otherwise int) int {
	if node.Kind == unstable.InlineTable {
		if children := node.Children(); children.Next() {
			if keys := children.Node().Key(); keys.Next() {
				return p.Shape(keys.Node().Raw).Start.Line
			}
		}
		return otherwise
	}
	if node.Raw.Length > 0 {
		return p.Shape(node.Raw).Start.Line
	}
	return otherwise
}

func joinPath(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

// complaint is an error with its line.
type complaint struct {
	path string
	line int
	err  error
}

// decoder reads the tree of a document and collects all that is wrong with it.
type decoder struct {
	path   string
	places map[string]int
	wrong  []complaint
	at     string // the entry that is being read, for people
}

func (d *decoder) err() error {
	slices.SortStableFunc(d.wrong, func(a, b complaint) int { return cmp.Compare(a.line, b.line) })
	errs := make([]error, len(d.wrong))
	for i, c := range d.wrong {
		errs[i] = c.err
	}
	return errors.Join(errs...)
}

// complain says what is wrong at a path, or where that has no line, at the nearest above it.
func (d *decoder) complain(path, format string, args ...any) {
	line := d.line(path)
	err := fmt.Errorf("%s:%d: %s%s", d.path, line, d.at, fmt.Sprintf(format, args...))
	d.wrong = append(d.wrong, complaint{path, line, err})
}

func (d *decoder) line(path string) int {
	for path != "" {
		if line, ok := d.places[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 1
}

// unknown complains of the keys of a table that nobody knows.
func (d *decoder) unknown(path string, table map[string]any, known []string) {
	for key := range table {
		if slices.Contains(known, key) {
			continue
		}
		text := "unknown key " + strconv.Quote(key)
		if near := nearest(key, known); near != "" {
			text += fmt.Sprintf("; did you mean %q?", near)
		} else {
			text += "; known are " + strings.Join(known, ", ")
		}
		d.complain(joinPath(path, key), "%s", text)
	}
}

// get reads a value of a table, if it is there.
func get[T any](d *decoder, path string, table map[string]any, key, want string) (value T) {
	found, there := table[key]
	if !there {
		return value
	}
	value, ok := found.(T)
	if !ok {
		d.complain(joinPath(path, key), "%s: want %s, not %s", key, want, kindOf(found))
	}
	return value
}

func kindOf(value any) string {
	switch value.(type) {
	case string:
		return "a string"
	case bool:
		return "true or false"
	case int64, float64:
		return "a number"
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}

// text reads a string, which must say something if it is there.
func (d *decoder) text(path string, table map[string]any, key string) string {
	value := get[string](d, path, table, key, "a string")
	if found, there := table[key]; there && strings.TrimSpace(value) == "" && found == any(value) {
		d.complain(joinPath(path, key), "%s: it is empty; give it a value or take it out", key)
	}
	return value
}

// list reads an array of strings. One that is there is not nil.
func (d *decoder) list(path string, table map[string]any, key string) []string {
	if _, there := table[key]; !there {
		return nil
	}
	list := []string{}
	for i, value := range get[[]any](d, path, table, key, "an array of strings") {
		text, ok := value.(string)
		if !ok {
			d.complain(fmt.Sprintf("%s[%d]", joinPath(path, key), i), "%s: want strings in the array, not %s", key, kindOf(value))
		}
		list = append(list, text)
	}
	return list
}

func (d *decoder) seconds(path string, table map[string]any, key string) *float64 {
	var seconds float64
	switch value := table[key].(type) {
	case nil:
		return nil
	case int64:
		seconds = float64(value)
	case float64:
		seconds = value
	default:
		d.complain(joinPath(path, key), "%s: want a number of seconds, not %s", key, kindOf(value))
		return nil
	}
	return &seconds
}

// file reads the document.
func (d *decoder) file(tree map[string]any) *config {
	c := &config{path: d.path, includeLocal: true}
	d.unknown("", tree, topKeys)
	if _, there := tree["include_local"]; there {
		c.includeLocal = get[bool](d, "", tree, "include_local", "true or false")
	}
	first := map[string]int{}
	for i, value := range get[[]any](d, "", tree, "environments", "tables, written [[environments]]") {
		path := fmt.Sprintf("environments[%d]", i)
		table, ok := value.(map[string]any)
		if !ok {
			d.complain(path, "environments: want tables, written [[environments]], not %s", kindOf(value))
			continue
		}
		e := d.entry(path, table)
		line := d.line(path)
		if before, double := first[e.ID]; double && e.ID != "" {
			d.complain(path+".id", "environment %q: id: line %d has the same one", e.ID, before)
		} else {
			first[e.ID] = line
		}
		c.entries, c.lines = append(c.entries, e), append(c.lines, line)
	}
	if _, there := tree["default"]; there {
		c.fallback, c.fallbackLine = get[string](d, "", tree, "default", "a string"), d.line("default")
		if _, isText := tree["default"].(string); isText {
			d.checkDefault(c, first)
		}
	}
	return c
}

// checkDefault says what is wrong with the default.
func (d *decoder) checkDefault(c *config, ids map[string]int) {
	_, known := ids[c.fallback]
	switch {
	case strings.EqualFold(c.fallback, None), known && c.fallback != "":
	case c.fallback == Local && c.includeLocal:
	case c.fallback == Local:
		d.complain("default", `default: "local" is not there, since include_local is false`)
	default:
		names := []string{None}
		if c.includeLocal {
			names = append(names, Local)
		}
		for _, e := range c.entries {
			names = append(names, e.ID)
		}
		text := fmt.Sprintf("default: no environment has the id %q", c.fallback)
		if near := nearest(c.fallback, names); near != "" {
			text += fmt.Sprintf("; did you mean %q?", near)
		} else {
			text += fmt.Sprintf("; write one of the ids, %q or %q", Local, None)
		}
		d.complain("default", "%s", text)
	}
}

// entry reads one of the environments.
func (d *decoder) entry(path string, table map[string]any) Entry {
	name, _ := table["id"].(string)
	if checkID(name) != "" {
		name = path
	}
	d.at = fmt.Sprintf("environment %q: ", name)
	defer func() { d.at = "" }()
	e := Entry{ID: get[string](d, path, table, "id", "a string")}
	d.unknown(path, table, entryKeys)
	e.URL = strings.TrimSpace(d.text(path, table, "url"))
	e.Program = strings.TrimSpace(d.text(path, table, "program"))
	e.Args = d.list(path, table, "args")
	e.Cwd = d.text(path, table, "cwd")
	if _, there := table["env"]; there {
		e.Env = map[string]string{}
		for key, value := range get[map[string]any](d, path, table, "env", "a table of strings") {
			text, ok := value.(string)
			if !ok {
				d.complain(joinPath(path+".env", key), "env: want a string for %q, not %s", key, kindOf(value))
			}
			e.Env[key] = text
		}
	}
	e.AuthBearerToken = strings.TrimSpace(d.text(path, table, "auth_bearer_token"))
	e.TokenFile = d.text(path, table, "token_file")
	e.TLSPin = d.text(path, table, "tls_pin")
	e.TLSCA = d.text(path, table, "tls_ca")
	e.ClientCert = d.text(path, table, "client_cert")
	e.ClientKey = d.text(path, table, "client_key")
	e.ConnectTimeoutSec = d.seconds(path, table, "connect_timeout_sec")
	e.InitializeTimeoutSec = d.seconds(path, table, "initialize_timeout_sec")
	e.LeaseSec = d.seconds(path, table, "lease_sec")
	if _, there := table["skills"]; there {
		skills := get[map[string]any](d, path, table, "skills", "a table with required")
		d.unknown(path+".skills", skills, skillKeys)
		e.Skills = &Skills{Required: d.list(path+".skills", skills, "required")}
	}
	broken := func(key string) bool { // something has been said of it already
		return slices.ContainsFunc(d.wrong, func(c complaint) bool {
			rest, ok := strings.CutPrefix(c.path, joinPath(path, key))
			return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
		})
	}
	for _, p := range e.problems() {
		_, there := table[p.key]
		switch {
		case p.key == "":
			if !broken("url") && !broken("program") {
				d.complain(path, "%s", p.text)
			}
		case p.key == "id" && !there:
			d.complain(path, `id: it is missing; write id = "NAME"`)
		case !broken(p.key):
			d.complain(joinPath(path, p.key), "%s: %s", p.key, p.text)
		}
	}
	return e
}

// nearest is the known name that a person may have meant.
func nearest(name string, known []string) string {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(s))
	}
	best, least := "", (len(name)+1)/3
	for _, k := range known {
		if d := distance(plain(name), plain(k)); d <= least && (best == "" || d < distance(plain(name), plain(best))) {
			best = k
		}
	}
	if best == "" && len(name) >= 3 {
		for _, k := range known {
			if strings.Contains(plain(k), plain(name)) || strings.Contains(plain(name), plain(k)) && len(k) >= 3 {
				return k
			}
		}
	}
	return best
}

// distance is how many changes make b of a: of a byte, or of the order of two.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return max(len(a), len(b))
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			least := min(change, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				least = min(least, rows[i-2][j-2]+1)
			}
			rows[i][j] = least
		}
	}
	return rows[len(a)][len(b)]
}
