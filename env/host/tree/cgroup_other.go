//go:build !linux

package tree

// Cgroups would make cgroups for trees. This machine has none.
type Cgroups struct{}

// NewCgroups returns a maker of none.
func NewCgroups(bool) *Cgroups { return nil }

// Close does nothing here.
func (*Cgroups) Close() {}

// CanLimit tells whether memory and process counts can be bounded.
func (*Cgroups) CanLimit() bool { return false }

// UsageOf would tell what the trees use at present. Nothing is known of that here.
func UsageOf(trees []*Tree) []Usage { return make([]Usage, len(trees)) }
