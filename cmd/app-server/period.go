package main

import (
	"errors"
	"time"
)

// period is the value of a flag that is a time from now on, so not negative.
type period struct{ d *time.Duration }

func newPeriod(d *time.Duration, usual time.Duration) period {
	*d = usual
	return period{d}
}

func (p period) String() string {
	if p.d == nil || *p.d == 0 {
		return "0" // as pflag knows a default that help leaves out
	}
	return p.d.String()
}

// Type is the word that help shows.
func (p period) Type() string { return "duration" }

func (p period) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a time such as 90s, 10m or 1h30m")
	}
	if d < 0 {
		return errors.New("it is negative")
	}
	*p.d = d
	return nil
}
