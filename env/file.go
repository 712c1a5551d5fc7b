package env

import (
	"context"
	"io"
	"io/fs"
	"iter"
	"time"

	"waldo/pathuri"
)

// Files works on the machine's file systems.
//
// Paths are resolved by the machine, which follows symbolic links in all but the last name; whether the last one
// is followed each method says. Nothing is looked at first and opened later: what is judged is what is used. A
// call that only regular files can answer refuses a FIFO, a socket or a device at once with ErrNotRegular, and
// a directory with ErrIsDirectory. Names keep their bytes.
//
// Errors are those of io/fs where there is one; ErrInvalid for a path that can never be right, ErrNotRegular,
// ErrIsDirectory, ErrNotDirectory, ErrNotEmpty, ErrChanged, ErrTooLarge, ErrLimit.
type Files interface {
	// Within is the same files confined to the directory root: no call leaves it, whatever links lie on the way
	// and whatever is swapped meanwhile. A path outside it, and a link that leads out, is fs.ErrPermission.
	Within(root pathuri.URI) Files

	// Stat describes the file at path; with follow a symbolic link is followed.
	Stat(ctx context.Context, path pathuri.URI, follow bool) (FileInfo, error)
	// ReadLink returns the target of the symbolic link at path, as it is written there. ErrInvalid if it is none.
	ReadLink(ctx context.Context, path pathuri.URI) (string, error)
	// Canonicalize returns the path of the file at path without links and dots, as the machine spells it.
	Canonicalize(ctx context.Context, path pathuri.URI) (pathuri.URI, error)
	// List yields what the directory at path (followed) holds, in no order. What vanishes meanwhile is left
	// out; an entry whose description cannot be had is yielded with its Err. When a step yields an error the
	// sequence has ended.
	List(ctx context.Context, path pathuri.URI) iter.Seq2[Entry, error]
	// Walk yields root and what is below it, a directory before its entries and the entries of a directory by
	// name. Links are told, not followed, but for root itself. A directory that cannot be read is yielded again
	// with its Err. When a budget bites the last step yields ErrLimit.
	Walk(ctx context.Context, root pathuri.URI, options WalkOptions) iter.Seq2[Entry, error]

	// Read opens the regular file at path (followed). ctx covers the whole transfer.
	Read(ctx context.Context, path pathuri.URI, options ReadOptions) (FileReader, error)
	// Write begins to write the file at path (followed, so that a link stays one). ctx covers the whole
	// transfer. Errors may come with a later call on the writer.
	Write(ctx context.Context, path pathuri.URI, options WriteOptions) (FileWriter, error)
	// ReadFiles reads small files whole, many in one call: it yields each of paths in order, with what is wrong with
	// it as its Err; more than limit bytes are ErrTooLarge. When a step yields an error the sequence has ended.
	ReadFiles(ctx context.Context, paths []pathuri.URI, limit int64) iter.Seq2[FileContent, error]
	// WriteFiles writes small files, many in one call, each as Write with Replace does: errs[i] is what is wrong with
	// files[i]. All of it may be done again after a cut.
	WriteFiles(ctx context.Context, files []FileContent) (errs []error, err error)

	// Mkdir makes a directory. fs.ErrExist if there is something already; with Parents a directory is no error.
	Mkdir(ctx context.Context, path pathuri.URI, options MkdirOptions) error
	// Remove removes the file, link or empty directory at path; a link is not followed. A file system's root, a
	// mount point and the root of Within are refused, before anything is removed.
	Remove(ctx context.Context, path pathuri.URI, options RemoveOptions) error
	// Rename renames from to to, and replaces what a file can replace there unless options say otherwise.
	Rename(ctx context.Context, from, to pathuri.URI, options RenameOptions) error
	// Copy copies the file, link or tree at from to to on this machine: contents with their holes, permission
	// bits, times, links as links. It refuses to copy onto itself or into itself, before anything is changed.
	// What is neither file, link nor directory is left out and told in the error, behind the rest.
	Copy(ctx context.Context, from, to pathuri.URI, options CopyOptions) error
	// Symlink makes a symbolic link at path with this target, which is kept as it is.
	Symlink(ctx context.Context, target string, path pathuri.URI) error
	// Link makes path another name of the file existing; a link there is not followed.
	Link(ctx context.Context, existing, path pathuri.URI) error
	// SetAttributes changes what options name of the file at path (followed).
	SetAttributes(ctx context.Context, path pathuri.URI, attributes Attributes) error
	// Sync returns when all that was written to the file system that path lies on is on its disk.
	Sync(ctx context.Context, path pathuri.URI) error
}

// FileInfo describes a file.
type FileInfo struct {
	Size     int64       `json:"size"`     // bytes; of a link, of its target's text
	Mode     fs.FileMode `json:"mode"`     // type and permission bits, as io/fs has them
	Modified time.Time   `json:"modified"` // of the content
	// Allocated is how many bytes the file takes on its disk: less than Size where it has holes. -1: not known.
	Allocated int64 `json:"allocated"`
	// Links is how many names the file has; 0 where that is not known.
	Links uint64 `json:"links,omitempty"`
	// Version changes when the content of this path does, as far as device, file number, size and time show it.
	// Stat and what opens a file set it, lists do not.
	Version string `json:"version,omitempty"`
}

