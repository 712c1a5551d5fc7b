package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"waldo/env"
	"waldo/pathuri"
	"waldo/wire"
)

type writeParams struct {
	place
	Mode        env.WriteMode `json:"mode,omitempty"`
	Offset      int64         `json:"offset,omitempty"`
	Permissions *fs.FileMode  `json:"permissions,omitempty"`
	Modified    time.Time     `json:"modified,omitzero"`
	Parents     bool          `json:"parents,omitempty"`
	Unsynced    bool          `json:"unsynced,omitempty"`
}

// writing is the HEAD of the answer to write: the bytes that the server holds of it, behind which the client goes on.
type writing struct {
	Held int64 `json:"held"`
}

// writeEnd is the client's END of write.
type writeEnd struct {
	Commit bool `json:"commit"` // else all is given up
}

// upload is a file being written, as the server holds it for the session. It is an operation: the client that was
// cut comes back to it, and its result is kept.
type upload struct {
	writer env.FileWriter
	held   int64 // bytes taken, holes among them
	ended  bool  // the commit has begun
}

func serveWrite(ctx context.Context, s *session, call *wire.Call) error {
	var params writeParams
	if err := call.Params(&params); err != nil {
		return err
	}
	operation, first, err := s.operations().enter(s.ctx, call)
	if err != nil {
		return err
	}
	gone := ctx.Done()
	if first { // it has to be begun, even for a client that has gone; nobody else works on it
		gone = nil
	}
	select {
	case operation.serving <- struct{}{}:
		defer func() { <-operation.serving }()
	case <-gone:
		return context.Cause(ctx)
	}
	if first {
		if err := s.beginUpload(operation, params); err != nil {
			operation.finish(nil, err)
			return err
		}
	}
	if operation.upload == nil { // it was refused
		_, err := operation.await(ctx, call)
		return err
	}
	if err := call.Reply(writing{operation.upload.held}); err != nil {
		return err
	}
	receiving, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(operation.ctx, func() { cancel(context.Cause(operation.ctx)) })
	err = s.receiveUpload(receiving, call, operation)
	stop()
	cancel(nil)
	if err != nil {
		return err
	}
	result, err := operation.await(ctx, call)
	if err != nil {
		return err
	}
	return call.End(result)
}

// beginUpload opens the file, and sees to it that it is closed in the end.
func (s *session) beginUpload(operation *operation, params writeParams) error {
	release, err := s.server.hold("files being written")
	if err != nil {
		return err
	}
	writer, err := s.filesOf(params.place).Write(operation.ctx, params.Path, env.WriteOptions{
		Mode:        params.Mode,
		Offset:      params.Offset,
		Permissions: params.Permissions,
		Modified:    params.Modified,
		Parents:     params.Parents,
		Unsynced:    params.Unsynced,
	})
	if err != nil {
		release()
		return err
	}
	operation.upload = &upload{writer: writer}
	s.server.tasks.Go(func() {
		defer release()
		<-operation.ctx.Done()
		operation.serving <- struct{}{} // whoever writes has noticed, too
		writer.Close()                  //nolint:errcheck // what counts was said by Commit
		operation.finish(nil, context.Cause(operation.ctx))
		<-operation.serving
	})
	return nil
}

// receiveUpload takes what the client sends until it commits.
func (s *session) receiveUpload(ctx context.Context, call *wire.Call, operation *operation) error {
	u := operation.upload
	failed := func(err error) error {
		u.ended = true
		operation.finish(nil, err)
		return err
	}
	for !u.ended {
		event, err := call.Receive(ctx)
		if err != nil {
			return err // the client may come back
		}
		switch event.Kind {
		case wire.DataEvent:
			_, err := u.writer.Write(event.Data)
			u.held += int64(len(event.Data))
			call.Took(event)
			if err != nil {
				return failed(err)
			}
		case wire.ControlEvent:
			var c fileControl
			if err := json.Unmarshal(event.Data, &c); err != nil || c.Hole < 0 {
				return failed(fmt.Errorf("%w: CONTROL %q of a file being written", wire.Invalid, event.Data))
			}
			if err := u.writer.Skip(c.Hole); err != nil {
				return failed(err)
			}
			u.held += c.Hole
		case wire.EndEvent:
			var end writeEnd
			if err := json.Unmarshal(event.Data, &end); err != nil || !end.Commit {
				return failed(errAbandoned)
			}
			u.ended = true
			s.server.tasks.Go(func() { operation.finish(u.writer.Commit()) })
		}
	}
	return nil
}

