package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
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
	Keep        bool          `json:"keepPermissions,omitempty"`
}

// writing is the HEAD of the answer to write: the bytes that the server holds of it, behind which the client goes on.
type writing struct {
	Held *int64 `json:"held,omitempty"`
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
	operation, first, err := s.enter(call)
	if err != nil {
		return err
	}
	if !first {
		select {
		case operation.serving <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() { <-operation.serving }()
	if first { // even for a client that has gone
		if err := s.beginUpload(operation, params); err != nil {
			operation.finish(nil, err)
		}
	}
	if operation.upload == nil { // it was refused
		_, err := operation.await(ctx, call)
		return err
	}
	held := operation.upload.held
	if err := call.Reply(writing{&held}); err != nil {
		return err
	}
	receiving, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(operation.ctx, func() { cancel(context.Cause(operation.ctx)) })
	err = s.receiveUpload(receiving, call, operation)
	stop()
	cancel(nil)
	if ctx.Err() != nil {
		return operation.left(ctx, call)
	}
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

		KeepPermissions: params.Keep,
	})
	if err != nil {
		release()
		return err
	}
	operation.upload = &upload{writer: writer}
	s.server.task(func() {
		defer release()
		<-operation.ctx.Done()
		operation.serving <- struct{}{} // whoever writes has noticed, too
		if operation.upload.ended {     // and who commits
			<-operation.done
		}
		writer.Close() //nolint:errcheck // what counts was said by Commit
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
			if err := json.Unmarshal(event.Data, &c); err != nil || c.Hole < 0 || c.Hole > math.MaxInt64-u.held {
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
			s.server.task(func() {
				written, err := u.writer.Commit()
				written.Info = crossing(written.Info)
				operation.finish(written, err)
			})
		}
	}
	return nil
}

// Write implements [env.Files].
func (f *files) Write(ctx context.Context, path pathuri.URI, options env.WriteOptions) (env.FileWriter, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("write %q: %w", path.Display(), context.Cause(ctx))
	}
	request := wire.Request{Method: methodWrite, Params: writeParams{
		place:       f.at(path),
		Mode:        options.Mode,
		Offset:      options.Offset,
		Permissions: options.Permissions,
		Modified:    options.Modified,
		Parents:     options.Parents,
		Unsynced:    options.Unsynced,
		Keep:        options.KeepPermissions,
	}}
	u := &outgoing{client: f.client, path: path, request: request}
	u.ctx, u.cancel = context.WithCancelCause(ctx)
	return u, nil
}

// outgoing is a file being written over the wire. What the server does not hold yet is kept, so that it can be given
// again after a cut.
type outgoing struct {
	client  *Client
	ctx     context.Context
	cancel  context.CancelCauseFunc
	path    pathuri.URI
	request wire.Request // an operation from the first call on

	// Of the step under way, which may outlive the call that began it when the network has stalled.
	stepping sync.Mutex
	conn     *wire.Conn // that the current call is on, or could not be made on
	tried    bool
	asked    bool // to commit

	mu       sync.Mutex
	segments []segment  // what the server may not hold, in order
	sent     int        // of segments, on this call
	spare    [][]byte   // buffers
	call     *wire.Call // set by a step alone
	held     int64      // by the server, as far as it was counted
	counted  int64      // of the bytes that were taken on this call
	err      error      // for ever
	written  *env.Written
	closed   bool
	reviving bool // a goroutine goes on after a cut by itself
}

const (
	maxSpare = 8 // buffers kept for the next bytes
	// maxUntaken is how many segments may be sent and not taken: the other end bounds the CONTROL that waits.
	maxUntaken = 1 << 14
)

// segment is a part of the content: a DATA frame, its header in front, or a hole.
type segment struct {
	framed []byte
	hole   int64
}

// newSegment makes one of data in a buffer of its size.
func newSegment(buffer, data []byte) segment {
	copy(buffer[wire.HeaderSize:], data)
	wire.PutDataHeader(buffer, 0, len(data))
	return segment{framed: buffer}
}

func (s segment) size() int64 {
	if s.framed == nil {
		return s.hole
	}
	return int64(len(s.framed) - wire.HeaderSize)
}

