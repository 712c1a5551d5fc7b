package registry

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"waldo/wire/listen"
)

// FileName is the name of the file of environments in the home of waldo.
const FileName = "environments.toml"

// Options are what all environments of a registry have in common; see Spec.
type Options struct {
	Client   string
	StateDir string
	Log      *slog.Logger
	Spawn    Spawn
}

// Registry knows the environments that a file names, this machine, and those that are added at run time. Each is
// connected to when somebody first wants it, once for all who do.
type Registry struct {
	path    string
	options Options
	warning string

	mu           sync.Mutex
	includeLocal bool
	fallback     string // the default; "" is none
	items        []*item
	gone         []*Handle // of what was removed or replaced: who has them goes on using them
	closed       bool
}

// item is an environment of a registry.
type item struct {
	entry  *Entry // nil for this machine
	handle *Handle
}

func (i *item) id() string {
	if i.entry == nil {
		return Local
	}
	return i.entry.ID
}

func (i *item) transport() string {
	if i.entry == nil {
		return Local
	}
	return i.entry.Transport()
}

// Load reads a file of environments. Without it there is only this machine.
func Load(path string, options Options) (*Registry, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	c, warning, err := readFile(path)
	if err != nil {
		return nil, err
	}
	r := &Registry{path: path, options: options, warning: warning, includeLocal: c.includeLocal}
	if c.includeLocal {
		r.items = append(r.items, r.item(nil))
	}
	for _, e := range c.entries {
		r.items = append(r.items, r.item(&e))
	}
	r.fallback = c.fallback
	switch {
	case strings.EqualFold(c.fallback, None):
		r.fallback = ""
	case c.fallbackLine == 0 && c.includeLocal:
		r.fallback = Local
	}
	return r, nil
}

func (r *Registry) item(e *Entry) *item {
	i := &item{entry: e}
	i.handle = newHandle(i.id(), func() (Spec, error) { return r.specOf(e) })
	return i
}

// specOf is what opens an entry, or this machine.
func (r *Registry) specOf(e *Entry) (spec Spec, err error) {
	if e != nil {
		if spec, err = e.spec(filepath.Dir(r.path)); err != nil {
			return spec, err
		}
	}
	return r.complete(spec), nil
}

func (r *Registry) complete(spec Spec) Spec {
	spec.Client, spec.Log, spec.Spawn = r.options.Client, r.options.Log, r.options.Spawn
	spec.Access.StateDir = r.options.StateDir
	return spec
}

// Warning is what a person should be told of the file; "" is nothing.
func (r *Registry) Warning() string { return r.warning }

// Default is the id of the environment that is meant where none is named; "" is none.
func (r *Registry) Default() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fallback
}

// Listed is an environment in a list.
type Listed struct {
	ID        string
	Transport string // for people, without secrets
	Default   bool
	Entry     Entry // zero for this machine
}

// List is all environments in the file's order, this machine first.
func (r *Registry) List() []Listed {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Listed, len(r.items))
	for n, i := range r.items {
		list[n] = Listed{ID: i.id(), Transport: i.transport(), Default: i.id() == r.fallback}
		if i.entry != nil {
			list[n].Entry = *i.entry
		}
	}
	return list
}

// Handle is the environment with an id; "" is the default.
func (r *Registry) Handle(id string) (*Handle, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.find(id)
	if err != nil {
		return nil, err
	}
	return i.handle, nil
}

// find finds an environment. r.mu is held.
func (r *Registry) find(id string) (*item, error) {
	if id == "" {
		if r.fallback == "" {
			return nil, fmt.Errorf("no environment is named, and %s says that none is the default; name one with -e: %s", r.path, r.known())
		}
		id = r.fallback
	}
	for _, i := range r.items {
		if i.id() == id {
			return i, nil
		}
	}
	if id == Local {
		return nil, fmt.Errorf("environment %q is not there, since %s says include_local = false", id, r.path)
	}
	if near := nearest(id, r.ids()); near != "" {
		return nil, fmt.Errorf("%w %s; did you mean %q?", ErrUnknown, strconv.Quote(id), near)
	}
	return nil, fmt.Errorf("%w %s; there are %s, and URLs such as tls://HOST:7777, unix:///PATH or ssh://BOX",
		ErrUnknown, strconv.Quote(id), r.known())
}

// ErrUnknown says that no environment has an id.
var ErrUnknown = errors.New("unknown environment")

