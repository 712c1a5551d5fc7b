//go:build !linux

package watch

func helper(string) {}