// Entry is a file found in a directory.
type Entry struct {
	Path pathuri.URI
	// Info is the entry's own: links are not followed. Zero where Err is set.
	Info FileInfo
	// Target is what a symbolic link says.
	Target string
	// Err is why the entry could not be described, or why a directory's entries are not (all) there.
	Err error
}

// WalkOptions bound a walk; zero means no bound.
type WalkOptions struct {
	MaxDepth   int           // levels below the root; entries of the root are at 1
	MaxEntries int           // yielded
	MaxTime    time.Duration // from the first step on
}

// ReadOptions say what is to be read.
type ReadOptions struct {
	Offset int64 // of the first byte wanted; beyond the end nothing is read
	Length int64 // bytes wanted at most; 0 is all there are until the end, as the file grows or shrinks
	// Version, unless empty, is the file's version as it was before; a file that has another is ErrChanged.
	Version string
	// Holes asks for holes to be told instead of read as zeros.
	Holes bool
}

// FileReader is a file being read.
type FileReader interface {
	// Info describes the file as it was when it was opened.
	Info() FileInfo
	// Chunks yields the content in order; a chunk's bytes are valid until the next step. Breaking off and
	// ranging again goes on behind the last chunk. When a step yields an error the sequence has ended. A file
	// that changed while the transfer was cut is ErrChanged; nothing is ever spliced.
	Chunks() iter.Seq2[FileChunk, error]
	// Close ends the transfer. It is idempotent.
	Close() error
}

// FileChunk is one step of a file's content: bytes, or a hole.
type FileChunk struct {
	Offset int64 // of the first byte, in the file
	Data   []byte
	Hole   int64 // so many zeros, which the file has no blocks for; Data is then empty
	// Framed is Data with room for, or with, its wire frame header in front, when the source has it so.
	Framed []byte
}

// WriteMode says what becomes of the file that is there.
type WriteMode string

// The modes of writing.
const (
	// Replace gives the file new content, all at once when it is committed; before that, and if that never
	// comes, the old one stays. Permission bits, owner and further names are kept. Where that is not possible
	// without changing more than the content, it is written in place, and Written says so. It is the default.
	Replace WriteMode = "replace"
	// Exclusive is Replace of nothing: fs.ErrExist if there is something, at commit too.
	Exclusive WriteMode = "exclusive"
	// Append adds to the end of the file, which is made if there is none. What was taken stays without a commit.
	Append WriteMode = "append"
	// Patch overwrites from Offset on in the file, which must exist. What was taken stays without a commit.
	Patch WriteMode = "patch"
)

// WriteOptions say how a file is written.
type WriteOptions struct {
	Mode   WriteMode // "" is Replace
	Offset int64     // for Patch
	// Permissions are the permission bits the file gets; nil keeps those that it has, and gives a new one what
	// the machine gives new files.
	Permissions *fs.FileMode
	// KeepPermissions leaves a file that is there its own: Permissions are then for a new one.
	KeepPermissions bool
	// Modified is the time the file gets as that of its change; zero: now.
	Modified time.Time
	// Parents makes directories that are missing above it.
	Parents bool
	// Unsynced leaves it to the machine when the content reaches the disk; see Files.Sync. Without it Commit
	// waits for that.
	Unsynced bool
}

// FileWriter is a file being written. There is one caller of it at a time.
type FileWriter interface {
	// Write takes all of p, or fails.
	io.Writer
	// Skip leaves a hole of n bytes: they read as zeros.
	Skip(n int64) error
	// Taken is how many bytes, holes among them, the machine has taken so far. It may be called at any time.
	Taken() int64
	// Commit makes it be: when it returns, the file has what was written.
	Commit() (Written, error)
	// Close gives up what was not committed, and leaves nothing behind of it. It is idempotent.
	Close() error
}

// Written tells what was written.
type Written struct {
	Info FileInfo `json:"info"`
	// InPlace says of a replaced file that it was written in place, so that a reader could see a part of it.
	InPlace bool `json:"inPlace,omitempty"`
}

// FileContent is a small file with what is in it.
type FileContent struct {
	Path    pathuri.URI
	Data    []byte
	Info    FileInfo     // as it was read, without Version
	Options WriteOptions // as it is to be written; Mode is Replace
	Err     error        // why it was not read
}

// MkdirOptions say how a directory is made.
type MkdirOptions struct {
	Parents bool // make what is missing above it too
	// Permissions are its permission bits; nil: what the machine gives new directories.
	Permissions *fs.FileMode
}

// RemoveOptions say what is removed.
type RemoveOptions struct {
	Recursive bool // a directory with all that is in it
	Force     bool // what is missing is no error
}

// RenameOptions say how a file is renamed.
type RenameOptions struct {
	Exclusive bool // fs.ErrExist if there is something at the new name
}

// CopyOptions say how a file is copied.
type CopyOptions struct {
	Recursive bool // a directory with all that is in it; one that exists is merged into
	Exclusive bool // fs.ErrExist if there is something at the new name
}

// Attributes are what SetAttributes changes; nil leaves as it is.
type Attributes struct {
	Permissions *fs.FileMode `json:"permissions,omitempty"`
	Accessed    *time.Time   `json:"accessed,omitempty"`
	Modified    *time.Time   `json:"modified,omitempty"`
	Size        *int64       `json:"size,omitempty"` // cut off there, or filled up with zeros; regular files only
}
