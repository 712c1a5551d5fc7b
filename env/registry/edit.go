package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// addText adds an entry to the text of a file, behind all that is there.
func addText(path string, data []byte, e Entry) ([]byte, error) {
	if _, err := parseFile(path, data); err != nil {
		return nil, err
	}
	table, err := toml.Marshal(struct {
		Environments []Entry `toml:"environments"`
	}{[]Entry{e}})
	if err != nil {
		return nil, fmt.Errorf("environment %q: %w", e.ID, err)
	}
	out := slices.Clone(data)
	newline := "\n"
	if bytes.Contains(data, []byte("\r\n")) {
		newline = "\r\n"
		table = bytes.ReplaceAll(table, []byte("\n"), []byte(newline))
	}
	if len(out) > 0 {
		if out[len(out)-1] != '\n' {
			out = append(out, newline...)
		}
		if len(bytes.TrimSpace(out)) > 0 && !bytes.HasSuffix(out, []byte(newline+newline)) {
			out = append(out, newline...)
		}
	}
	out = append(out, table...)
	if _, err := parseFile(path, out); err != nil {
		return nil, fmt.Errorf("%s has its environments in a form that nothing can be added to (write them as [[environments]]): %w", path, err)
	}
	return out, nil
}

// removeText cuts an entry out of the text of a file: its table, those that belong to it, and the comment right
// above it. Everything else stays as it is.
func removeText(path string, data []byte, id string) ([]byte, error) {
	c, err := parseFile(path, data)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.entries, func(e Entry) bool { return e.ID == id })
	if i < 0 {
		return nil, fmt.Errorf("%s: %w", path, unknownError(id, c))
	}
	if c.fallback == id {
		return nil, fmt.Errorf("%s:%d: environment %q is the default; change that line first", path, c.fallbackLine, id)
	}
	_, headers, err := findPlaces(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	own := fmt.Sprintf("environments[%d]", i)
	first := slices.IndexFunc(headers, func(h header) bool { return h.path == own })
	if first < 0 {
		return nil, fmt.Errorf("%s:%d: environment %q is not a table of its own (written [[environments]]); take it out by hand", path, c.lines[i], id)
	}
	cut := [][2]int{}
	for n := first; n < len(headers); n++ {
		h := headers[n]
		if h.path != own && !strings.HasPrefix(h.path, own+".") {
			continue
		}
		end, last := len(data), n+1 == len(headers)
		if !last {
			end = headers[n+1].start
		}
		if last || !strings.HasPrefix(headers[n+1].path, own+".") {
			end = tableEnd(data, h.start, end, last)
		}
		cut = append(cut, [2]int{commentAbove(data, h.start), end})
	}
	out := slices.Clone(data)
	for _, c := range slices.Backward(cut) {
		out = append(out[:c[0]], out[c[1]:]...)
	}
	if cut[len(cut)-1][1] == len(data) { // no blank lines are left behind at the end
		text := bytes.TrimRight(out, " \t\r\n")
		out = out[:len(text)+bytes.IndexByte(out[len(text):], '\n')+1]
	}
	if after, err := parseFile(path, out); err != nil {
		return nil, fmt.Errorf("%s: environment %q cannot be cut out; do it by hand: %w", path, id, err)
	} else if len(after.entries) != len(c.entries)-1 {
		return nil, fmt.Errorf("%s: environment %q cannot be cut out; do it by hand", path, id)
	}
	return out, nil
}

// isComment and isBlank look at a line.
func isComment(line []byte) bool { return bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("#")) }
func isBlank(line []byte) bool   { return len(bytes.TrimSpace(line)) == 0 }

// lineBefore is where the line begins that ends at an offset.
func lineBefore(data []byte, at int) int { return bytes.LastIndexByte(data[:at-1], '\n') + 1 }

// commentAbove is where the comment begins that stands right above the line at start. One at the head of the file
// speaks of the file, so it is left alone.
func commentAbove(data []byte, start int) int {
	for at := start; at > 0; {
		line := lineBefore(data, at)
		if !isComment(data[line:at]) {
			return at
		}
		at = line
	}
	return start
}

// tableEnd is where the table ends that begins at start: behind its last line and the comments right below it, and
// the blank lines there. end is where the next table begins, or the end of the text. A comment that stands right
// above that table, too, is its.
func tableEnd(data []byte, start, end int, last bool) int {
	below := end // of all that says something to a program
	for below > start {
		line := lineBefore(data, below)
		if text := data[line:below]; !isComment(text) && !isBlank(text) {
			break
		}
		below = line
	}
	at, blank := below, false
	for at < end {
		next := end
		if i := bytes.IndexByte(data[at:end], '\n'); i >= 0 {
			next = at + i + 1
		}
		if line := data[at:next]; isBlank(line) {
			blank = true
		} else if blank {
			break
		}
		at = next
	}
	if !blank && !last {
		return below
	}
	return at
}

const (
	lockSuffix = ".lock"
	lockWithin = 2 * time.Second
	lockPause  = 20 * time.Millisecond
)

// editFile changes the text of the file as a whole or not at all, and keeps its mode. The new text is written
// beside it under a name that also keeps others from changing the file meanwhile. A link is followed.
func editFile(path string, change func(data []byte) ([]byte, error)) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := takeLock(path + lockSuffix)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	mode := fs.FileMode(0o600)
	data, info, err := loadFile(path)
	switch {
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if data, err = change(data); err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	done = true
	return nil
}

// takeLock makes the file that one editor at a time has.
func takeLock(path string) (*os.File, error) {
	deadline := time.Now().Add(lockWithin)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, fs.ErrExist):
			return nil, err
		case time.Now().After(deadline):
			return nil, fmt.Errorf("%s is there: another program is changing the file, or one was ended while it did; then remove it", strconv.Quote(path))
		}
		time.Sleep(lockPause)
	}
}
