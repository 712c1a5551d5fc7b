package envtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// FilesMachine is what [RunFiles] works with.
type FilesMachine struct {
	Files env.Files
	// Watcher may be nil: its cases are skipped.
	Watcher env.Watcher
	// Describer may be nil.
	Describer env.Describer
	// Scratch is a directory on the machine that is empty and may be filled. It is left to the caller to remove it.
	Scratch pathuri.URI
	// Here says that the machine is the one the tests run on, for the cases that need FIFOs and the like.
	Here bool
	// Cut says that the way there is cut now and then: a file that changes may then be ErrChanged.
	Cut bool
	// Expendable says that nothing is lost if a call destroys the machine's files.
	Expendable bool
}

// RunFiles runs the suite of files and watches. open gives what one test works with, and ends it with the test.
//
// Nothing but the contract is used, so the machine may be anywhere, of any convention and faked; only what
// [FilesMachine.Here] asks for looks at it from outside.
func RunFiles(t *testing.T, open func(t *testing.T) FilesMachine) {
	for _, group := range []struct {
		name  string
		tests []filesTest
	}{
		{"describe", describeTests}, {"stat", statTests}, {"list", listTests}, {"walk", walkTests}, {"read", readTests},
		{"write", writeTests}, {"many", manyTests}, {"change", changeTests}, {"copy", copyTests}, {"links", linkTests}, {"names", nameTests},
		{"within", withinTests}, {"context", contextTests}, {"watch", watchTests}, {"here", hereTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					// The machine is slow or its network faulty: only a fault reaches this.
					ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
					defer cancel()
					m := open(t)
					if m.Watcher == nil && group.name == "watch" {
						t.Skip("no watcher")
					}
					if !m.Here && group.name == "here" {
						t.Skip("the machine is not this one")
					}
					test.run(&filesRig{rig: rig{T: t, ctx: ctx}, FilesMachine: m, files: m.Files, dir: m.Scratch})
				})
			}
		})
	}
}

type filesTest struct {
	name string
	run  func(*filesRig)
}

// A filesRig is one test with its machine.
type filesRig struct {
	rig
	FilesMachine
	files env.Files
	dir   pathuri.URI
}

func (r *filesRig) posix() bool { return r.dir.Convention() == pathuri.Posix }

// at is the path that leads from the scratch directory over names.
func (r *filesRig) at(names ...string) pathuri.URI {
	r.Helper()
	return r.under(r.dir, names...)
}

func (r *filesRig) under(uri pathuri.URI, names ...string) pathuri.URI {
	r.Helper()
	for _, name := range names {
		next, err := uri.JoinName(name)
		if err != nil {
			r.Fatal(err)
		}
		uri = next
	}
	return uri
}

