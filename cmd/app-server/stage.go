package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"waldo/env"
	"waldo/env/registry"
)

const (
	goodbyeWithin = 2 * time.Second // for the last call; a lease ends what it could not
	letGoWithin   = time.Second     // for a start that a signal has called off
)

// stage is what stands around a process on our standard streams: signals and the connection.
type stage struct {
	connection  *connection
	signals     <-chan os.Signal
	stopSignals func()
	notice      lossNotice
	environment *registry.Environment
	discard     bool // what runs is to end with us; else it is left to its lease
}

func newStage(c *connection) *stage {
	s := &stage{connection: c}
	s.signals, s.stopSignals = catchSignals()
	s.notice.tell = say
	return s
}

// end leaves the session to its lease, or ends it. A command that has ended well may have left something running on
// purpose, so that is the exception.
func (s *stage) end() {
	defer s.stopSignals()
	if s.environment == nil {
		return
	}
	if s.discard {
		ctx, cancel := context.WithTimeout(context.Background(), goodbyeWithin)
		defer cancel()
		s.environment.Goodbye(ctx, false) //nolint:errcheck // the lease ends what we could not
	}
	s.environment.Close() //nolint:errcheck // returns nil
}

// untilSignal runs f, which a signal calls off.
func untilSignal[T any](ctx context.Context, s *stage, f func(context.Context) (T, error)) (result T, err error) {
	type outcome struct {
		result T
		err    error
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan outcome, 1)
	go func() {
		result, err := f(ctx)
		done <- outcome{result, err}
	}()
	select {
	case o := <-done:
		return o.result, o.err
	case sig := <-s.signals:
		name, number := signalOf(sig)
		err := &exitError{code: codeSignalled + number}
		s.discard = true
		cancel(fmt.Errorf("signal %s", name))
		select {
		case o := <-done:
			return o.result, err
		case <-time.After(letGoWithin):
			return result, err
		}
	}
}

// open connects.
func (s *stage) open(ctx context.Context, o opening) (*registry.Environment, error) {
	o.status = s.notice.status
	e, err := untilSignal(ctx, s, func(ctx context.Context) (*registry.Environment, error) {
		return s.connection.open(ctx, o)
	})
	s.environment = e
	return e, err
}

// start starts a command in a directory that -C named.
func (s *stage) start(ctx context.Context, e *registry.Environment, command env.Command, directory string) (env.Process, error) {
	return untilSignal(ctx, s, func(ctx context.Context) (env.Process, error) {
		var err error
		if command.Directory, err = startDirectory(ctx, e, directory); err != nil {
			return nil, err
		}
		process, err := e.Start(ctx, command)
		if err == nil {
			return process, nil
		}
		if blameDirectory(ctx, e, command.Directory, err) {
			return nil, &exitError{codeOurFailure, err}
		}
		return nil, startFailure(e.Explain(err))
	})
}