// Write implements [env.Files].
func (f *files) Write(ctx context.Context, path pathuri.URI, options env.WriteOptions) (env.FileWriter, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("write %q: %w", path.Display(), context.Cause(ctx))
	}
	link := f.client.link
	operations := &f.client.operations
	request := wire.Request{Method: methodWrite, Op: operations.begin(), Params: writeParams{
		place:       f.at(path),
		Mode:        options.Mode,
		Offset:      options.Offset,
		Permissions: options.Permissions,
		Modified:    options.Modified,
		Parents:     options.Parents,
		Unsynced:    options.Unsynced,
	}}
	request.Acked = operations.acked()
	u := &outgoing{link: link, path: path, request: request, free: sync.OnceFunc(func() { operations.end(request.Op) })}
	u.ctx, u.cancel = context.WithCancelCause(ctx)
	return u, nil
}

// outgoing is a file being written over the wire. What the server does not hold yet is kept, so that it can be given
// again after a cut.
type outgoing struct {
	link    *link
	ctx     context.Context
	cancel  context.CancelCauseFunc
	path    pathuri.URI
	request wire.Request
	free    func() // the server may forget the operation

	// Of the step under way, which may outlive the call that began it when the network has stalled.
	stepping sync.Mutex
	conn     *wire.Conn // that the current call is on, or could not be made on
	tried    bool
	segments []segment // what the server may not hold, in order
	sent     int       // of segments, on this call
	spare    [][]byte  // buffers

	mu       sync.Mutex
	call     *wire.Call // set by a step alone
	held     int64      // by the server, as far as it was counted
	counted  int64      // of the bytes that were taken on this call
	err      error      // for ever
	written  *env.Written
	closed   bool
	reviving bool // a goroutine goes on after a cut by itself
}

// segment is a part of the content: a DATA frame, its header in front, or a hole.
type segment struct {
	framed []byte
	hole   int64
}

func newSegment(buffer, data []byte) segment {
	framed := append(append(buffer[:0], make([]byte, wire.HeaderSize)...), data...)
	wire.PutDataHeader(framed, 0, len(data))
	return segment{framed: framed}
}

func (s segment) size() int64 {
	if s.framed == nil {
		return s.hole
	}
	return int64(len(s.framed) - wire.HeaderSize)
}

