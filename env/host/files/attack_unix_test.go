//go:build unix

package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waldo/env"
	"waldo/pathuri"
)

// While links and directories are swapped for such that lead out, no confined call reads, changes or removes what is
// outside. WALDO_ATTACK says for how long.
func TestAttack(t *testing.T) {
	duration := time.Second
	if text := os.Getenv("WALDO_ATTACK"); text != "" {
		var err error
		if duration, err = time.ParseDuration(text); err != nil {
			t.Fatalf("WALDO_ATTACK: %v", err)
		}
	}
	const canary = "CANARY OF A SIZE THAT NOTHING INSIDE HAS"
	w := newWorld(t)
	for _, name := range []string{"out/file", "out/sub/file", "out/link", "out/new"} {
		w.put(name, canary)
	}
	outside := &world{t, w.Files, w.native("out")}
	before := outside.tree()
	w.put("root/a/file", "inside")
	w.put("root/a/sub/file", "inside")
	w.mkdir("root/spare")
	w.mkdir("root/tmp")

	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var swaps, succeeded, refused atomic.Int64
	var tasks sync.WaitGroup
	// The attacker must not do himself what he wants us to do.
	attacker, err := os.OpenRoot(w.native("root"))
	w.ok(err)
	defer attacker.Close() //nolint:errcheck // a test

	// Whatever lies at root/a, root/a/sub, root/a/file is one time real and one time a way out.
	targets := []string{"../out", w.native("out"), "../../out", "a/../../out", "../out/sub", "../out/file", w.native("out/file"), ".."}
	swap := func(name, aside string) {
		for i := 0; ctx.Err() == nil; i++ {
			if attacker.Rename(name, aside) != nil {
				// Something was removed, or two have swapped each other's things.
				attacker.RemoveAll(aside) //nolint:errcheck // the next round tries again
				if strings.HasSuffix(name, "file") {
					attacker.WriteFile(name, []byte("inside"), 0o644) //nolint:errcheck // as above
				} else {
					attacker.MkdirAll(name+"/sub", 0o755)                         //nolint:errcheck // as above
					attacker.WriteFile(name+"/file", []byte("inside"), 0o644)     //nolint:errcheck // as above
					attacker.WriteFile(name+"/sub/file", []byte("inside"), 0o644) //nolint:errcheck // as above
				}
				continue
			}
			if attacker.Symlink(targets[i%len(targets)], name) == nil {
				swaps.Add(1)
				attacker.Remove(name) //nolint:errcheck // somebody else may have
			}
			attacker.Rename(aside, name) //nolint:errcheck // as above
		}
	}
	tasks.Go(func() { swap("a", "spare/a") })
	tasks.Go(func() { swap("a/sub", "spare/sub") })
	tasks.Go(func() { swap("a/file", "spare/file") })

	f := w.Confined(w.uri("root"))
	u := func(name string) pathuri.URI { return w.uri("root/" + name) }
	mode := fs.FileMode(0o600)
	size := int64(3)
	calls := []func(i int) error{
		func(int) error {
			got, err := readAll(f, ctx, u("a/file"), env.ReadOptions{})
			if strings.Contains(got, canary) {
				t.Error("the canary was read")
			}
			return err
		},
		func(int) error {
			got, err := readAll(f, ctx, u("a/sub/file"), env.ReadOptions{Holes: true})
			if strings.Contains(got, canary) {
				t.Error("the canary was read")
			}
			return err
		},
		func(int) error {
			info, err := f.Stat(ctx, u("a/file"), true)
			if err == nil && info.Size == int64(len(canary)) {
				t.Error("the canary was seen")
			}
			return err
		},
		func(int) error {
			_, err := write(f, ctx, u("a/file"), "inside", env.WriteOptions{Unsynced: true})
			return err
		},
		func(int) error {
			_, err := write(f, ctx, u("a/sub/file"), "inside", env.WriteOptions{Unsynced: true, Parents: true})
			return err
		},
		func(int) error {
			_, err := write(f, ctx, u("a/file"), "+", env.WriteOptions{Mode: env.Append, Unsynced: true})
			return err
		},
		func(int) error {
			_, err := write(f, ctx, u("a/file"), "inside", env.WriteOptions{Mode: env.Patch, Unsynced: true})
			return err
		},
		func(i int) error {
			_, err := write(f, ctx, u(fmt.Sprint("a/sub/x", i)), "x", env.WriteOptions{Mode: env.Exclusive, Unsynced: true})
			return err
		},
		func(int) error {
			for entry, err := range f.List(ctx, u("a")) {
				if err != nil {
					return err
				}
				if base, _ := entry.Path.Base(); base == "new" {
					t.Error("what is outside was listed")
				}
			}
			return nil
		},
		func(int) error {
			return f.SetAttributes(ctx, u("a/file"), env.Attributes{Permissions: &mode, Size: &size, Modified: &time.Time{}})
		},
		func(i int) error {
			return f.Copy(ctx, u("a"), u(fmt.Sprint("tmp/copy", i)), env.CopyOptions{Recursive: true})
		},
		func(i int) error {
			return f.Copy(ctx, u("tmp"), u(fmt.Sprint("a/sub/copy", i)), env.CopyOptions{Recursive: true})
		},
		func(i int) error {
			return f.Rename(ctx, u("a/sub/file"), u(fmt.Sprint("tmp/moved", i)), env.RenameOptions{})
		},
		func(i int) error { return f.Mkdir(ctx, u(fmt.Sprint("a/sub/dir", i)), env.MkdirOptions{Parents: true}) },
		func(int) error { return f.Remove(ctx, u("a/sub"), env.RemoveOptions{Recursive: true}) },
		func(int) error { return f.Remove(ctx, u("a/file"), env.RemoveOptions{}) },
		func(int) error { return f.Remove(ctx, u("a"), env.RemoveOptions{Recursive: true}) },
		func(int) error { return f.Remove(ctx, u("tmp"), env.RemoveOptions{Recursive: true}) },
		func(int) error { return f.Mkdir(ctx, u("tmp"), env.MkdirOptions{Parents: true}) },
		func(i int) error { return f.Link(ctx, u("a/file"), u(fmt.Sprint("tmp/hard", i))) },
		func(int) error {
			got, err := f.Canonicalize(ctx, u("a/sub/file"))
			if err == nil && !w.uri("root").Contains(got) {
				t.Errorf("%v is outside", got)
			}
			return err
		},
	}
	for range 3 {
		tasks.Go(func() {
			for ctx.Err() == nil {
				i := rand.IntN(1000)
				err := calls[rand.IntN(len(calls))](i)
				switch {
				case err == nil:
					succeeded.Add(1)
				case errors.Is(err, fs.ErrPermission):
					refused.Add(1)
				}
			}
		})
	}
	tasks.Wait()
	if after := outside.tree(); after != before {
		t.Errorf("outside is now\n%s\nand was\n%s", after, before)
	}
	// Copies must not hold what is outside either.
	w.ok(fs.WalkDir(os.DirFS(w.native("root")), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(w.content("root/"+path), canary) {
			t.Errorf("%s has the canary", path)
		}
		return err
	}))
	t.Logf("%d swaps, %d calls succeeded, %d were refused", swaps.Load(), succeeded.Load(), refused.Load())
	if swaps.Load() == 0 || succeeded.Load() == 0 || refused.Load() == 0 {
		t.Error("that was no attack")
	}
}
