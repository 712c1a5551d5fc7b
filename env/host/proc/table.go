// Package proc starts processes, owns them and keeps the table of them.
//
// A process belongs to its [Table], not to the call that started it, and a table implements [env.Runner]: any
// number of callers attach to a process, one of them as its owner, each reading its output (see package output) at an
// offset of its own. What a server needs once, and not per table, is in package tree.
package proc

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"waldo/env"
	"waldo/env/host/output"
	"waldo/env/host/tree"
)

// Options says what a table may use. A zero field has the value its comment names.
type Options struct {
	MemoryBudget    int64         // bytes of output in memory, all processes together; 256 MiB
	SpillBudget     int64         // the same on disk; 4 GiB
	SpillDirectory  string        // where it is spilled; the machine's directory for temporary files
	SpillPerProcess int64         // bytes on disk of one process; 256 MiB, negative for none
	MaxProcesses    int           // running at a time; 10000
	MaxRemembered   int           // finished ones that are remembered though nobody is attached; 256
	NoCgroups       bool          // find what left a process's group in other ways than by a cgroup (Linux)
	Grace           time.Duration // between the polite signal and the kill, when nobody says otherwise; 5 s
	Environment     []string      // what a child starts from, "NAME=value"
	Directory       string        // where a command starts that names no directory, natively; the temporary directory
	Logger          *slog.Logger  // slog.Default()
}

// A Table is the processes of one server. All its methods may be called concurrently.
//
// Its state is changed under mu; a process's own state under the process's. No lock is held while waiting.
type Table struct {
	options Options
	memory  *output.Budget
	disk    *output.Budget
	cgroups *tree.Cgroups

	ending  context.Context // ends when Close begins
	end     context.CancelFunc
	hurry   chan struct{} // closed when Close has no more time to be polite
	starts  chan struct{} // holds one for each start under way
	running sync.WaitGroup

	mu      sync.Mutex
	entries map[string]*entry
	alive   int // started or being started, and not closed
	closing bool
	closed  chan struct{} // closed when Close is through
}

// An entry is an id in use. The process is there once ready is closed; if starting it failed the entry is gone.
type entry struct {
	ready   chan struct{}
	process *process
}

var _ env.Runner = (*Table)(nil)

// ErrClosed says that the table, and so the server, is closing.
var ErrClosed = errors.New("the server is shutting down")

// New returns an empty table. Close ends it.
func New(o Options) *Table {
	o.MemoryBudget = cmp.Or(o.MemoryBudget, 256<<20)
	o.SpillBudget = cmp.Or(o.SpillBudget, 4<<30)
	o.SpillPerProcess = cmp.Or(o.SpillPerProcess, 256<<20)
	o.MaxProcesses = cmp.Or(o.MaxProcesses, 10000)
	o.MaxRemembered = cmp.Or(o.MaxRemembered, 256)
	o.Grace = cmp.Or(o.Grace, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Directory = cmp.Or(o.Directory, os.TempDir())
	t := &Table{
		options: o, memory: output.NewBudget(o.MemoryBudget), disk: output.NewBudget(o.SpillBudget), cgroups: tree.NewCgroups(o.NoCgroups),
		hurry: make(chan struct{}), starts: make(chan struct{}, maxStarts), entries: make(map[string]*entry), closed: make(chan struct{}),
	}
	t.ending, t.end = context.WithCancel(context.Background())
	return t
}

// Start implements env.Runner.
func (t *Table) Start(ctx context.Context, c env.Command) (env.Process, error) {
	if err := check(&c); err != nil {
		return nil, err
	}
	dir, err := nativeDirectory(c.Directory, t.options.Directory)
	if err != nil {
		return nil, err
	}
	c.Delivery = cmp.Or(c.Delivery, env.Lossless)
	if c.ID == "" {
		c.ID = rand.Text()
	}
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		e, mine, err := t.reserve(c.ID)
		if err != nil {
			return nil, err
		}
		if mine {
			p, err := t.start(ctx, &c, dir, e)
			if err != nil {
				return nil, err
			}
			return p, nil
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		p := e.process
		if p == nil {
			continue // the other Start failed, so this one tries
		}
		if !slices.Equal(p.argv, c.Argv) {
			return nil, fmt.Errorf("%w: process id %q is in use by another command, %q", env.ErrInvalid, c.ID, p.argv)
		}
		a, err := p.attach(ctx, env.Attach{From: c.From, Take: true, ExplicitAck: c.ExplicitAck})
		if err != nil {
			return nil, err
		}
		return a, nil
	}
}

// reserve returns the entry of id, and whether the caller has to fill it.
func (t *Table) reserve(id string) (e *entry, mine bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return nil, false, ErrClosed
	}
	if e, ok := t.entries[id]; ok {
		return e, false, nil
	}
	if t.alive >= t.options.MaxProcesses {
		return nil, false, fmt.Errorf("%w: %d processes are running already; end some of them", env.ErrLimit, t.alive)
	}
	e = &entry{ready: make(chan struct{})}
	t.entries[id] = e
	t.alive++
	t.running.Add(1) // until watch has ended
	return e, true, nil
}