func (r *filesRig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// put makes path be a file with this content, and what is missing above it.
func (r *filesRig) put(path pathuri.URI, content string) env.Written {
	r.Helper()
	return r.putWith(path, content, env.WriteOptions{})
}

func (r *filesRig) putWith(path pathuri.URI, content string, options env.WriteOptions) env.Written {
	r.Helper()
	options.Parents, options.Unsynced = true, true
	written, err := env.WriteFile(r.ctx, r.files, path, []byte(content), options)
	if err != nil {
		r.Fatalf("write %q: %v", path, err)
	}
	return written
}

func (r *filesRig) mkdir(path pathuri.URI) pathuri.URI {
	r.Helper()
	if err := r.files.Mkdir(r.ctx, path, env.MkdirOptions{Parents: true}); err != nil {
		r.Fatalf("mkdir %q: %v", path, err)
	}
	return path
}

// symlink makes a link, or skips the test where there are none.
func (r *filesRig) symlink(target string, path pathuri.URI) pathuri.URI {
	r.Helper()
	err := r.files.Symlink(r.ctx, target, path)
	if !r.posix() && err != nil {
		r.Skipf("no symbolic links here: %v", err)
	}
	r.must(err)
	return path
}

// hardlink makes another name, or skips the test where there is no such thing.
func (r *filesRig) hardlink(existing, path pathuri.URI) pathuri.URI {
	r.Helper()
	err := r.files.Link(r.ctx, existing, path)
	if errors.Is(err, errors.ErrUnsupported) {
		r.Skipf("no hard links here: %v", err)
	}
	r.must(err)
	return path
}

func (r *filesRig) native(path pathuri.URI) string {
	r.Helper()
	text, err := path.Native()
	r.must(err)
	return text
}

func (r *filesRig) stat(path pathuri.URI) env.FileInfo {
	r.Helper()
	info, err := r.files.Stat(r.ctx, path, true)
	if err != nil {
		r.Fatalf("stat %q: %v", path, err)
	}
	return info
}

func (r *filesRig) lstat(path pathuri.URI) env.FileInfo {
	r.Helper()
	info, err := r.files.Stat(r.ctx, path, false)
	if err != nil {
		r.Fatalf("lstat %q: %v", path, err)
	}
	return info
}

// wantContent checks what the file at path holds.
func (r *filesRig) wantContent(path pathuri.URI, want string) {
	r.Helper()
	got, _, err := env.ReadFile(r.ctx, r.files, path, 1<<30)
	if err != nil {
		r.Errorf("read %q: %v", path, err)
		return
	}
	if string(got) != want {
		r.Errorf("%q holds %s, want %s", path, shortened(got), shortened([]byte(want)))
	}
}

func shortened(b []byte) string {
	const most = 60
	if len(b) <= most {
		return strings.TrimSpace(string(appendQuoted(nil, b)))
	}
	return string(appendQuoted(nil, b[:most])) + "…"
}

func appendQuoted(to, b []byte) []byte {
	const hex = "0123456789abcdef"
	to = append(to, '"')
	for _, c := range b {
		if c < ' ' || c >= 0x7f {
			to = append(to, '\\', 'x', hex[c>>4], hex[c&15])
		} else {
			to = append(to, c)
		}
	}
	return append(to, '"')
}

// entries reads a list or walk to its end.
func entries(steps iter.Seq2[env.Entry, error]) (all []env.Entry, err error) {
	for entry, err := range steps {
		if err != nil {
			return all, err
		}
		all = append(all, entry)
	}
	return all, nil
}

// tree tells the names below root, links with their target, directories with a slash, files with their content.
func (r *filesRig) tree(root pathuri.URI) []string {
	r.Helper()
	all, err := entries(r.files.Walk(r.ctx, root, env.WalkOptions{}))
	if err != nil {
		r.Fatalf("walk %q: %v", root, err)
	}
	var names []string
	for _, entry := range all {
		name, ok := root.Rel(entry.Path)
		if !ok {
			r.Fatalf("a walk of %q tells %q", root, entry.Path)
		}
		switch {
		case name == "":
			continue
		case entry.Err != nil:
			name += "!"
		case entry.Info.Mode.IsDir():
			name += "/"
		case entry.Info.Mode.Type() == fs.ModeSymlink:
			name += "→" + entry.Target
		case entry.Info.Mode.IsRegular() && entry.Info.Size < 100:
			content, _, err := env.ReadFile(r.ctx, r.files, entry.Path, 100)
			r.must(err)
			name += "=" + string(content)
		}
		names = append(names, name)
	}
	return names
}

func (r *filesRig) wantTree(root pathuri.URI, want ...string) {
	r.Helper()
	if got := r.tree(root); !slices.Equal(got, want) {
		r.Errorf("below %q there is %q, want %q", root, got, want)
	}
}

// wantUnchanged checks that what change does is refused and changes nothing in the scratch directory.
func (r *filesRig) wantUnchanged(what string, change func() error, wants ...error) {
	r.Helper()
	before := r.tree(r.dir)
	r.wantError(what, change(), wants...)
	if after := r.tree(r.dir); !slices.Equal(before, after) {
		r.Errorf("%s was refused and made %q of %q", what, after, before)
	}
}

// ignoresModes tells whether the user that the machine works as is above permission bits, or they mean nothing there.
func (r *filesRig) ignoresModes() bool {
	r.Helper()
	if !r.posix() {
		return true
	}
	probe, none, all := r.mkdir(r.at("probe")), fs.FileMode(0o555), fs.FileMode(0o755)
	defer func() { r.must(r.files.Remove(r.ctx, probe, env.RemoveOptions{Recursive: true})) }()
	r.must(r.files.SetAttributes(r.ctx, probe, env.Attributes{Permissions: &none}))
	err := r.files.Mkdir(r.ctx, r.under(probe, "d"), env.MkdirOptions{})
	r.must(r.files.SetAttributes(r.ctx, probe, env.Attributes{Permissions: &all}))
	return err == nil
}

// content is n bytes that do not repeat in any short distance, made from seed.
func content(seed uint64, n int) []byte {
	b := make([]byte, 0, n+8)
	for x := seed*0x9e3779b97f4a7c15 + 1; len(b) < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24), byte(x>>32), byte(x>>40), byte(x>>48), byte(x>>56))
	}
	return b[:n]
}

