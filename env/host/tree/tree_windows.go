package tree

// A Tree is everything that descends from a leader. There is none on this machine yet.
type Tree struct{}

// Terminate would ask everything in the tree to end.
func (*Tree) Terminate(bool) bool { return false }

// Kill would end everything in the tree.
func (*Tree) Kill() {}

// Alive tells whether anything of the tree still runs.
func (*Tree) Alive() bool { return false }

// Broken says which limit the tree ran into, "" if none.
func (*Tree) Broken() string { return "" }

// Settle would give back what finds the tree, if nothing is left in it.
func (*Tree) Settle() {}

// Close would give that back whatever is in it.
func (*Tree) Close() {}