// Write implements io.Writer.
func (u *outgoing) Write(p []byte) (n int, err error) {
	err = u.step(func() error {
		for rest := p; len(rest) > 0; {
			piece := rest[:min(len(rest), wire.MaxData)]
			rest = rest[len(piece):]
			if err := u.give(newSegment(u.buffer(len(piece)), piece)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Skip implements [env.FileWriter].
func (u *outgoing) Skip(n int64) error {
	if n < 0 {
		return fmt.Errorf("%w: a hole of %d bytes", env.ErrInvalid, n)
	}
	return u.step(func() error { return u.give(segment{hole: n}) })
}

// Taken implements [env.FileWriter].
func (u *outgoing) Taken() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trim()
	if u.call != nil && u.call.Conn().Err() != nil && len(u.segments) > 0 && !u.reviving && u.err == nil {
		// Who waits for this number must not have to write more for it.
		u.reviving = u.link.task(u.revive) == nil
	}
	return u.held
}

// revive goes on after a cut that nobody else has noticed.
func (u *outgoing) revive() {
	u.stepping.Lock()
	defer u.stepping.Unlock()
	for again := true; again && u.ctx.Err() == nil; {
		var err error
		if again, err = u.lost(u.flow()); err != nil {
			u.fail(err)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reviving = false
}

// fail makes err the error of all that follow, unless there is one.
func (u *outgoing) fail(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = doing("write", u.path, err)
	}
	return u.err
}

// Commit implements [env.FileWriter].
func (u *outgoing) Commit() (env.Written, error) {
	u.mu.Lock()
	done := u.written
	u.mu.Unlock()
	if done != nil {
		return *done, nil
	}
	var written env.Written
	err := u.step(func() (err error) {
		written, err = u.commit()
		return err
	})
	if err != nil {
		return env.Written{}, err
	}
	u.free()
	u.cancel(nil)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.written, u.err = &written, fmt.Errorf("write %q after it was committed: %w", u.path.Display(), fs.ErrClosed)
	return written, nil
}

// Close implements [env.FileWriter].
func (u *outgoing) Close() error {
	u.mu.Lock()
	done := u.closed || u.written != nil
	u.closed = true
	u.mu.Unlock()
	u.fail(fs.ErrClosed) //nolint:errcheck // it is for the calls that follow
	u.cancel(nil)
	if done {
		return nil
	}
	if u.link.task(u.giveUp) != nil {
		u.free() // the server has the lease to notice
	}
	return nil
}

// giveUp ends an upload that is not to be.
func (u *outgoing) giveUp() {
	u.stepping.Lock()
	defer u.stepping.Unlock()
	defer u.free() // should the server not be told, the next operation says it
	ctx, cancel := context.WithTimeout(u.link.ctx, lingerWithin)
	defer cancel()
	for call := u.call; u.tried; {
		if call != nil && call.End(writeEnd{}) == nil {
			if endCall(ctx, call); call.Conn().Err() == nil {
				return
			}
		}
		conn, err := u.link.get(ctx)
		if err != nil {
			return
		}
		if call, err = conn.Open(u.request); err != nil && !connectionLost(conn, err) {
			return
		}
	}
}

// step does one of the caller's steps in a goroutine of the link, so that it returns when ctx ends even if the network
// has stalled a write. An error of a step is that of all that follow.
func (u *outgoing) step(do func() error) error {
	u.mu.Lock()
	err := u.err
	u.mu.Unlock()
	if err != nil {
		return err
	}
	u.link.begin()
	defer u.link.end()
	done := make(chan error, 1)
	if err = context.Cause(u.ctx); err == nil {
		err = u.link.task(func() {
			u.stepping.Lock()
			defer u.stepping.Unlock()
			done <- do()
		})
	}
	if err == nil {
		select {
		case err = <-done:
		case <-u.ctx.Done():
			err = context.Cause(u.ctx)
		}
	}
	if err != nil {
		return u.fail(err)
	}
	return nil
}

// give sends one more segment.
func (u *outgoing) give(s segment) error {
	u.mu.Lock()
	u.segments = append(u.segments, s)
	u.mu.Unlock()
	for {
		if again, err := u.lost(u.flow()); !again {
			return err
		}
	}
}

// commit ends the upload and waits for its result.
func (u *outgoing) commit() (written env.Written, err error) {
	for {
		written, err = u.end()
		if again, err := u.lost(err); !again {
			return written, err
		}
	}
}

func (u *outgoing) end() (written env.Written, err error) {
	if err := u.flow(); err != nil {
		return written, err
	}
	if err := u.call.End(writeEnd{Commit: true}); err != nil {
		return written, err
	}
	for {
		event, err := u.call.Receive(u.ctx)
		if err != nil {
			return written, err
		}
		u.call.Took(event)
		if event.Kind != wire.EndEvent {
			continue
		}
		if err := json.Unmarshal(event.Data, &written); err != nil {
			return written, fmt.Errorf("result of %s: %w", u.request.Method, err)
		}
		u.leave()
		u.mu.Lock()
		defer u.mu.Unlock()
		for _, s := range u.segments {
			u.held += s.size()
		}
		u.segments = nil
		return written, nil
	}
}

// lost judges what stopped a step: after a cut it is to be done again.
func (u *outgoing) lost(err error) (again bool, _ error) {
	if errors.Is(err, wire.ErrEnded) { // the server has had enough, and said why
		for err = nil; err == nil; {
			_, err = u.call.Receive(u.ctx)
		}
	}
	if err == nil || u.conn == nil || !connectionLost(u.conn, err) {
		return false, err
	}
	u.leave()
	return true, nil
}

// leave lets go of the current call.
func (u *outgoing) leave() {
	u.mu.Lock()
	call := u.call
	u.call = nil
	u.mu.Unlock()
	if call != nil {
		call.Close() //nolint:errcheck // returns nil
	}
}

// flow sends what the current call was not given yet.
func (u *outgoing) flow() error {
	if u.call != nil && u.call.Conn().Err() != nil {
		u.leave()
	}
	if u.call == nil {
		if err := u.open(); err != nil {
			return err
		}
	}
	for {
		s, more := u.next()
		if !more {
			return nil
		}
		var err error
		if s.framed != nil {
			err = u.call.SendFramed(u.ctx, s.framed)
		} else {
			err = u.call.Control(fileControl{Hole: s.hole})
		}
		if err != nil {
			return err
		}
		u.mu.Lock()
		u.sent++
		u.mu.Unlock()
	}
}

// next is the first segment that the current call was not given.
func (u *outgoing) next() (s segment, more bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trim()
	if u.sent == len(u.segments) {
		return s, false
	}
	return u.segments[u.sent], true
}

// open makes a call; but for the first one it begins behind what the server holds.
func (u *outgoing) open() error {
	u.conn = nil
	conn, err := u.link.get(u.ctx)
	if err != nil { // for good
		return err
	}
	u.conn = conn
	call, err := conn.Open(u.request)
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.call, u.counted, u.sent = call, 0, 0
	u.mu.Unlock()
	if !u.tried {
		u.tried = true
		return nil
	}
	event, err := call.Receive(u.ctx)
	if err != nil {
		return err
	}
	answer := writing{-1}
	if err := json.Unmarshal(event.Data, &answer); err != nil || answer.Held < 0 {
		_, err := call.Receive(u.ctx) // the refusal
		return err
	}
	return u.resume(answer.Held)
}

// resume lets go of what the server holds.
func (u *outgoing) resume(held int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if held < u.held {
		return fmt.Errorf("%w: the server has lost %d bytes of what it held", wire.Internal, u.held-held)
	}
	for held > u.held && len(u.segments) > 0 {
		s := u.segments[0]
		n := min(held-u.held, s.size())
		u.held += n
		switch {
		case n == s.size():
			u.segments = u.segments[1:]
		case s.framed != nil:
			u.segments[0] = newSegment(nil, s.framed[wire.HeaderSize+n:])
		default:
			u.segments[0].hole -= n
		}
	}
	return nil
}

// trim lets go of what the server has taken on this call: whole segments, since a smaller part is told at the next
// call. A hole is taken when something behind it is. u.mu is held.
func (u *outgoing) trim() {
	if u.call == nil {
		return
	}
	for taken := u.call.Taken(); u.sent > 0 && taken > u.counted; u.sent-- {
		s := u.segments[0]
		if s.framed != nil {
			if s.size() > taken-u.counted {
				return
			}
			u.counted += s.size()
			if len(u.spare) < maxSpare {
				u.spare = append(u.spare, s.framed)
			}
		}
		u.held += s.size()
		u.segments = u.segments[1:]
	}
}

// maxSpare is how many buffers are kept for the next bytes.
const maxSpare = 8

// buffer returns one that holds a frame of n bytes, or nil.
func (u *outgoing) buffer(n int) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := len(u.spare) - 1
	if last < 0 || cap(u.spare[last]) < wire.HeaderSize+n {
		return make([]byte, 0, wire.HeaderSize+n)
	}
	b := u.spare[last]
	u.spare = u.spare[:last]
	return b
}
