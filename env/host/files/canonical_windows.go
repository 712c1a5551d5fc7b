package files

import (
	"path/filepath"

	"waldo/pathuri"
)

func (f *Files) canonicalize(path pathuri.URI, text string) (pathuri.URI, error) {
	if f.confined() {
		return f.canonicalBelow(path, text)
	}
	found, err := filepath.EvalSymlinks(text)
	if err != nil {
		return pathuri.URI{}, err
	}
	return pathuri.FromNative(found, convention)
}

// canonicalBelow is only about names: what is at them is looked up anew by whoever uses them.
func (f *Files) canonicalBelow(path pathuri.URI, text string) (pathuri.URI, error) {
	p, err := f.find(path, text, follow)
	if err != nil {
		return pathuri.URI{}, err
	}
	_, err = p.stat()
	root := p.dir.path
	p.close()
	if err != nil {
		return pathuri.URI{}, err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return pathuri.URI{}, err
	}
	found, err := filepath.EvalSymlinks(filepath.Join(p.dir.path, p.name))
	if err != nil {
		return pathuri.URI{}, err
	}
	below, ok := belowRoot(root, found)
	if !ok {
		return pathuri.URI{}, errEscapes
	}
	return f.root.Join(below)
}
