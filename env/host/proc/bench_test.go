package proc

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"waldo/env"
	"waldo/env/host/output"
)

func quiet(b *testing.B) {
	output.Poison(false)
	b.Cleanup(func() { output.Poison(true) })
}

// BenchmarkStdout is 1 GiB of standard output through a log and one reader, and the same through a bare pipe.
func BenchmarkStdout(b *testing.B) {
	const mebibytes = 1024
	argv := []string{"dd", "if=/dev/zero", "bs=1M", "count=" + strconv.Itoa(mebibytes), "status=none"}
	b.Run("log", func(b *testing.B) {
		quiet(b)
		table := open(b, Options{})
		b.SetBytes(mebibytes << 20)
		for b.Loop() {
			p, err := table.Start(context.Background(), env.Command{Argv: argv})
			if err != nil {
				b.Fatal(err)
			}
			var n int
			for chunk, err := range p.Output(context.Background()) {
				if err != nil {
					b.Fatal(err)
				}
				n += len(chunk.Data)
			}
			if n != mebibytes<<20 {
				b.Fatal(n)
			}
			p.Close()
		}
	})
	b.Run("pipe", func(b *testing.B) {
		b.SetBytes(mebibytes << 20)
		buf := make([]byte, 32<<10)
		for b.Loop() {
			cmd := exec.Command(argv[0], argv[1:]...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{out}, buf); err != nil {
				b.Fatal(err)
			}
			cmd.Wait()
		}
	})
}

// BenchmarkStartExit is from the start of a program to its exit, beside plain os/exec.
func BenchmarkStartExit(b *testing.B) {
	ours := func(b *testing.B, table *Table) {
		p, err := table.Start(context.Background(), env.Command{Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		for range p.Output(context.Background()) {
		}
		<-p.Exited()
		p.Close()
	}
	raw := func(b *testing.B) {
		if _, err := exec.Command("/bin/true").Output(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("proc", func(b *testing.B) {
		quiet(b)
		table := open(b, Options{Environment: os.Environ()})
		for b.Loop() {
			ours(b, table)
		}
	})
	b.Run("exec", func(b *testing.B) {
		for b.Loop() {
			raw(b)
		}
	})
	b.Run("proc-32", func(b *testing.B) {
		quiet(b)
		table := open(b, Options{Environment: os.Environ()})
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				ours(b, table)
			}
		})
	})
	b.Run("exec-32", func(b *testing.B) {
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				raw(b)
			}
		})
	})
}