func (r *Registry) ids() []string {
	ids := make([]string, len(r.items))
	for n, i := range r.items {
		ids[n] = i.id()
	}
	return ids
}

func (r *Registry) known() string {
	if ids := r.ids(); len(ids) > 0 {
		return strings.Join(ids, ", ")
	}
	return "none"
}

// Spec is what opens the environment that a person calls so: by its id, by a URL, or by nothing, which is the
// default.
func (r *Registry) Spec(name string) (Spec, error) {
	if isURL(name) || name == "stdio" {
		spec, err := Parse(name)
		return r.complete(spec), err
	}
	r.mu.Lock()
	i, err := r.find(name)
	r.mu.Unlock()
	if err != nil {
		return Spec{}, err
	}
	return r.specOf(i.entry)
}

// Add adds an environment until the registry is closed. One of the same id is replaced; who has its handle keeps it.
func (r *Registry) Add(e Entry) error {
	if err := e.Check(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(e)
}

func (r *Registry) add(e Entry) error {
	if r.closed {
		return errClosed
	}
	fresh := r.item(&e)
	for n, i := range r.items {
		if i.id() == e.ID {
			r.gone = append(r.gone, i.handle)
			r.items[n] = fresh
			return nil
		}
	}
	r.items = append(r.items, fresh)
	return nil
}

// AddToFile adds an environment to the file as well, behind all that is there. An id that the file has is refused.
func (r *Registry) AddToFile(e Entry) error {
	if err := e.Check(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	err := editFile(r.path, func(data []byte) ([]byte, error) { return addText(r.path, data, e) })
	if err != nil {
		return err
	}
	return r.add(e)
}

// Remove takes an environment out until the registry is loaded again. Who has its handle keeps it. If it was the
// default, there is none any more.
func (r *Registry) Remove(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remove(id)
}

func (r *Registry) remove(id string) error {
	i, err := r.find(id)
	if err != nil {
		return err
	}
	r.gone = append(r.gone, i.handle)
	r.items = slices.DeleteFunc(r.items, func(other *item) bool { return other == i })
	if r.fallback == id {
		r.fallback = ""
	}
	return nil
}

// RemoveFromFile takes an environment out of the file as well, with its comment; all else in the file stays.
func (r *Registry) RemoveFromFile(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == Local {
		return fmt.Errorf("environment %q is this machine and not in %s; include_local = false there leaves it out", id, r.path)
	}
	if _, err := os.Stat(r.path); err != nil {
		_, err := r.find(id)
		return err
	}
	err := editFile(r.path, func(data []byte) ([]byte, error) { return removeText(r.path, data, id) })
	if err != nil {
		return err
	}
	if _, err := r.find(id); err != nil {
		return nil // it came to the file after it was read
	}
	return r.remove(id)
}

// unknownError names what a file has instead.
func unknownError(id string, c *config) error {
	ids := make([]string, len(c.entries))
	for n, e := range c.entries {
		ids[n] = e.ID
	}
	switch near := nearest(id, ids); {
	case near != "":
		return fmt.Errorf("%w %q; did you mean %q?", ErrUnknown, id, near)
	case len(ids) == 0:
		return fmt.Errorf("%w %q; the file has none", ErrUnknown, id)
	}
	return fmt.Errorf("%w %q; the file has %s", ErrUnknown, id, strings.Join(ids, ", "))
}

var errClosed = errors.New("the registry is closed")

// Close ends the connections of all environments, those too that have been removed.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	handles := slices.Clone(r.gone)
	for _, i := range r.items {
		handles = append(handles, i.handle)
	}
	r.mu.Unlock()
	var closing sync.WaitGroup
	for _, h := range handles {
		closing.Go(h.close)
	}
	closing.Wait()
	return nil
}

// Override lets what a command line says of the way to a server count more than what the file says.
func (s *Spec) Override(access listen.DialOptions) {
	set := func(to *string, from string) {
		if from != "" {
			*to = from
		}
	}
	if access.TokenFile != "" || access.Token != "" {
		s.Access.Token, s.Access.TokenFile = access.Token, access.TokenFile
	}
	set(&s.Access.TLSPin, access.TLSPin)
	set(&s.Access.TLSCA, access.TLSCA)
	set(&s.Access.StateDir, access.StateDir)
	if access.ClientCert != "" || access.ClientKey != "" {
		s.Access.ClientCert, s.Access.ClientKey = access.ClientCert, access.ClientKey
	}
}
