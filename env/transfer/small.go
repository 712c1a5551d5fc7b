package transfer

import (
	"context"
	"errors"
	"fmt"

	"waldo/env"
	"waldo/pathuri"
)

// Small files go many in one call: a call for each costs more than the file.
const (
	smallFile  = 64 << 10 // bytes at most
	batchFiles = 128
	batchBytes = 512 << 10
)

// small is a small file of a tree.
type small struct {
	from, to pathuri.URI
	size     int64 // as it was found
	in       *directory
}

// batch is small files that are copied together.
type batch struct {
	files []small
	bytes int64
}

// isSmall tells whether a file may be part of a batch. One with holes is not: they would be filled.
func isSmall(info env.FileInfo) bool {
	return info.Size <= smallFile && (info.Allocated < 0 || info.Allocated >= info.Size)
}

// add adds a file to the batch under way, which begins to be copied when it is full.
func (c *copying) add(ctx context.Context, file small) {
	c.batch.files = append(c.batch.files, file)
	c.batch.bytes += file.size
	if len(c.batch.files) >= batchFiles || c.batch.bytes >= batchBytes {
		c.send(ctx)
	}
}

// send begins to copy the batch under way.
func (c *copying) send(ctx context.Context) {
	files, bytes := c.batch.files, c.batch.bytes
	c.batch = batch{}
	if len(files) > 0 {
		c.task(ctx, bytes, func() error { return c.copySmall(ctx, files) })
	}
}

// copySmall copies a batch.
func (c *copying) copySmall(ctx context.Context, files []small) error {
	var ready []small
	var paths []pathuri.URI
	for _, file := range files {
		if file.in.wait(ctx) { // else its error has been told
			ready, paths = append(ready, file), append(paths, file.from)
		}
	}
	contents := make([]env.FileContent, 0, len(ready))
	var sent, grown []small
	for content, err := range c.from.Files.ReadFiles(ctx, paths, 2*smallFile) {
		if err != nil {
			return fmt.Errorf("read %q and what comes with it: %w", files[0].from.Display(), err)
		}
		file := ready[0]
		ready = ready[1:]
		switch {
		case content.Err == nil:
			contents = append(contents, env.FileContent{Path: file.to, Data: content.Data, Options: c.writeOptions(content.Info)})
			sent = append(sent, file)
		case errors.Is(content.Err, env.ErrTooLarge):
			grown = append(grown, file)
		default:
			c.fail(content.Err)
		}
	}
	errs, err := c.to.Files.WriteFiles(ctx, contents)
	if err != nil {
		return fmt.Errorf("write %q and what comes with it: %w", files[0].to.Display(), err)
	}
	for i, err := range errs {
		if err != nil {
			c.fail(err)
			continue
		}
		n := int64(len(contents[i].Data))
		c.progress.files.Add(1)
		c.progress.bytes.Add(n)
		c.progress.foundBytes.Add(n - sent[i].size)
	}
	for _, file := range grown { // since it was found
		c.fail(c.file(ctx, file.from, file.to, env.FileInfo{Size: file.size, Allocated: -1}, file.in))
	}
	return nil
}

// writeOptions say how a copy of a file of this kind in a tree is written.
func (c *copying) writeOptions(info env.FileInfo) env.WriteOptions {
	options := env.WriteOptions{Unsynced: true, KeepPermissions: !c.preserve}
	if c.sameKind() {
		bits := c.permissions(info.Mode)
		options.Permissions = &bits
	}
	if c.preserve {
		options.Modified = info.Modified
	}
	return options
}
