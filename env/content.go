package env

import (
	"context"
	"fmt"
	"iter"
	"math"

	"waldo/pathuri"
)

// ReadFile reads the whole regular file at path. A file of more than limit bytes is ErrTooLarge, and no more than
// that is ever held of it, however large it says to be.
func ReadFile(ctx context.Context, files Files, path pathuri.URI, limit int64) ([]byte, FileInfo, error) {
	if limit < 0 || limit == math.MaxInt64 {
		return nil, FileInfo{}, fmt.Errorf("%w: read %q: at most %d bytes", ErrInvalid, path.Display(), limit)
	}
	r, err := files.Read(ctx, path, ReadOptions{Length: limit + 1})
	if err != nil {
		return nil, FileInfo{}, err
	}
	defer r.Close()
	info := r.Info()
	// A size is what the machine says: it saves growing, and is not trusted with memory.
	data := make([]byte, 0, min(max(info.Size, 0), limit, 1<<20))
	for chunk, err := range r.Chunks() {
		if err != nil {
			return nil, info, err
		}
		if data = append(data, chunk.Data...); int64(len(data)) > limit {
			return nil, info, fmt.Errorf("%w: read %q: it has more than %d bytes", ErrTooLarge, path.Display(), limit)
		}
	}
	return data, info, nil
}

// WriteFile writes data as options say, and commits it.
func WriteFile(ctx context.Context, files Files, path pathuri.URI, data []byte, options WriteOptions) (Written, error) {
	w, err := files.Write(ctx, path, options)
	if err != nil {
		return Written{}, err
	}
	defer w.Close()
	if _, err := w.Write(data); err != nil {
		return Written{}, err
	}
	return w.Commit()
}

// ReadEach is [Files].ReadFiles by as many calls of Read, for the machine itself.
func ReadEach(ctx context.Context, files Files, paths []pathuri.URI, limit int64) iter.Seq2[FileContent, error] {
	return func(yield func(FileContent, error) bool) {
		for _, path := range paths {
			if ctx.Err() != nil {
				yield(FileContent{}, context.Cause(ctx))
				return
			}
			data, info, err := ReadFile(ctx, files, path, limit)
			content := FileContent{Path: path, Data: data, Info: info, Err: err}
			content.Info.Version = ""
			if err != nil {
				content = FileContent{Path: path, Err: err}
			}
			if !yield(content, nil) {
				return
			}
		}
	}
}

// WriteEach is [Files].WriteFiles by as many calls of Write, for the machine itself.
func WriteEach(ctx context.Context, files Files, contents []FileContent) (errs []error, err error) {
	errs = make([]error, len(contents))
	for i, file := range contents {
		if ctx.Err() != nil {
			return errs, context.Cause(ctx)
		}
		if mode := file.Options.Mode; mode != "" && mode != Replace {
			errs[i] = fmt.Errorf("%w: write %q among others: mode %q, which cannot be done again", ErrInvalid, file.Path.Display(), mode)
			continue
		}
		_, errs[i] = WriteFile(ctx, files, file.Path, file.Data, file.Options)
	}
	return errs, nil
}
