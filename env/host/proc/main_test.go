package proc

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"waldo/env"
	"waldo/env/host/output"
)

func TestMain(m *testing.M) {
	output.Poison(true)
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, o Options) *Table {
	t.Helper()
	if o.Environment == nil {
		o.Environment = []string{"PATH=/usr/bin:/bin"}
	}
	if o.Grace == 0 {
		o.Grace = 500 * time.Millisecond
	}
	table := New(o)
	t.Cleanup(func() {
		if err := table.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return table
}

func context30(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func sh(script string) env.Command { return env.Command{Argv: []string{"/bin/sh", "-c", script}} }

func run(t testing.TB, table *Table, c env.Command) env.Process {
	t.Helper()
	p, err := table.Start(context30(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// all reads the output to its end.
func all(t testing.TB, p env.Process) (out string, lost int64) {
	t.Helper()
	var b []byte
	for chunk, err := range p.Output(context30(t)) {
		if err != nil {
			t.Fatalf("after %d bytes: %v", len(b), err)
		}
		b = append(b, chunk.Data...)
		lost += chunk.Lost
	}
	return string(b), lost
}

func exit(t testing.TB, p env.Process) env.Exit {
	t.Helper()
	select {
	case <-p.Exited():
	case <-time.After(30 * time.Second):
		t.Fatal("no exit in 30 s")
	}
	e, err := p.Exit()
	if err != nil {
		t.Fatal(err)
	}
	return e
}
