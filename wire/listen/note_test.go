package listen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// noteDoor answers with the note that its connection came with, and with what follows the first byte.
func noteDoor(_ context.Context, c net.Conn, p *Peer) {
	p.Authenticate("")
	rest, _ := io.ReadAll(c)
	fmt.Fprintf(c, "%q %q", p.Note, rest)
}

func TestNotes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, _ := start(t, "unix://"+filepath.ToSlash(path), Options{}, Doors{Native: noteDoor})
	trusted := peerCredentials
	for _, test := range []struct {
		name string
		send func(c net.Conn) error
		want string
	}{
		{"a note", func(c net.Conn) error { return SendNote(c, []byte("from here")) }, `"from here" "\x00x"`},
		{"an empty note", func(c net.Conn) error { return SendNote(c, nil) }, `"" "\x00x"`},
		{"two notes", func(c net.Conn) error { return errors.Join(SendNote(c, nil), SendNote(c, nil)) }, ""},
		{"a note that is too long", func(c net.Conn) error {
			_, err := c.Write([]byte{byteNote, 0xff, 0xff, 0xff, 0xff})
			return err
		}, ""},
		{"half a note", func(c net.Conn) error {
			_, err := c.Write([]byte{byteNote, 0, 0, 1, 0})
			return err
		}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := plain(t, l)
			if err := test.send(c); err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, "\x00x") // which a refusal may be faster than
			closeWrite(c)
			want := test.want
			if !trusted {
				want = ""
			}
			if got, err := io.ReadAll(c); string(got) != want || err != nil && want != "" {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		})
	}
	if err := SendNote(plain(t, l), bytes.Repeat([]byte{'x'}, maxNote+1)); err == nil {
		t.Error("a note that is too long was sent")
	}
	// Refused before memory is taken for it.
	_, err := readNote(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}))
	wantErr(t, err, "at most")
}

// Only a process of the same user on a unix socket may say whom it speaks for.
func TestNotesOfOthersAreRefused(t *testing.T) {
	called := make(chan struct{}, 1)
	l, _ := start(t, "tcp://127.0.0.1:0", Options{NoAuth: true}, Doors{Native: func(context.Context, net.Conn, *Peer) { called <- struct{}{} }})
	c := plain(t, l)
	if err := SendNote(c, []byte("trust me")); err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "\x00")
	c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if len(called) > 0 {
		t.Error("the door was opened")
	}
}
