package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strconv"
	"time"
	"unicode/utf8"

	"waldo/env"
	"waldo/wire"
)

// entry is an [env.Entry] on the wire, where there may be very many of them. One without an error is
//
//	MODE SIZE SECONDS.NANOSECONDS ALLOCATED LINKS PATH [TARGET]
//
// in decimal numbers and texts as JSON has them; one with an error is a JSON object.
type entry struct {
	Path   wire.Text     `json:"path"` // the names that lead to it from where the list begins, joined by slashes
	Info   *env.FileInfo `json:"-"`
	Target wire.Text     `json:"-"`
	Error  *wire.Error   `json:"error"`
}

// append appends the entry's line, without its end.
func (e entry) append(b []byte) ([]byte, error) {
	if e.Error != nil {
		encoded, err := json.Marshal(e)
		return append(b, encoded...), err
	}
	i := e.Info
	b = append(strconv.AppendUint(b, uint64(i.Mode), 10), ' ')
	b = append(strconv.AppendInt(b, i.Size, 10), ' ')
	b = append(strconv.AppendInt(b, i.Modified.Unix(), 10), '.')
	b = append(strconv.AppendInt(b, int64(i.Modified.Nanosecond()), 10), ' ')
	b = append(strconv.AppendInt(b, i.Allocated, 10), ' ')
	b = append(strconv.AppendUint(b, i.Links, 10), ' ')
	b, err := appendText(b, e.Path)
	if err == nil && e.Target != "" {
		b, err = appendText(append(b, ' '), e.Target)
	}
	return b, err
}

// appendText appends a text as JSON.
func appendText(b []byte, text wire.Text) ([]byte, error) {
	plain := true
	for i := range len(text) {
		c := text[i]
		plain = plain && c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\'
	}
	if plain {
		return append(append(append(b, '"'), text...), '"'), nil
	}
	encoded, err := json.Marshal(text)
	return append(b, encoded...), err
}

// decodeEntry reads a line.
func decodeEntry(line []byte) (e entry, err error) {
	if bytes.HasPrefix(line, []byte("{")) {
		if err := json.Unmarshal(line, &e); err != nil {
			return e, fmt.Errorf("%w: entry %.200q of a list: %w", wire.Internal, line, err)
		}
		if e.Error == nil {
			return e, fmt.Errorf("%w: entry %.200q of a list has no error", wire.Internal, line)
		}
		return e, nil
	}
	r := fieldReader{rest: line}
	e.Info = &env.FileInfo{
		Mode:     fs.FileMode(r.number(' ', 0, 1<<32-1)),
		Size:     r.number(' ', 0, 1<<63-1),
		Modified: time.Unix(r.number('.', -1<<60, 1<<60), r.number(' ', 0, 1e9-1)),
	}
	e.Info.Allocated = r.number(' ', -1, 1<<63-1)
	e.Info.Links = uint64(r.number(' ', 0, 1<<63-1))
	e.Path = r.text()
	if len(r.rest) > 0 && r.rest[0] == ' ' {
		r.rest = r.rest[1:]
		e.Target = r.text()
	}
	if r.bad || len(r.rest) > 0 {
		return entry{}, fmt.Errorf("%w: entry %.200q of a list", wire.Internal, line)
	}
	return e, nil
}

// fieldReader reads the fields of a line.
type fieldReader struct {
	rest []byte
	bad  bool
}

// number reads a number, and the byte that ends it.
func (r *fieldReader) number(end byte, least, most int64) int64 {
	at := bytes.IndexByte(r.rest, end)
	if at < 0 {
		r.bad = true
		return least
	}
	n, err := strconv.ParseInt(string(r.rest[:at]), 10, 64)
	if err != nil || n < least || n > most {
		r.bad = true
		return least
	}
	r.rest = r.rest[at+1:]
	return n
}

// text reads a text.
func (r *fieldReader) text() (text wire.Text) {
	if len(r.rest) > 1 && r.rest[0] == '"' {
		if end := bytes.IndexByte(r.rest[1:], '"'); end >= 0 && bytes.IndexByte(r.rest[1:1+end], '\\') < 0 && utf8.Valid(r.rest[1:1+end]) {
			text, r.rest = wire.Text(r.rest[1:1+end]), r.rest[2+end:]
			return text
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(r.rest))
	if !utf8.Valid(r.rest) || decoder.Decode(&text) != nil { // JSON would replace what is no UTF-8
		r.bad = true
		return ""
	}
	r.rest = r.rest[decoder.InputOffset():]
	return text
}
