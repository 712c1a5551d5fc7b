package fake

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

const (
	dirMode  = fs.ModeDir
	linkMode = fs.ModeSymlink
)

// node is a file, a directory or a link.
type node struct {
	id       uint64
	mode     fs.FileMode
	modified time.Time
	changes  uint64 // of the content, for versions
	names    uint64 // how many it has

	content content           // of a file
	target  string            // of a link
	entries map[string]*entry // of a directory, by folded name
	parent  *node             // of a directory; nil for a root and for what is removed
	name    string            // of a directory in its parent
}

type entry struct {
	name string
	node *node
}

// newNode is called with the lock held, but by New.
func (m *Machine) newNode(mode fs.FileMode) *node {
	m.lastID++
	n := &node{id: m.lastID, mode: mode, modified: now()}
	if mode.IsDir() {
		n.entries = map[string]*entry{}
	}
	return n
}

// fold is what two names have in common that are the same to the machine.
func (m *Machine) fold(name string) string {
	if m.convention == pathuri.Windows {
		return strings.ToLower(name)
	}
	return name
}

// add makes n an entry of dir, in place of what is there.
func (m *Machine) add(dir *node, name string, n *node) {
	m.drop(dir, name)
	dir.entries[m.fold(name)] = &entry{name, n}
	dir.modified = now()
	n.names++
	if n.mode.IsDir() {
		n.parent, n.name = dir, name
	}
}

// drop takes an entry out of dir.
func (m *Machine) drop(dir *node, name string) {
	e := dir.entries[m.fold(name)]
	if e == nil {
		return
	}
	delete(dir.entries, m.fold(name))
	dir.modified = now()
	e.node.names--
	if e.node.mode.IsDir() {
		e.node.parent = nil
	}
}

// sorted are the entries of a directory by name.
func (n *node) sorted() []*entry {
	return slices.SortedFunc(maps.Values(n.entries), func(a, b *entry) int { return strings.Compare(a.name, b.name) })
}

// below tells whether the directory n is dir or somewhere in it.
func (n *node) below(dir *node) bool {
	for ; n != nil; n = n.parent {
		if n == dir {
			return true
		}
	}
	return false
}

// changed notes that a file has other content.
func (n *node) changed() {
	n.changes++
	n.modified = now()
}

func (n *node) info(version bool) env.FileInfo {
	info := env.FileInfo{Mode: n.mode, Modified: n.modified, Links: n.names}
	switch {
	case n.mode.IsRegular():
		info.Size, info.Allocated = n.content.size, n.content.allocated()
	case n.mode.IsDir():
		info.Links = 1
	default:
		info.Size = int64(len(n.target))
	}
	if version {
		info.Version = fmt.Sprintf("%d.%d.%d", n.id, n.changes, n.modified.UnixNano())
	}
	return info
}

// content is bytes with holes.
type content struct {
	size  int64
	pages map[int64]*[pageSize]byte
}

const pageSize = 4096

func (c *content) allocated() int64 { return int64(len(c.pages)) * pageSize }

func (c *content) clone() content {
	pages := make(map[int64]*[pageSize]byte, len(c.pages))
	for i, page := range c.pages {
		copied := *page
		pages[i] = &copied
	}
	return content{c.size, pages}
}

// write puts p at offset.
func (c *content) write(p []byte, offset int64) {
	if c.pages == nil {
		c.pages = map[int64]*[pageSize]byte{}
	}
	for len(p) > 0 {
		page := c.pages[offset/pageSize]
		if page == nil {
			page = new([pageSize]byte)
			c.pages[offset/pageSize] = page
		}
		n := copy(page[offset%pageSize:], p)
		p, offset = p[n:], offset+int64(n)
	}
	c.size = max(c.size, offset)
}

// skip makes n bytes at offset read as zeros.
func (c *content) skip(n, offset int64) {
	end := offset + n
	c.zero(offset, end)
	c.size = max(c.size, end)
}

// truncate makes the size be size.
func (c *content) truncate(size int64) {
	if size < c.size {
		c.zero(size, c.size)
	}
	c.size = size
}

// zero drops what lies from begin to end.
func (c *content) zero(begin, end int64) {
	for i, page := range c.pages {
		from, to := max(begin, i*pageSize), min(end, (i+1)*pageSize)
		switch {
		case from >= to:
		case to-from == pageSize:
			delete(c.pages, i)
		default:
			clear(page[from-i*pageSize : to-i*pageSize])
		}
	}
}

// chunk is the bytes or the hole at offset, of limit bytes at most. It is empty at the end.
func (c *content) chunk(offset, limit int64, holes bool) (data []byte, hole int64) {
	limit = min(limit, c.size-offset)
	if limit <= 0 {
		return nil, 0
	}
	if holes && c.pages[offset/pageSize] == nil {
		end := offset + limit
		for i := range c.pages {
			if begin := i * pageSize; begin > offset {
				end = min(end, begin)
			}
		}
		return nil, end - offset
	}
	data = make([]byte, min(limit, 64<<10))
	for done := 0; done < len(data); {
		at := offset + int64(done)
		n := int(min(pageSize-at%pageSize, int64(len(data)-done)))
		if page := c.pages[at/pageSize]; page != nil {
			copy(data[done:done+n], page[at%pageSize:])
		} else if holes {
			return data[:done], 0
		}
		done += n
	}
	return data, 0
}
