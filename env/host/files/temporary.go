package files

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"

	"waldo/env"
)

// temporary is a file that takes another one's place when it is complete.
type temporary struct {
	file *os.File
	at   place // its directory, and its name if it has one
}

// temporary makes one in the directory of the place.
func (p place) temporary(mode fs.FileMode) (*temporary, error) {
	file, err := p.unnamed(mode)
	if err != nil {
		return nil, err
	}
	if file != nil {
		return &temporary{file, p.sibling("")}, nil
	}
	for {
		at := p.sibling(temporaryName())
		file, err := at.create(os.O_WRONLY, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &temporary{file, at}, nil
	}
}

func temporaryName() string { return ".waldo-" + rand.Text() }

// replacement makes a temporary that can take the place of the regular file old with nothing else changed: owner,
// permissions, extended attributes, names. It is nil if there cannot be one.
func (p place) replacement(old *os.File, st status) (*temporary, error) {
	if st.links != 1 || p.isMagic() {
		return nil, nil
	}
	if mount, err := p.isMount(); err != nil || mount {
		return nil, err
	}
	temp, err := p.temporary(0o600)
	if err != nil {
		err = contractual(bare(err))
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, env.ErrInvalid) {
			return nil, nil // the directory is not ours to write in, the file is
		}
		return nil, err
	}
	if !temp.resemble(old) {
		temp.file.Close() //nolint:errcheck // it is given up
		temp.discard()
		return nil, nil
	}
	return temp, nil
}

// become gives the temporary the name of the place, for good. fresh says that there was nothing a while ago, and that
// the name can most likely be had in one step.
func (t *temporary) become(p place, exclusive, fresh bool) error {
	if t.at.name == "" {
		if exclusive || fresh {
			if err := t.link(p); exclusive || !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
		if err := t.name(); err != nil {
			return err
		}
	}
	if !exclusive {
		return rename(t.at, p)
	}
	return renameExclusive(t.at, p)
}

// discard removes the name that the temporary has.
func (t *temporary) discard() {
	if t.at.name != "" {
		t.at.unlink() //nolint:errcheck // there is nothing else to be done about it
	}
}

// setModified sets the time that the file is to have.
func (w *writer) setModified() error {
	times, err := timespecs(nil, &w.options.Modified)
	if err != nil {
		return err
	}
	at := w.at
	if w.temp != nil {
		at = w.temp.at
	}
	return setFileTimes(w.file, at, times)
}
