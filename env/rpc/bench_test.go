package rpc

import (
	"os/exec"
	"testing"

	"waldo/env"
)

func BenchmarkStartToExit(b *testing.B) {
	client := newRig(b, ServerOptions{}).dial(b, ClientOptions{Session: "direct"})
	for b.Loop() {
		p, err := client.Start(b.Context(), env.Command{Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		for range p.Output(b.Context()) {
		}
		if exit, err := p.Exit(); err != nil || exit.Code != 0 {
			b.Fatal(exit, err)
		}
		p.Close()
	}
}

func BenchmarkRawStartToExit(b *testing.B) {
	for b.Loop() {
		if _, err := exec.Command("/bin/true").Output(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStdout(b *testing.B) {
	client := newRig(b, ServerOptions{}).dial(b, ClientOptions{Session: "direct"})
	b.SetBytes(1 << 30)
	for b.Loop() {
		p, err := client.Start(b.Context(), env.Command{Argv: []string{"head", "-c", "1073741824", "/dev/zero"}})
		if err != nil {
			b.Fatal(err)
		}
		var n int
		for chunk, err := range p.Output(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			n += len(chunk.Data)
		}
		if n != 1<<30 {
			b.Fatal(n)
		}
	}
}