// Write implements io.Writer.
func (u *outgoing) Write(p []byte) (n int, err error) {
	if err := u.check(); err != nil {
		return 0, err
	}
	for n < len(p) {
		// The copy is made here: a step may outlive this call, and p is the caller's again then.
		data := p[n:min(len(p), n+wire.MaxData)]
		s := newSegment(u.buffer(len(data)), data)
		if err := u.step(func() error { return u.give(s) }); err != nil {
			return n, err
		}
		n += len(data)
	}
	return n, nil
}

// Skip implements [env.FileWriter]. A hole is sent with what comes behind it, so that many are one.
func (u *outgoing) Skip(n int64) error {
	if err := u.check(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if n == 0 {
		return nil
	}
	var before int64
	last := len(u.segments) - 1
	if merged := last >= u.sent && u.segments[last].framed == nil; merged {
		before = u.segments[last].hole
	} else {
		last++
	}
	if n < 0 || n > math.MaxInt64-before {
		return fmt.Errorf("%w: write %q: a hole of %d bytes", env.ErrInvalid, u.path.Display(), n)
	}
	u.segments = append(u.segments[:last], segment{hole: before + n})
	return nil
}

// Taken implements [env.FileWriter].
func (u *outgoing) Taken() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trim()
	if u.call != nil && u.call.Conn().Err() != nil && len(u.segments) > 0 && !u.reviving && u.err == nil {
		// Who waits for this number must not have to write more for it.
		u.reviving = u.client.link.task(u.revive) == nil
	}
	return u.held
}

// revive goes on after a cut that nobody else has noticed.
func (u *outgoing) revive() {
	u.stepping.Lock()
	defer u.stepping.Unlock()
	if err := u.again(func() error { return u.flow(false) }); err != nil {
		u.fail(err) //nolint:errcheck // it is for the calls that follow
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reviving = false
}

// check tells why nothing more is taken.
func (u *outgoing) check() error {
	u.mu.Lock()
	err := u.err
	u.mu.Unlock()
	if err == nil && u.ctx.Err() != nil {
		err = u.fail(context.Cause(u.ctx))
	}
	return err
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
	if err := u.step(func() (err error) {
		return u.again(func() error {
			written, err = u.end()
			return err
		})
	}); err != nil {
		return env.Written{}, err
	}
	u.free()
	u.cancel(nil)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.written, u.err = &written, fmt.Errorf("write %q after it was committed: %w", u.path.Display(), fs.ErrClosed)
	return written, nil
}

// free lets the server forget the operation.
func (u *outgoing) free() { u.client.operations.end(u.request.Op) }

// Close implements [env.FileWriter]. It waits a little so that nothing is left when it returns.
func (u *outgoing) Close() error {
	u.mu.Lock()
	done := u.closed || u.written != nil
	u.closed = true
	u.mu.Unlock()
	u.fail(fs.ErrClosed) //nolint:errcheck // it is for the calls that follow
	u.cancel(nil)
	over := make(chan struct{})
	if done || u.client.link.task(func() { defer close(over); u.giveUp() }) != nil {
		return nil
	}
	timer := time.NewTimer(detachWithin)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	}
	return nil
}

