package main

import "bytes"

// sequences cuts what a terminal is sent into text and control sequences. What has no end yet is held until it
// has, within bounds.
type sequences struct {
	state sequenceState
	held  []byte
}

type sequenceState int

const (
	ground       sequenceState = iota
	afterEscape                // ESC
	inControl                  // ESC [
	inString                   // ESC ] P X ^ _
	inStringEnd                // ESC in one
	passString                 // one that is too long to be held
	passEnd                    // ESC in that
	maxHeld      = 4 << 10
	escapeByte   = 0x1b
	bellByte     = 0x07
	cancelByte   = 0x18
	substituteBy = 0x1a
)

// feed calls text and control for what data holds, in order. What they get is theirs until they return.
func (s *sequences) feed(data []byte, text, control func([]byte)) {
	for len(data) > 0 {
		if s.state == ground {
			at := bytes.IndexByte(data, escapeByte)
			if at < 0 {
				text(data)
				return
			}
			if at > 0 {
				text(data[:at])
			}
			s.state, s.held = afterEscape, append(s.held[:0], escapeByte)
			data = data[at+1:]
			continue
		}
		b := data[0]
		data = data[1:]
		if s.state == passString || s.state == passEnd {
			text([]byte{b})
			s.state = s.next(b)
			continue
		}
		if b == escapeByte && s.state != inString { // it begins anew
			text(s.held)
			s.state, s.held = afterEscape, append(s.held[:0], escapeByte)
			continue
		}
		s.held = append(s.held, b)
		switch s.state = s.next(b); {
		case s.state == ground:
			control(s.held)
		case len(s.held) >= maxHeld:
			text(s.held)
			if s.state = passString; s.held[len(s.held)-1] == escapeByte {
				s.state = passEnd
			}
		}
	}
}

// next is the state after b.
func (s *sequences) next(b byte) sequenceState {
	if b == cancelByte || b == substituteBy {
		return ground
	}
	switch s.state {
	case afterEscape:
		switch {
		case b == '[':
			return inControl
		case bytes.IndexByte([]byte("]PX^_"), b) >= 0:
			return inString
		case b >= 0x20 && b < 0x30:
			return afterEscape
		}
	case inControl:
		if b < 0x40 || b > 0x7e {
			return inControl
		}
	case inString, passString:
		switch {
		case b == escapeByte:
			return s.state + 1
		case b != bellByte:
			return s.state
		}
	case inStringEnd, passEnd:
		if b != '\\' {
			return s.state - 1
		}
	}
	return ground
}

// replayFilter takes out of older output what would make our terminal answer: the answer would be typed into a
// program that has not asked.
type replayFilter struct {
	sequences sequences
	margins   bool // scrolling was bounded
	out       []byte
}

// pass returns what of data may be shown, valid until the next call.
func (f *replayFilter) pass(data []byte) []byte {
	f.out = f.out[:0]
	f.sequences.feed(data, func(text []byte) {
		for _, b := range text {
			if b != 0x05 { // ENQ
				f.out = append(f.out, b)
			}
		}
	}, func(sequence []byte) {
		f.margins = f.margins || isMargins(sequence)
		if !isQuestion(sequence) {
			f.out = append(f.out, sequence...)
		}
	})
	return f.out
}

// end returns what has to follow the older output before newer may: the margins of a terminal that has just got
// another size, as which ours will be taken, and what was held.
func (f *replayFilter) end() (out []byte) {
	if f.margins {
		out = append(out, noMargins...)
	}
	switch f.sequences.state {
	case afterEscape, inControl, inString, inStringEnd:
		out = append(out, f.sequences.held...)
	}
	*f = replayFilter{}
	return out
}

// noMargins lets the whole screen scroll, and leaves the cursor where it is.
const noMargins = "\x1b7\x1b[r\x1b8"

// isMargins tells whether a sequence sets the rows that scroll.
func isMargins(sequence []byte) bool {
	return sequence[1] == '[' && sequence[len(sequence)-1] == 'r' && !bytes.ContainsAny(sequence, "?>$")
}

// isQuestion tells whether a terminal answers to a sequence.
func isQuestion(sequence []byte) bool {
	kind, body := sequence[1], sequence[2:]
	switch kind {
	case 'Z': // DECID
		return true
	case '[':
		final, parameters := body[len(body)-1], body[:len(body)-1]
		switch final {
		case 'c', 'n', 'x':
			return true
		case 'p': // DECRQM
			return bytes.HasSuffix(parameters, []byte("$"))
		case 'q': // XTVERSION
			return bytes.HasPrefix(parameters, []byte(">"))
		case 'u': // keyboard flags
			return bytes.HasPrefix(parameters, []byte("?"))
		case 't': // window reports
			first, _, _ := bytes.Cut(parameters, []byte(";"))
			switch n := number(first); n {
			case 11, 13, 14, 15, 16, 18, 19, 20, 21:
				return true
			}
		}
	case ']':
		return bytes.Contains(body, []byte(";?"))
	case 'P':
		return bytes.HasPrefix(body, []byte("$q")) || bytes.HasPrefix(body, []byte("+q"))
	}
	return false
}