// read reads a file with its holes, and checks that the steps fit together.
func (r *filesRig) read(path pathuri.URI, options env.ReadOptions) (data []byte, holes int64, info env.FileInfo, err error) {
	r.Helper()
	reader, err := r.files.Read(r.ctx, path, options)
	if err != nil {
		return nil, 0, info, err
	}
	defer func() {
		if err := errors.Join(reader.Close(), reader.Close()); err != nil {
			r.Errorf("close: %v", err)
		}
	}()
	var buffer bytes.Buffer
	at := options.Offset
	for chunk, err := range reader.Chunks() {
		if err != nil {
			return buffer.Bytes(), holes, reader.Info(), err
		}
		r.checkChunk(chunk, at, options)
		at += int64(len(chunk.Data)) + chunk.Hole
		holes += chunk.Hole
		buffer.Write(chunk.Data)
		if at-options.Offset > 64<<20 {
			r.Fatalf("%q has no end", path)
		}
		if chunk.Hole > 0 {
			buffer.Write(make([]byte, chunk.Hole))
		}
	}
	return buffer.Bytes(), holes, reader.Info(), nil
}

func (r *filesRig) checkChunk(chunk env.FileChunk, at int64, options env.ReadOptions) {
	r.Helper()
	if chunk.Offset != at {
		r.Fatalf("a chunk at offset %d follows the end at %d", chunk.Offset, at)
	}
	if (len(chunk.Data) == 0) == (chunk.Hole == 0) || chunk.Hole < 0 {
		r.Fatalf("a chunk has %d bytes and a hole of %d", len(chunk.Data), chunk.Hole)
	}
	if chunk.Hole > 0 && !options.Holes {
		r.Fatal("a hole that was not asked for")
	}
}

// parallel calls each for 0 to n-1, some at a time.
func (r *filesRig) parallel(n int, each func(i int) error) {
	r.Helper()
	var group sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := each(i); err != nil {
					r.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

func numbered(i int) string { return fmt.Sprintf("n%04d", i) }

// mode is permission bits for options.
func mode(bits fs.FileMode) *fs.FileMode { return &bits }

// sameTime tells whether a machine that keeps times less finely can have kept want as got.
func sameTime(got, want time.Time) bool { return got.Sub(want).Abs() < time.Microsecond }

// sameInfo tells whether two descriptions are of the same file in the same state. What it takes on the disk may
// change meanwhile.
func sameInfo(a, b env.FileInfo) bool {
	return a.Size == b.Size && a.Mode == b.Mode && a.Modified.Equal(b.Modified) && a.Links == b.Links && a.Version == b.Version
}
