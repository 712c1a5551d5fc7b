//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
)

// unit says what a figure is, and with that whether more of it is better.
type unit string

const (
	seconds        unit = "s"
	perSecond      unit = "/s"
	bytesPerSecond unit = "B/s"
	bytesHeld      unit = "B"
	count          unit = ""
	trips          unit = "round trips"
)

func (u unit) moreIsBetter() bool { return u == perSecond || u == bytesPerSecond }

// format writes a figure for people.
func (u unit) format(v float64) string {
	switch u {
	case seconds:
		switch {
		case v < 1e-3:
			return number(v*1e6) + " µs"
		case v < 1:
			return number(v*1e3) + " ms"
		}
		return number(v) + " s"
	case perSecond:
		return number(v) + "/s"
	case bytesPerSecond:
		if v < 1e9 {
			return number(v/1e6) + " MB/s"
		}
		return number(v/1e9) + " GB/s"
	case bytesHeld:
		if math.Abs(v) < 1e6 {
			return number(v/1024) + " KiB"
		}
		return number(v/1e6) + " MB"
	case trips:
		return number(v) + " trips"
	}
	return number(v)
}

// number writes three digits that count, or all before the point.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// bound is what a line is to reach: a figure, or a ratio to another side. The zero bound is none.
type bound struct {
	of    string // "", ofRaw or ofCodex
	limit float64
}

const (
	ofRaw   = "raw"
	ofCodex = "Codex"
)

// line is one line of the table. A figure of zero was not measured.
type line struct {
	Row       string
	What      string
	Unit      unit
	Waldo     float64
	Raw       float64
	RawIs     string // what the raw figure is of
	Codex     float64
	Must, Aim bound
}

// text is the bound for people.
func (l *line) text(b bound) string {
	if b == (bound{}) {
		return ""
	}
	sign := "≤"
	if l.Unit.moreIsBetter() {
		sign = "≥"
	}
	if b.of == "" {
		return sign + " " + l.Unit.format(b.limit)
	}
	return fmt.Sprintf("%s %g× %s", sign, b.limit, b.of)
}

// ratio is waldo's figure as a multiple of another's, 0 if one is missing.
func (l *line) ratio(to float64) float64 {
	if to == 0 {
		return 0
	}
	return l.Waldo / to
}

// met tells whether the line is within a bound; known is false when a figure for that is missing.
func (l *line) met(b bound) (met, known bool) {
	v := l.Waldo
	switch b.of {
	case ofRaw:
		v = l.ratio(l.Raw)
	case ofCodex:
		v = l.ratio(l.Codex)
	}
	if b == (bound{}) || v == 0 {
		return false, false
	}
	if l.Unit.moreIsBetter() {
		return v >= b.limit, true
	}
	return v <= b.limit, true
}

// verdict is the last column.
func (l *line) verdict() string {
	must, judged := l.met(l.Must)
	aim, aimed := l.met(l.Aim)
	switch {
	case judged && !must:
		return "NO"
	case aimed && aim:
		return "yes, the aim too"
	case judged:
		return "yes"
	case l.Must != bound{}:
		return "not known"
	}
	return ""
}

// report is the outcome of a run.
type report struct {
	Machine []fact
	Lines   []line
}

// fact is something about the machine or the run without which the figures say little.
type fact struct{ Name, Value string }

func (r *report) writeTable(w io.Writer) error {
	for _, f := range r.Machine {
		fmt.Fprintf(w, "%s: %s\n", f.Name, f.Value)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "row\twaldo\traw limit\tCodex\tto raw\tto Codex\tmust\taim\tmet?")
	for _, l := range r.Lines {
		raw := figure(l.Unit, l.Raw, "–")
		if l.Raw != 0 && l.RawIs != "" {
			raw += " " + l.RawIs
		}
		fmt.Fprintf(t, "%s: %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Row, l.What,
			figure(l.Unit, l.Waldo, "failed"), raw, figure(l.Unit, l.Codex, "not run"),
			times(l.ratio(l.Raw)), times(l.ratio(l.Codex)), l.text(l.Must), l.text(l.Aim), l.verdict())
	}
	return t.Flush()
}

func figure(u unit, v float64, missing string) string {
	if v == 0 {
		return missing
	}
	return u.format(v)
}

func times(ratio float64) string {
	if ratio == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f×", ratio)
}

func (r *report) writeJSON(w io.Writer) error {
	type jsonLine struct {
		Row     string  `json:"row"`
		What    string  `json:"what"`
		Unit    unit    `json:"unit,omitempty"`
		Waldo   float64 `json:"waldo,omitzero"`
		Raw     float64 `json:"raw,omitzero"`
		RawIs   string  `json:"rawIs,omitempty"`
		Codex   float64 `json:"codex,omitzero"`
		ToRaw   float64 `json:"toRaw,omitzero"`
		ToCodex float64 `json:"toCodex,omitzero"`
		Must    string  `json:"must,omitempty"`
		Aim     string  `json:"aim,omitempty"`
		Met     string  `json:"met,omitempty"`
	}
	document := struct {
		Time    time.Time         `json:"time"`
		Machine map[string]string `json:"machine"`
		Lines   []jsonLine        `json:"lines"`
	}{time.Now(), make(map[string]string), []jsonLine{}}
	for _, f := range r.Machine {
		document.Machine[f.Name] = f.Value
	}
	for _, l := range r.Lines {
		document.Lines = append(document.Lines, jsonLine{
			l.Row, l.What, l.Unit, l.Waldo, l.Raw, l.RawIs, l.Codex, l.ratio(l.Raw), l.ratio(l.Codex),
			l.text(l.Must), l.text(l.Aim), l.verdict(),
		})
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(document)
}
