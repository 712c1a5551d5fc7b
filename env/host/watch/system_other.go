//go:build !linux

package watch

// watchAbove: the removal of a directory is told here, and to watch its parent would hold every file in it open.
const watchAbove = false

func noEvents(string) bool   { return false }
func hasNumbers(string) bool { return true }

func watchLimit(int) string {
	return "the system watches no more directories: watch a smaller directory"
}

func instanceLimit() string {
	return "this server may open no more files: end some watches or processes, or raise its limit"
}

func mountsBelow(string) string { return "" }
