package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// encode is what the senders of this package make of a frame.
func (f frame) encode() []byte {
	if f.kind == kindData {
		b := make([]byte, HeaderSize, HeaderSize+len(f.payload))
		PutDataHeader(b, f.channel, len(f.payload))
		return append(b, f.payload...)
	}
	b, err := appendMessage(nil, f.kind, f.payload)
	if err != nil {
		panic(err)
	}
	return b
}

// A vector is a line of testdata/frames.txt.
type vector struct {
	name    string
	bytes   []byte
	kind    kind
	channel Channel
	payload string
}

func vectors(tb testing.TB) (all []vector) {
	tb.Helper()
	file, err := os.Open("testdata/frames.txt")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	kinds := map[string]kind{"HEAD": kindHead, "DATA": kindData, "CONTROL": kindControl, "END": kindEnd}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.SplitN(lines.Text(), "|", 5)
		if len(fields) != 5 || strings.HasPrefix(fields[0], "#") {
			continue // a comment
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		v := vector{name: fields[0], kind: kinds[fields[2]]}
		if v.bytes, err = hex.DecodeString(strings.ReplaceAll(fields[1], " ", "")); err != nil {
			tb.Fatal(err)
		}
		channel, err := strconv.Atoi(fields[3])
		if err != nil {
			tb.Fatal(err)
		}
		v.channel = Channel(channel)
		if v.payload, err = strconv.Unquote(fields[4]); err != nil {
			tb.Fatal(v.name, err)
		}
		all = append(all, v)
	}
	return all
}

func TestVectors(t *testing.T) {
	seen := map[kind]bool{}
	for _, v := range vectors(t) {
		seen[v.kind] = true
		f, err := newDecoder(bytes.NewReader(v.bytes)).next()
		if err != nil || f.kind != v.kind || f.channel != v.channel || string(f.payload) != v.payload {
			t.Errorf("%s: decoded %+v, %v", v.name, f, err)
			continue
		}
		if got := f.encode(); !bytes.Equal(got, v.bytes) {
			t.Errorf("%s: encoded again as % x", v.name, got)
		}
	}
	if len(seen) != 4 || seen[0] {
		t.Errorf("the vectors have the kinds %v", seen)
	}
}

func header(first byte, n uint32) string {
	var b [HeaderSize]byte
	putHeader(b[:], first, int(n))
	return string(b[:])
}

func TestMore(t *testing.T) {
	for _, n := range []int{0, 1, maxPart - 1, maxPart, maxPart + 1, 2 * maxPart, 2*maxPart + 1, maxHead} {
		payload := bytes.Repeat([]byte("x"), n)
		b, err := appendMessage(nil, kindHead, payload)
		if err != nil {
			t.Fatal(err)
		}
		frames := max(1, (n+maxPart-1)/maxPart)
		if len(b) != n+frames*HeaderSize {
			t.Errorf("%d bytes became %d in %d frames", n, len(b), frames)
		}
		d := newDecoder(bytes.NewReader(b))
		if f, err := d.next(); err != nil || !bytes.Equal(f.payload, payload) {
			t.Errorf("%d bytes: %d came back, %v", n, len(f.payload), err)
		}
		if _, err := d.next(); err != io.EOF {
			t.Errorf("%d bytes: %v at the end", n, err)
		}
	}
	// Parts may have any length; an empty last one is nothing special.
	parts := header(0x90, 1) + "{" + header(0x90, 1) + "}" + header(0x10, 0)
	if f, err := newDecoder(strings.NewReader(parts)).next(); err != nil || string(f.payload) != "{}" {
		t.Errorf("%q, %v", f.payload, err)
	}
	for _, k := range []kind{kindHead, kindControl, kindEnd} {
		if _, err := appendMessage(nil, k, make([]byte, k.limit()+1)); !errors.Is(err, TooLarge) {
			t.Errorf("kind %d over its limit: %v", k, err)
		}
	}
}

