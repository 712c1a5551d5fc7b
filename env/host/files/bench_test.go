package files

import (
	"io/fs"
	"os"
	"strconv"
	"testing"

	"waldo/env"
)

func BenchmarkStat(b *testing.B) {
	w := newWorld(b)
	w.put("a/b/c/file", "content")
	b.Run("os", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := os.Stat(w.native("a/b/c/file")); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, f := range map[string]*Files{"free": w.Files, "confined": w.Confined(w.uri("."))} {
		b.Run(name, func(b *testing.B) {
			path := w.uri("a/b/c/file")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Stat(b.Context(), path, true); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSmallRead(b *testing.B) {
	w := newWorld(b)
	w.put("a/b/c/file", "content")
	b.Run("os", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := os.ReadFile(w.native("a/b/c/file")); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, f := range map[string]*Files{"free": w.Files, "confined": w.Confined(w.uri("."))} {
		b.Run(name, func(b *testing.B) {
			path := w.uri("a/b/c/file")
			b.ReportAllocs()
			for b.Loop() {
				r, err := f.Read(b.Context(), path, env.ReadOptions{})
				if err != nil {
					b.Fatal(err)
				}
				for _, err := range r.Chunks() {
					if err != nil {
						b.Fatal(err)
					}
				}
				r.Close() //nolint:errcheck // only read
			}
		})
	}
}

func BenchmarkSmallWrite(b *testing.B) {
	w := newWorld(b)
	w.put("a/b/c/file", "content")
	b.Run("os", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := os.WriteFile(w.native("a/b/c/file"), []byte("content"), 0o644); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, f := range map[string]*Files{"free": w.Files, "confined": w.Confined(w.uri("."))} {
		b.Run(name, func(b *testing.B) {
			path := w.uri("a/b/c/file")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := write(f, b.Context(), path, "content", env.WriteOptions{Unsynced: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNewFile is a small file of a tree that is copied.
func BenchmarkNewFile(b *testing.B) {
	w := newWorld(b)
	w.mkdir("a/b/c")
	f, bits := w.Confined(w.uri(".")), fs.FileMode(0o644)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		path := w.uri("a/b/c/" + strconv.Itoa(i))
		if _, err := write(f, b.Context(), path, "content", env.WriteOptions{Permissions: &bits, Unsynced: true}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLongRead(b *testing.B) {
	w := newWorld(b)
	w.put("file", string(make([]byte, 64<<20)))
	b.SetBytes(64 << 20)
	for b.Loop() {
		r, err := w.Read(b.Context(), w.uri("file"), env.ReadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for _, err := range r.Chunks() {
			if err != nil {
				b.Fatal(err)
			}
		}
		r.Close() //nolint:errcheck // only read
	}
}