// giveUp ends an upload that is not to be.
func (u *outgoing) giveUp() {
	u.stepping.Lock()
	defer u.stepping.Unlock()
	defer u.free() // should the server not be told, the next operation says it
	ctx, cancel := context.WithTimeout(u.client.link.ctx, lingerWithin)
	defer cancel()
	for call := u.call; u.tried && ctx.Err() == nil; {
		if call != nil {
			err := call.End(writeEnd{})
			for err == nil { // up to the server's END
				_, err = call.Receive(ctx)
			}
			call.Close() //nolint:errcheck // returns nil
			if !connectionLost(call.Conn(), err) {
				return
			}
		}
		conn, err := u.client.link.get(ctx)
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
	if err := u.check(); err != nil {
		return err
	}
	link := u.client.link
	link.begin()
	defer link.end()
	done := make(chan error, 1)
	err := link.task(func() {
		u.stepping.Lock()
		defer u.stepping.Unlock()
		done <- do()
	})
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
	return u.again(func() error { return u.flow(false) })
}

// again does a part of a step until no cut stops it.
func (u *outgoing) again(do func() error) error {
	for {
		err := do()
		if errors.Is(err, wire.ErrEnded) { // the server has had enough, and said why
			for err = nil; err == nil; {
				_, err = u.call.Receive(u.ctx)
			}
			if err == io.EOF {
				err = errUnasked
			}
		}
		if err == nil || u.ctx.Err() != nil || u.conn == nil || !connectionLost(u.conn, err) {
			return err
		}
		u.leave()
	}
}

var errUnasked = fmt.Errorf("%w: the server has ended what was not committed", wire.Internal)

// end commits, and waits for the result.
func (u *outgoing) end() (written env.Written, err error) {
	if err := u.flow(true); err != nil {
		return written, err
	}
	u.asked = true
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
			return written, fmt.Errorf("%w: result of %s: %w", wire.Internal, u.request.Method, err)
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

// flow sends what the current call was not given yet; all says that nothing comes behind it.
func (u *outgoing) flow(all bool) error {
	if u.call != nil && u.call.Conn().Err() != nil {
		u.leave()
	}
	if u.call == nil {
		if err := u.open(); err != nil {
			return err
		}
	}
	for u.ctx.Err() == nil {
		s, full := u.next(all)
		var err error
		switch {
		case full:
			var event wire.Event
			if event, err = u.call.Receive(u.ctx); err == nil && event.Kind == wire.EndEvent {
				err = errUnasked
			}
		case s.framed != nil:
			err = u.call.SendFramed(u.ctx, s.framed)
		case s.hole > 0:
			err = u.call.Control(fileControl{Hole: s.hole})
		default:
			return nil
		}
		if err != nil {
			return err
		}
		if !full {
			u.mu.Lock()
			u.sent++
			u.mu.Unlock()
		}
	}
	return context.Cause(u.ctx)
}

// next is the first segment that the current call was not given. A hole at the end may grow until all is known. full
// says that others have to be taken first.
func (u *outgoing) next(all bool) (s segment, full bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trim()
	if u.sent == len(u.segments) {
		return s, false
	}
	s = u.segments[u.sent]
	if s.framed == nil && u.sent == len(u.segments)-1 && !all {
		return segment{}, false
	}
	return s, u.sent >= maxUntaken
}

// open makes a call; but for the first one it begins behind what the server holds.
func (u *outgoing) open() error {
	u.conn = nil
	conn, err := u.client.link.get(u.ctx)
	if err != nil { // for good
		if u.asked && u.ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", env.ErrUnknownOutcome, err)
		}
		return err
	}
	u.conn = conn
	if u.request.Op == 0 {
		u.request.Op = u.client.operations.begin()
		u.request.Acked = u.client.operations.acked()
	}
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
	answer, err := reply(u.ctx, call, u.request, func(answer writing) bool { return answer.Held != nil })
	if err != nil {
		return err
	}
	return u.resume(*answer.Held)
}

// resume lets go of what the server holds.
func (u *outgoing) resume(held int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for held > u.held && len(u.segments) > 0 {
		s := u.segments[0]
		n := min(held-u.held, s.size())
		u.held += n
		switch {
		case n == s.size():
			u.segments = u.segments[1:]
		case s.framed != nil:
			rest := s.framed[wire.HeaderSize+n:]
			u.segments[0] = newSegment(make([]byte, wire.HeaderSize+len(rest)), rest)
		default:
			u.segments[0].hole -= n
		}
	}
	if held != u.held {
		return fmt.Errorf("%w: the server holds %d bytes of which it can hold %d", wire.Internal, held, u.held)
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

// buffer returns one for a frame of n bytes.
func (u *outgoing) buffer(n int) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := len(u.spare) - 1
	if last < 0 || cap(u.spare[last]) < wire.HeaderSize+n {
		return make([]byte, wire.HeaderSize+n)
	}
	b := u.spare[last]
	u.spare = u.spare[:last]
	return b[:wire.HeaderSize+n]
}
