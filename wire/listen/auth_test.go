package listen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// needModes skips where mode bits do not tell who may read a file.
func needModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mode bits mean nothing on Windows; its state directory has an access list")
	}
}

func TestTokenFileIsMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	// Servers that start at once agree on one token.
	var got [8]string
	var group sync.WaitGroup
	for i := range got {
		group.Go(func() {
			var err error
			if got[i], err = ensureToken(path); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, token := range got {
		if token != got[0] || len(token) != 43 {
			t.Fatalf("tokens %q", got)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	other, err := ensureToken(filepath.Join(t.TempDir(), "token"))
	if err != nil || other == got[0] {
		t.Errorf("a second token file: %v", err)
	}
}

func TestReadToken(t *testing.T) {
	dir := t.TempDir()
	got, err := readToken(write(t, filepath.Join(dir, "blanks"), " \r\n s3cret\t\n\n", 0o600))
	if err != nil || got != "s3cret" {
		t.Errorf("readToken = %q, %v", got, err)
	}
	if _, err := readToken(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	for _, test := range []struct{ content, want string }{
		{"", "is empty"},
		{" \n", "is empty"},
		{"s3cret s3cret2", "more than one"},
		{"s3cret\ns3cret2", "more than one"},
		{"s3crét", "not ASCII"},
		{strings.Repeat("s3cret", 1000), "over 4096"},
	} {
		_, err := readToken(write(t, filepath.Join(dir, "bad"), test.content, 0o600))
		wantErr(t, err, test.want)
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error repeats the token: %v", err)
		}
	}
	if _, err := readToken(dir); err == nil {
		t.Error("a directory passed")
	}
}

func TestTokenFileOfOthers(t *testing.T) {
	needModes(t)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644, 0o620, 0o660} {
		_, err := readToken(write(t, filepath.Join(t.TempDir(), "token"), "s3cret", mode))
		wantErr(t, err, "is open to others")
	}
}

func TestTokenAuth(t *testing.T) {
	auth := newTokenAuth("s3cret")
	if err := auth.Check("s3cret"); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"", "s3cre", "s3cret2", "S3cret", " s3cret"} {
		err := auth.Check(wrong)
		if !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("Check(%q) = %v", wrong, err)
		}
		if strings.Contains(err.Error(), "s3cre") {
			t.Errorf("the error repeats a token: %v", err)
		}
	}
	if err := (&Peer{}).Authenticate(""); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a peer of no listener: %v", err)
	}
	if err := (&Peer{Trusted: true}).Authenticate("anything"); err != nil {
		t.Errorf("a trusted peer of no listener: %v", err)
	}
}

func TestPrivateDir(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "a", "b")
	for range 2 {
		if err := PrivateDir(path); err != nil {
			t.Fatal(err)
		}
	}
	wantErr(t, PrivateDir(write(t, filepath.Join(base, "file"), "", 0o600)), "not a directory")

	needModes(t)
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if mode(path) != 0o700 || mode(filepath.Dir(path)) != 0o700 {
		t.Errorf("modes %v and %v", mode(path), mode(filepath.Dir(path)))
	}
	// An empty directory is closed to others; one that somebody uses is left alone.
	open := filepath.Join(base, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := PrivateDir(open); err != nil || mode(open) != 0o700 {
		t.Errorf("an empty directory: %v, mode %v", err, mode(open))
	}
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(open, "x"), "", 0o600)
	wantErr(t, PrivateDir(open), "chmod go=")
	if mode(open) != 0o755 {
		t.Errorf("a used directory was changed to %v", mode(open))
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	wantErr(t, PrivateDir(path), "belongs to user 12345")
}