// start fills the entry.
func (t *Table) start(ctx context.Context, c *env.Command, dir string, e *entry) (_ *attachment, err error) {
	defer func() {
		if err != nil {
			t.mu.Lock()
			delete(t.entries, c.ID)
			t.alive--
			t.mu.Unlock()
			t.running.Done()
		}
		close(e.ready)
	}()
	environ := overlay(nil, c.Env)
	if !c.CleanEnv {
		environ = overlay(slices.Concat(t.options.Environment, []string{"PWD=" + dir}), c.Env)
	}
	p := &process{
		table: t, id: c.ID, argv: slices.Clone(c.Argv), terminal: c.Terminal != nil, delivery: c.Delivery,
		log: output.New(output.Options{
			Memory: t.memory, Disk: t.disk, SpillDirectory: t.options.SpillDirectory, SpillLimit: t.options.SpillPerProcess,
			Latest: c.Delivery == env.Latest, Logger: t.options.Logger,
		}),
		exited: make(chan struct{}), closed: make(chan struct{}), abandon: make(chan struct{}),
		attachments: make(map[*attachment]struct{}, 1),
		started:     time.Now(),
	}
	// Forks are one after another anyway: more of them at a time would only hold more threads.
	select {
	case t.starts <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.child, err = start(launch{command: c, environ: environ, dir: dir, log: p.log, cgroups: t.cgroups})
	<-t.starts
	if err != nil {
		return nil, err
	}
	a, err := p.attach(ctx, env.Attach{ExplicitAck: c.ExplicitAck})
	if err != nil {
		panic(err) // offset 0 of an empty log
	}
	e.process = p
	if c.Limits.WallClock > 0 {
		p.limitTime(c.Limits.WallClock, t.options.Grace)
	}
	go p.watch()
	return a, nil
}

// lookup finds a process, waiting for one that is being started.
func (t *Table) lookup(ctx context.Context, id string) (*process, error) {
	t.mu.Lock()
	e, ok := t.entries[id]
	t.mu.Unlock()
	if ok {
		select {
		case <-e.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if e.process != nil {
			return e.process, nil
		}
	}
	return nil, fmt.Errorf("%w: %q", env.ErrUnknownProcess, id)
}

// Attach implements env.Runner.
func (t *Table) Attach(ctx context.Context, id string, how env.Attach) (env.Process, error) {
	p, err := t.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	a, err := p.attach(ctx, how)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Processes implements env.Runner.
func (t *Table) Processes(ctx context.Context) ([]env.ProcessInfo, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	processes := t.list()
	infos := make([]env.ProcessInfo, len(processes))
	trees := make([]*tree.Tree, len(processes)) // of those that may still run
	for i, p := range processes {
		if infos[i] = p.info(); infos[i].State != env.Closed {
			trees[i] = p.child.tree
		}
	}
	for i, usage := range tree.UsageOf(trees) {
		infos[i].CPU = max(infos[i].CPU, usage.CPU)
		infos[i].Memory = usage.Memory
	}
	return infos, nil
}

// list returns the processes, oldest first.
func (t *Table) list() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*process, 0, len(t.entries))
	for _, e := range t.entries {
		select {
		case <-e.ready:
			if e.process != nil {
				list = append(list, e.process)
			}
		default:
		}
	}
	slices.SortFunc(list, func(a, b *process) int { return a.started.Compare(b.started) })
	return list
}

// Signal implements env.Runner.
func (t *Table) Signal(ctx context.Context, id string, sig env.Signal) error {
	p, err := t.lookup(ctx, id)
	if err != nil {
		return err
	}
	return p.signal(sig)
}

// Terminate implements env.Runner.
func (t *Table) Terminate(ctx context.Context, id string, grace time.Duration) error {
	return t.End(ctx, id, grace, "")
}

// End is Terminate with the reason that the process's exit will tell.
func (t *Table) End(ctx context.Context, id string, grace time.Duration, reason string) error {
	p, err := t.lookup(ctx, id)
	if err != nil {
		return err
	}
	return p.end(ctx, grace, reason)
}

// Forget drops the record of a process that has ended, with all its output, also when something still holds
// that. One whose leader runs stays.
func (t *Table) Forget(id string) error {
	p, err := t.lookup(t.ending, id)
	if err != nil {
		return err
	}
	if !p.hasExited() {
		return fmt.Errorf("%w: process %q is still running; terminate it first", env.ErrInvalid, id)
	}
	p.giveUp()
	<-p.closed
	t.drop(p)
	return nil
}

func (t *Table) drop(p *process) {
	t.mu.Lock()
	if e := t.entries[p.id]; e != nil && e.process == p {
		delete(t.entries, p.id)
	}
	t.mu.Unlock()
	p.mu.Lock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.log.Discard()
	p.child.tree.Close()
}

// finished is told by each process at its end.
func (t *Table) finished(p *process) {
	t.mu.Lock()
	t.alive--
	t.mu.Unlock()
	p.child.tree.Settle()
	t.prune()
}

// maxStarts is how many programs are being started at a time.
const maxStarts = 8

// maxUntaken bounds the finished processes whose output nobody has taken and nobody is attached to.
const maxUntaken = 4096

// prune forgets the oldest finished processes when there are too many.
func (t *Table) prune() {
	t.mu.Lock()
	crowded := len(t.entries)-t.alive > t.options.MaxRemembered
	t.mu.Unlock()
	if !crowded {
		return
	}
	var taken, untaken []*process
	for _, p := range t.list() {
		if idle, all := p.idle(); !idle {
			continue
		} else if all {
			taken = append(taken, p)
		} else {
			untaken = append(untaken, p)
		}
	}
	for i := 0; i < len(taken)-t.options.MaxRemembered; i++ {
		t.drop(taken[i])
	}
	for i := 0; i < len(untaken)-maxUntaken; i++ {
		t.options.Logger.Warn("the output of a finished process is forgotten though nobody has read it", "process", untaken[i].id)
		t.drop(untaken[i])
	}
}

// Close ends all processes and their trees, politely as long as ctx and the grace allow, and returns when
// nothing of them is left, or that could not be had.
func (t *Table) Close(ctx context.Context) error {
	t.mu.Lock()
	first := !t.closing
	t.closing = true
	t.mu.Unlock()
	if first {
		go t.shutDown(ctx)
	}
	select {
	case <-t.closed:
		return nil
	case <-time.After(t.options.Grace + closePatience):
		return errors.New("processes did not end in time")
	}
}

// closePatience is how long Close waits beyond the grace: a killed process may take its time in the kernel.
const closePatience = 15 * time.Second

// shutDown is the work of the first Close.
func (t *Table) shutDown(ctx context.Context) {
	defer close(t.closed)
	defer t.end()
	hurry := sync.OnceFunc(func() { close(t.hurry) })
	defer context.AfterFunc(ctx, hurry)()
	defer time.AfterFunc(t.options.Grace, hurry).Stop()
	for _, p := range t.startedAll() {
		t.running.Go(func() {
			<-p.endAll(t.options.Grace, ErrClosed.Error())
			<-p.exited
			p.giveUp()
		})
	}
	t.running.Wait()
	for _, p := range t.list() {
		t.drop(p)
	}
	t.cgroups.Close()
}

// startedAll waits for the starts under way; no more begin.
func (t *Table) startedAll() []*process {
	t.mu.Lock()
	entries := make([]*entry, 0, len(t.entries))
	for _, e := range t.entries {
		entries = append(entries, e)
	}
	t.mu.Unlock()
	for _, e := range entries {
		<-e.ready
	}
	return t.list()
}

// Abilities lists what this machine can do with processes, as env.Info names it.
func (t *Table) Abilities() []string {
	abilities := t.machineAbilities()
	if t.options.SpillPerProcess > 0 {
		abilities = append(abilities, env.AbilitySpill)
	}
	return abilities
}
