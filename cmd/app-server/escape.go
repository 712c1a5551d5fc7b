package main

// An escape is what a person asks of us, and not of the program on the terminal.
type escape int

const (
	noEscape escape = iota
	detachEscape
	helpEscape
)

const escapeHelp = "~. detaches, ~? shows this, ~~ types one ~; at the start of a line"

// escapes finds the escapes in what is typed: a ~ at the start of a line and what follows it.
type escapes struct {
	within bool // the line has begun
	held   bool // a ~ waits for what follows
}

// feed takes what was typed and returns what goes to the program, and at the most one escape; rest is what was
// typed behind that.
func (e *escapes) feed(typed []byte) (out []byte, found escape, rest []byte) {
	out = make([]byte, 0, len(typed)+1)
	for i, b := range typed {
		if e.held {
			e.held = false
			switch b {
			case '.':
				return out, detachEscape, typed[i+1:]
			case '?':
				return out, helpEscape, typed[i+1:]
			case '~':
				e.within = true
				out = append(out, '~')
				continue
			}
			out = append(out, '~')
		} else if b == '~' && !e.within {
			e.held = true
			continue
		}
		e.within = b != '\r' && b != '\n'
		out = append(out, b)
	}
	return out, noEscape, nil
}
