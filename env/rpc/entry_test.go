package rpc

import (
	"errors"
	"io/fs"
	"reflect"
	"testing"
	"time"

	"waldo/env"
	"waldo/wire"
)

func TestEntryLines(t *testing.T) {
	info := func(mode fs.FileMode, size int64, modified time.Time, allocated int64, links uint64) *env.FileInfo {
		return &env.FileInfo{Mode: mode, Size: size, Modified: modified, Allocated: allocated, Links: links}
	}
	for _, test := range []struct {
		entry entry
		line  string
	}{
		{entry{Path: "a/b", Info: info(0o644, 5, time.Unix(1700000000, 7), 4096, 1)}, `420 5 1700000000.7 4096 1 "a/b"`},
		{entry{Path: "", Info: info(fs.ModeDir|0o755, 0, time.Unix(0, 0), -1, 0)}, `2147484141 0 0.0 -1 0 ""`},
		{entry{Path: "l", Target: "a b", Info: info(fs.ModeSymlink|0o777, 3, time.Unix(-1, 5e8), 0, 1)}, `134218239 3 -1.500000000 0 1 "l" "a b"`},
		{entry{Path: "a\"\\\n\x7fé", Info: info(0, 1<<62, time.Unix(1, 0), 0, 1)}, "0 4611686018427387904 1.0 0 1 \"a\\\"\\\\\\n\x7fé\""},
		{entry{Path: "a\xff", Target: "\xfe", Info: info(0, 0, time.Unix(1, 0), 0, 1)}, `0 0 1.0 0 1 {"b64":"Yf8="} {"b64":"/g=="}`},
		{entry{Path: "x", Error: &wire.Error{Code: wire.Permission, Message: "no"}}, `{"path":"x","error":{"code":"permission","message":"no"}}`},
	} {
		got, err := test.entry.append(nil)
		if err != nil || string(got) != test.line {
			t.Errorf("%+v is %s, %v; want %s", test.entry, got, err, test.line)
		}
		again, err := decodeEntry(got)
		if err != nil || !reflect.DeepEqual(again, test.entry) {
			t.Errorf("%s is read as %+v, %v", got, again, err)
		}
	}
	for _, line := range []string{
		"", "420", `420 5 1.0 0 1`, `420 5 1.0 0 1 a`, `420 5 1.0 0 1 "a`, `420 5 1.0 0 1 "a" `, `420 5 1.0 0 1 "a" "b" "c"`, `420 5 1.0 0 1 "a"x`,
		`-1 5 1.0 0 1 "a"`, `4294967296 5 1.0 0 1 "a"`, `420 -5 1.0 0 1 "a"`, `420 5 1.1000000000 0 1 "a"`, `420 5 1 0 1 "a"`, `420 5 1.0 -2 1 "a"`,
		`420  5 1.0 0 1 "a"`, `{}`, `{"path":"x"}`, `{"path":1,"error":{}}`, "420 5 1.0 0 1 \"a\xff\"",
	} {
		if e, err := decodeEntry([]byte(line)); !errors.Is(err, wire.Internal) {
			t.Errorf("%q is read as %+v, %v", line, e, err)
		}
	}
}

// FuzzEntry: what is read can be written and is read as the same.
func FuzzEntry(f *testing.F) {
	f.Add([]byte(`420 5 1700000000.7 4096 1 "a/b"`))
	f.Add([]byte(`420 5 -1700000000.7 -1 1 {"b64":"Yf8="} "x"`))
	f.Add([]byte(`{"path":"x","error":{"code":"permission"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := decodeEntry(line)
		if err != nil {
			return
		}
		written, err := e.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeEntry(written)
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%q, written %q, is read as %+v, %v; was %+v", line, written, again, err, e)
		}
	})
}

// BenchmarkEntry is what a large directory costs each end.
func BenchmarkEntry(b *testing.B) {
	e := entry{Path: "directory/entry-012345.txt", Info: &env.FileInfo{Mode: 0o644, Size: 1234, Modified: time.Now(), Allocated: 4096, Links: 1}}
	line, _ := e.append(nil)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for buffer := []byte(nil); b.Loop(); {
			buffer, _ = e.append(buffer[:0])
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodeEntry(line); err != nil {
				b.Fatal(err)
			}
		}
	})
}
