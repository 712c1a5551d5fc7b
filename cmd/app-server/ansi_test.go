package main

import (
	"strings"
	"testing"
)

func TestReplayFilter(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"text", "a\r\nb", "a\r\nb"},
		{"colours and cursor", "\x1b[1;31mred\x1b[0m\x1b[2;3H", "\x1b[1;31mred\x1b[0m\x1b[2;3H"},
		{"who are you", "a\x1b[cb\x1b[>0cc\x1b[=cd\x1bZe", "abcde"},
		{"where is the cursor", "a\x1b[6nb\x1b[?6nc", "abc"},
		{"modes and versions", "\x1b[?2026$p\x1b[>q\x1b[?u\x1b[x.", "."},
		{"window", "\x1b[18t\x1b[14;2t\x1b[22;2t\x1b[23t.", "\x1b[22;2t\x1b[23t."},
		{"colours asked", "\x1b]11;?\x07a\x1b]10;?\x1b\\b", "ab"},
		{"title", "\x1b]0;me\x07a\x1b]2;you\x1b\\b", "\x1b]0;me\x07a\x1b]2;you\x1b\\b"},
		{"strings asked", "\x1bP$qm\x1b\\\x1bP+q544e\x1b\\.", "."},
		{"answerback", "a\x05b", "ab"},
		{"charset", "\x1b(B\x1b)0x", "\x1b(B\x1b)0x"},
		{"begun anew", "\x1b[3\x1b[6n.", "\x1b[3."},
		{"cancelled", "\x1b[6\x18n", "\x1b[6\x18n"},
		{"UTF-8", "\u00e9\u2501\x1b[6n\U0001F600", "\u00e9\u2501\U0001F600"},
	} {
		for step := 1; step <= len(c.in); step++ {
			var f replayFilter
			var got strings.Builder
			for rest := c.in; rest != ""; {
				n := min(step, len(rest))
				got.Write(f.pass([]byte(rest[:n])))
				rest = rest[n:]
			}
			got.Write(f.end())
			if got.String() != c.want {
				t.Errorf("%s, %d bytes at a time: %q, want %q", c.name, step, got.String(), c.want)
			}
		}
	}
}

func TestReplayFilterEnd(t *testing.T) {
	var f replayFilter
	if got := string(f.pass([]byte("\x1b[1;24rx\x1b[3"))); got != "\x1b[1;24rx" {
		t.Errorf("passed %q", got)
	}
	if got, want := string(f.end()), noMargins+"\x1b[3"; got != want {
		t.Errorf("the end is %q, want %q", got, want)
	}
}

func TestLongStringPasses(t *testing.T) {
	long := "\x1bPq" + strings.Repeat("\x1bx~", 3*maxHeld) + "\x1b\\after\x1b[6n."
	var f replayFilter
	got := string(f.pass([]byte(long))) + string(f.end())
	if want := strings.Replace(long, "\x1b[6n", "", 1); got != want {
		t.Errorf("%d bytes passed, want %d", len(got), len(want))
	}
}

func TestModesAreUndone(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "text\x1b[2J\x1b[31mred\x1b[0m", ""},
		{"vim", "\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h\x1b[?25l", "\x1b[?2004l\x1b[?1049l\x1b[?25h\x1b[?1l\x1b>"},
		{"left by itself", "\x1b[?1049h\x1b[?25l\x1b[?1000;1006h\x1b[?1000;1006l\x1b[?25h\x1b[?1049l", ""},
		{"colour", "\x1b[1;31mred", "\x1b[0m"},
		{"keyboard", "\x1b[>1u\x1b[>3u\x1b[<u", "\x1b[<1u"},
		{"margins", "\x1b[2;20r", noMargins},
		{"reset", "\x1b[?1049h\x1b[31m\x1bc", ""},
	} {
		var m modes
		for _, b := range []byte(c.in) {
			m.follow([]byte{b})
		}
		if got := string(m.undo()); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if again := m.undo(); len(again) > 0 {
			t.Errorf("%s: undone again with %q", c.name, again)
		}
	}
}

func FuzzSequences(f *testing.F) {
	f.Add([]byte("a\x1b[6nb\x1b]0;t\x07\x1bPq\x1b\\"))
	f.Add([]byte("\x1b\x1b[\x18\x1b]\x1b\x1b\\"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var all []byte
		keep := func(p []byte) { all = append(all, p...) }
		var s sequences
		s.feed(in[:len(in)/2], keep, keep)
		s.feed(in[len(in)/2:], keep, keep)
		if s.state != ground && s.state != passString && s.state != passEnd {
			all = append(all, s.held...)
		}
		if string(all) != string(in) {
			t.Errorf("%q came out of %q", all, in)
		}
		var filter replayFilter
		filter.pass(in)
		filter.end()
		var m modes
		m.follow(in)
		m.undo()
	})
}
