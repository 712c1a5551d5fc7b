//go:build unix && !darwin

package host

// productName is what the system calls itself where there is no os-release: nothing but the kernel's name.
func productName() string { return "" }
