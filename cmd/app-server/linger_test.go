package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestLingerBeginsWhenEverythingIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		over := make(chan time.Duration, 1)
		l := &linger{wait: 2 * time.Second, over: func() { over <- time.Since(began) }}
		defer l.stop()
		l.delivered(10)
		l.exit(100) // a slow reader has 90 bytes to go
		<-time.After(time.Minute)
		l.delivered(99)
		<-time.After(time.Minute)
		l.delivered(100)
		l.delivered(200) // what a grandchild writes does not begin it again
		if took, want := <-over, 2*time.Minute+2*time.Second; took != want {
			t.Errorf("over after %v, want %v", took, want)
		}
	})
}

func TestLingerStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &linger{wait: time.Second, over: func() { t.Error("it is over although it was stopped") }}
		l.exit(0)
		l.stop()
		<-time.After(time.Minute)
		synctest.Wait()
	})
}

func TestLossNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		n := lossNotice{tell: func(format string, args ...any) { told = append(told, format) }}
		cut := errors.New("connection lost")
		for range 5 { // a blink
			n.status(cut)
			<-time.After(tellLossAfter / 2)
			n.status(nil)
		}
		synctest.Wait()
		if len(told) > 0 {
			t.Fatalf("told %q of a blink", told)
		}
		n.status(cut)
		<-time.After(2 * tellLossAfter)
		synctest.Wait()
		n.status(nil)
		if len(told) != 2 {
			t.Errorf("told %q, want the loss and the return", told)
		}
	})
}
