package agentsmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"waldo/env"
)

// maxHome bounds the user's own instructions, against files that are something else.
const maxHome = 1 << 20

// Home reads the user's own instructions from the directory home on the host: [OverrideName] if it says something,
// else [Name]. They belong to no environment and are not charged to one's budget. It returns the name of the file too,
// both "" if there is none.
func Home(home fs.FS) (text, name string, err error) {
	for _, name := range []string{OverrideName, Name} {
		data, err := homeFile(home, name)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, env.ErrNotRegular):
		case err != nil:
			return "", "", fmt.Errorf("instructions of the user: %w", err)
		case !blank(data):
			return strings.TrimSpace(decode(data)), name, nil
		}
	}
	return "", "", nil
}

func homeFile(home fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(home, name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q: %w", name, env.ErrNotRegular)
	}
	if err != nil {
		return nil, err
	}
	f, err := home.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxHome+1))
	if err == nil && len(data) > maxHome {
		err = fmt.Errorf("%q: %w: more than %d bytes", name, env.ErrTooLarge, maxHome)
	}
	return data, err
}