func TestUnknownKindsAreSkipped(t *testing.T) {
	var b strings.Builder
	for _, first := range []byte{0x00, 0x0f, 0x50, 0x61, 0x7f, 0xd0, 0xff} {
		b.WriteString(header(first, 3) + "abc")
		b.WriteString(header(first, MaxData) + strings.Repeat("x", MaxData))
		b.WriteString(header(first, 0))
	}
	b.WriteString(header(0x23, 2) + "hi")
	b.WriteString(header(0x5f, 0))
	d := newDecoder(strings.NewReader(b.String()))
	if f, err := d.next(); err != nil || f.kind != kindData || f.channel != 3 || string(f.payload) != "hi" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := d.next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestMalformed(t *testing.T) {
	long, part := strings.Repeat("x", MaxData), strings.Repeat("x", maxPart)
	for _, test := range []struct {
		name, bytes string
		want        error
	}{
		{"nothing", "", io.EOF},
		{"half a header", "\x20\x00\x00", io.ErrUnexpectedEOF},
		{"header without payload", header(0x20, 3), io.ErrUnexpectedEOF},
		{"payload cut short", header(0x20, 3) + "ab", io.ErrUnexpectedEOF},
		{"message cut short", header(0x10, 3) + "{", io.ErrUnexpectedEOF},
		{"message without its payload", header(0x10, 3), io.ErrUnexpectedEOF},
		{"message without its second part", header(0x90, 1) + "{", io.ErrUnexpectedEOF},
		{"message with half a second header", header(0x90, 1) + "{" + "\x10\x00", io.ErrUnexpectedEOF},
		{"unknown kind cut short", header(0x50, 3) + "ab", io.ErrUnexpectedEOF},
		{"DATA too long", header(0x20, MaxData+1) + long + "x", errProtocol},
		{"HEAD frame too long", header(0x10, maxPart+1) + part + "x", errProtocol},
		{"unknown kind too long", header(0x50, 1<<32-1), errProtocol},
		{"longest length", header(0x20, 1<<32-1), errProtocol},
		{"MORE on DATA", header(0xa0, 1) + "x", errProtocol},
		{"CONTROL too long", strings.Repeat(header(0xb0, maxPart)+part, 2) + header(0x30, 1) + "x", errProtocol},
		{"END too long", strings.Repeat(header(0xc0, maxPart)+part, 2) + header(0x40, 1) + "x", errProtocol},
		{"HEAD too long", strings.Repeat(header(0x90, maxPart)+part, maxHead/maxPart) + header(0x10, 1) + "x", errProtocol},
		{"interrupted by another kind", header(0x90, 1) + "{" + header(0x30, 2) + "{}", errProtocol},
		{"interrupted by DATA", header(0x90, 1) + "{" + header(0x20, 1) + "x", errProtocol},
		{"interrupted by an unknown kind", header(0x90, 1) + "{" + header(0x50, 0), errProtocol},
		{"empty part", header(0x90, 1) + "{" + header(0x90, 0), errProtocol},
	} {
		_, err := newDecoder(strings.NewReader(test.bytes)).next()
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
}

// What a peer claims is refused before memory is taken for it.
func TestOversizeIsNotAllocated(t *testing.T) {
	almost := strings.Repeat(header(0xb0, maxPart)+strings.Repeat("x", maxPart), 2)
	for _, input := range []string{header(0x20, 1<<32-1), header(0x10, 1<<31), header(0x50, 1<<30), almost + header(0x30, maxPart)} {
		d := newDecoder(strings.NewReader(input))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := d.next()
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errProtocol) {
			t.Errorf("%.5q: %v", input, err)
		}
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(4*len(input)+16<<10); got > most {
			t.Errorf("%.5q: %d bytes were allocated for %d that came", input, got, len(input))
		}
	}
}

func TestBuffers(t *testing.T) {
	for _, n := range []int{0, 1, smallBuffer, smallBuffer + 1, mediumBuffer, mediumBuffer + 1, MaxData, largeBuffer} {
		b := getBuffer(n)
		if len(b) != n {
			t.Errorf("%d bytes for %d", len(b), n)
		}
		putBuffer(b)
	}
	putBuffer(make([]byte, 7)) // somebody else's
	frame := make([]byte, HeaderSize+MaxData)
	PutDataHeader(frame, 1, MaxData)
	d := newDecoder(&endless{frame: frame})
	allocations := testing.AllocsPerRun(100, func() {
		f, err := d.next()
		if err != nil {
			t.Fatal(err)
		}
		putBuffer(f.payload)
	})
	if allocations > 1 && !raceEnabled {
		t.Errorf("%v allocations to receive a DATA frame", allocations)
	}
}

// endless repeats a frame.
type endless struct {
	frame []byte
	at    int
}

func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.frame[e.at:])
	e.at = (e.at + n) % len(e.frame)
	return n, nil
}

func FuzzDecoder(f *testing.F) {
	var all []byte
	for _, v := range vectors(f) {
		f.Add(v.bytes)
		all = append(all, v.bytes...)
	}
	f.Add(all)
	f.Add([]byte(header(0x90, 1) + "{" + header(0x90, 1) + "}" + header(0x10, 0)))
	f.Add([]byte(header(0x50, 3) + "abc" + header(0x2f, 1) + "x"))
	f.Add([]byte(header(0xa0, 1) + "x"))
	f.Add([]byte(header(0x20, 1<<32-1)))
	f.Fuzz(func(t *testing.T, input []byte) {
		frames, err := decodeAll(input)
		if err == nil {
			t.Fatal("no error, and no EOF either")
		}
		var encoded []byte
		total := 0
		for _, f := range frames {
			limit := MaxData
			if f.kind != kindData {
				limit = f.kind.limit()
			}
			if len(f.payload) > limit {
				t.Fatalf("kind %d of %d bytes", f.kind, len(f.payload))
			}
			total += len(f.payload)
			encoded = append(encoded, f.encode()...)
		}
		if total > len(input) {
			t.Fatalf("%d bytes came out of %d", total, len(input))
		}
		again, err := decodeAll(encoded)
		if err != io.EOF {
			t.Fatalf("what was encoded ends with %v", err)
		}
		if diff := cmp.Diff(describe(frames), describe(again)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func decodeAll(input []byte) (frames []frame, err error) {
	d := newDecoder(bytes.NewReader(input))
	for {
		f, err := d.next()
		if err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
}

func describe(frames []frame) (lines []string) {
	for _, f := range frames {
		lines = append(lines, fmt.Sprintf("kind %d channel %d %q", f.kind, f.channel, f.payload))
	}
	return lines
}
