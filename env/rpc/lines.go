package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"waldo/wire"
)

// A list may not fit an END, and a long one should be seen as it grows: it goes as DATA, one JSON value a line.

const (
	linesPiece  = 32 << 10              // sent at once
	linesWithin = 50 * time.Millisecond // and what is less, after this
	maxLine     = 8 << 20               // an entry of process.list holds what came in a HEAD
	maxList     = 64 << 20              // bytes of a list that is taken whole
)

// lineSender is the server's side of a list.
type lineSender struct {
	call  *wire.Call
	lines []byte
	since time.Time // of the oldest line that waits
}

// add sends value as JSON, soon.
func (l *lineSender) add(ctx context.Context, value any) error {
	return l.addWith(ctx, func(b []byte) ([]byte, error) {
		encoded, err := json.Marshal(value)
		return append(b, encoded...), err
	})
}

// addWith sends the line that appendLine appends, soon.
func (l *lineSender) addWith(ctx context.Context, appendLine func([]byte) ([]byte, error)) error {
	if len(l.lines) == 0 {
		l.since = time.Now()
	}
	longer, err := appendLine(l.lines)
	if err != nil {
		return err
	}
	l.lines = append(longer, '\n')
	if len(l.lines) >= linesPiece || time.Since(l.since) > linesWithin {
		return l.flush(ctx)
	}
	return nil
}

// raw sends bytes behind the lines, soon.
func (l *lineSender) raw(ctx context.Context, data []byte) error {
	if l.lines = append(l.lines, data...); len(l.lines) >= linesPiece {
		return l.flush(ctx)
	}
	return nil
}

// flush sends what waits.
func (l *lineSender) flush(ctx context.Context) error {
	err := l.call.Send(ctx, 0, l.lines)
	l.lines = l.lines[:0]
	return err
}

// lineReceiver is the client's side.
type lineReceiver struct {
	call *wire.Call
	part []byte // of a line whose rest has not come
}

// next takes an event of the call, hands each line that is whole now to take until that says no, and tells whether
// there is more to come.
func (l *lineReceiver) next(ctx context.Context, take func(line []byte) (more bool, err error)) (more bool, err error) {
	event, err := receive(ctx, l.call)
	if err != nil {
		return false, err
	}
	defer l.call.Took(event)
	switch event.Kind {
	case wire.EndEvent:
		if len(l.part) > 0 {
			return false, fmt.Errorf("%w: a list that ends within a line", wire.Internal)
		}
		return false, nil
	case wire.DataEvent:
	default:
		return true, nil
	}
	for rest := event.Data; ; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			if l.part = append(l.part, rest...); len(l.part) > maxLine {
				return false, fmt.Errorf("%w: a line of a list of over %d bytes", wire.TooLarge, maxLine)
			}
			return true, nil
		}
		if len(l.part) > 0 {
			line = append(l.part, line...)
			l.part = nil
		}
		if more, err := take(line); !more || err != nil {
			return false, err
		}
		rest = after
	}
}

// callList makes a call that answers with a list of moderate length.
func callList[T any](ctx context.Context, c *Client, request wire.Request) ([]T, error) {
	return do(ctx, c.link, request, func(ctx context.Context, conn *wire.Conn) ([]T, error) {
		call, err := conn.Open(request)
		if err != nil {
			return nil, err
		}
		defer call.Close() //nolint:errcheck // returns nil
		return receiveList[T](ctx, call)
	})
}

// receiveList takes a list whole.
func receiveList[T any](ctx context.Context, call *wire.Call) (list []T, err error) {
	lines := lineReceiver{call: call}
	size := 0
	for more := true; more; {
		more, err = lines.next(ctx, func(line []byte) (bool, error) {
			if size += len(line); size > maxList {
				return false, fmt.Errorf("%w: a list of over %d bytes", wire.TooLarge, maxList)
			}
			var item T
			err := json.Unmarshal(line, &item)
			list = append(list, item)
			return true, err
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
