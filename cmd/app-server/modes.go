package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"sync"
)

// usuallyOn are the modes of a terminal that programs turn off; of the others that count, false is usual.
var usuallyOn = map[int]bool{
	1: false, 5: false, 6: false, 7: true, 9: false, 25: true, 47: false, 66: false,
	1000: false, 1001: false, 1002: false, 1003: false, 1004: false, 1005: false, 1006: false, 1015: false, 1016: false,
	1047: false, 1049: false, 2004: false, 2026: false,
}

// modes follows what a program does to the terminal, so that it can be undone when we leave the program running
// or it ends without having done so. It may be used concurrently.
type modes struct {
	mu        sync.Mutex
	sequences sequences
	changed   map[int]bool
	keypad    bool
	margins   bool
	coloured  bool
	keyboard  int // entries on the stack of keyboard flags
}

// follow takes output that goes to the terminal.
func (m *modes) follow(data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sequences.feed(data, func([]byte) {}, m.control)
}

func (m *modes) control(sequence []byte) {
	switch kind := sequence[1]; {
	case kind == '=':
		m.keypad = true
	case kind == '>':
		m.keypad = false
	case kind == 'c': // reset
		m.changed, m.keypad, m.margins, m.coloured, m.keyboard = nil, false, false, false, 0
	case kind != '[' || len(sequence) < 3:
		return
	}
	body := sequence[2:]
	if len(body) == 0 {
		return
	}
	final, parameters := body[len(body)-1], body[:len(body)-1]
	switch {
	case (final == 'h' || final == 'l') && bytes.HasPrefix(parameters, []byte("?")):
		for _, text := range bytes.Split(parameters[1:], []byte(";")) {
			mode, err := strconv.Atoi(string(text))
			usual, counts := usuallyOn[mode]
			if err != nil || !counts {
				continue
			}
			if on := final == 'h'; on != usual {
				if m.changed == nil {
					m.changed = make(map[int]bool)
				}
				m.changed[mode] = true
			} else {
				delete(m.changed, mode)
			}
		}
	case isMargins(sequence):
		m.margins = len(parameters) > 0
	case final == 'm' && !bytes.HasPrefix(parameters, []byte(">")):
		m.coloured = len(parameters) > 0 && !bytes.Equal(parameters, []byte("0"))
	case final == 'u' && bytes.HasPrefix(parameters, []byte(">")):
		m.keyboard++
	case final == 'u' && bytes.HasPrefix(parameters, []byte("<")):
		m.keyboard = max(0, m.keyboard-max(1, number(parameters[1:])))
	}
}

func number(text []byte) int {
	n, _ := strconv.Atoi(string(text)) //nolint:errcheck // 0
	return n
}

// undo returns what brings the terminal back to the usual, and takes that as done.
func (m *modes) undo() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out bytes.Buffer
	if m.keyboard > 0 {
		fmt.Fprintf(&out, "\x1b[<%du", m.keyboard)
	}
	if m.margins {
		out.WriteString(noMargins)
	}
	var changed []int
	for mode := range m.changed {
		changed = append(changed, mode)
	}
	slices.Sort(changed)
	for _, mode := range slices.Backward(changed) {
		final := byte('l')
		if usuallyOn[mode] {
			final = 'h'
		}
		fmt.Fprintf(&out, "\x1b[?%d%c", mode, final)
	}
	if m.keypad {
		out.WriteString("\x1b>")
	}
	if m.coloured {
		out.WriteString("\x1b[0m")
	}
	m.changed, m.keypad, m.margins, m.coloured, m.keyboard = nil, false, false, false, 0
	return out.Bytes()
}
