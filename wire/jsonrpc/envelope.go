package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// message is what has come: a request or notification if there is a method, else an answer.
type message struct {
	Request
	result json.RawMessage // of an answer
	err    *Error          // of an answer
}

// noID stands in answers to messages that have none.
var noID = IntegerID(-1)

// parse takes a message apart. If it is none, the id is found as far as it can be, for the answer.
func parse(data []byte) (message, error) {
	m, err := envelope(data)
	if err != nil {
		m = message{Request: Request{ID: salvageID(data)}}
	}
	return m, err
}

func envelope(data []byte) (m message, err error) {
	s := scanner{data: data}
	if s.peek() != '{' {
		if err := s.value(); err != nil {
			return m, err
		}
		return m, errors.New("expected a JSON-RPC object")
	}
	var id, method, params, result, failure, trace []byte
	err = s.object(func(key []byte) (err error) {
		var member *[]byte
		switch string(key) {
		case "id":
			member = &id
		case "method":
			member = &method
		case "params":
			member = &params
		case "result":
			member = &result
		case "error":
			member = &failure
		case "trace":
			member = &trace
		default:
			return s.value()
		}
		*member, err = s.skip()
		return err
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return m, err
	}
	if id != nil {
		if m.ID, err = parseID(id); err != nil {
			return m, err
		}
	}
	if trace != nil {
		if err := Decode(trace, new(*traceContext)); err != nil {
			return m, fmt.Errorf("trace: %w", err)
		}
	}
	switch {
	case method != nil:
		if method[0] != '"' {
			return m, errors.New("method is not a string")
		}
		m.Method = text(method)
		m.Params = params
		if params == nil {
			m.Params = json.RawMessage("null")
		}
		return m, nil
	case m.ID.IsZero():
		return m, errors.New("neither a method nor an id")
	case result != nil:
		m.result = result
		return m, nil
	case failure != nil:
		m.err = new(Error)
		if err := Decode(failure, m.err); err != nil {
			return m, fmt.Errorf("error: %w", err)
		}
		return m, nil
	}
	return m, errors.New("neither a method, a result nor an error")
}

// traceContext goes with a request for whoever traces it, which nobody here does.
type traceContext struct {
	Parent *string `json:"traceparent"`
	State  *string `json:"tracestate"`
}

// text is what a string that has been gone over says.
func text(quoted []byte) string {
	inside := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inside, '\\') >= 0 {
		inside = unescape(inside)
	}
	return string(inside)
}

// parseID judges a value that has been gone over.
func parseID(raw []byte) (ID, error) {
	if raw[0] == '"' {
		return ID{string(raw)}, nil
	}
	if _, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return ID{string(raw)}, nil
	}
	return ID{}, fmt.Errorf("id is neither a string nor an integer between %d and %d", math.MinInt64, math.MaxInt64)
}

// salvageID finds the id in a message that is wrong, or of which there is only the start. It is noID where there is
// none, or more than one, and where the message looks like an answer, whose id is one of our own.
func salvageID(data []byte) ID {
	found, seen, request, answer := noID, 0, false, false
	s := scanner{data: data}
	if s.peek() != '{' {
		return noID
	}
	depth, key := 0, false // whether a string that comes next is a key of the message
	for s.at < len(data) {
		switch c := s.peek(); c {
		case 0:
			s.at++ // a zero byte, or the end
		case '{', '[':
			depth++
			key = depth == 1
			s.at++
		case '}', ']':
			if depth--; depth == 0 {
				s.at = len(data)
			}
			key = false
			s.at++
		case ',':
			key = depth == 1
			s.at++
		case '"':
			name := rawString(&s)
			if !key || s.peek() != ':' {
				key = false
				continue
			}
			key = false
			s.at++
			request = request || string(name) == "method"
			answer = answer || string(name) == "result" || string(name) == "error"
			if string(name) != "id" {
				continue
			}
			seen++
			s.space()
			value := scanner{data: data, at: s.at}
			raw, err := value.scalar()
			// Of a number at the very end there may have been more.
			if err != nil || value.at == len(data) {
				continue
			}
			if id, err := parseID(raw); err == nil {
				found = id
			}
		default:
			s.at++
		}
	}
	if seen > 1 || answer && !request {
		return noID
	}
	return found
}

// rawString goes over a string without judging it, and returns what is between the quotes.
func rawString(s *scanner) []byte {
	start := s.at + 1
	for i := start; i < len(s.data); i++ {
		switch s.data[i] {
		case '\\':
			i++
		case '"':
			s.at = i + 1
			return s.data[start:i]
		}
	}
	s.at = len(s.data)
	return nil
}
