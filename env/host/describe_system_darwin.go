package host

import "golang.org/x/sys/unix"

// productName is what the system calls itself.
func productName() string {
	version, err := unix.Sysctl("kern.osproductversion")
	if err != nil {
		return ""
	}
	return "macOS " + version
}
