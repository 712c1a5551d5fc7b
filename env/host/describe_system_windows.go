package host

import (
	"fmt"

	"golang.org/x/sys/windows"
)

const workstation = 1 // VER_NT_WORKSTATION

// systemVersions returns the version of the kernel, and the name and version of the system around it.
func systemVersions() (kernel, distribution string) {
	v := windows.RtlGetVersion()
	kernel = fmt.Sprintf("%d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
	name := "Windows"
	switch {
	case v.ProductType != workstation:
		name = "Windows Server"
	case v.MajorVersion == 10 && v.BuildNumber >= 22000:
		name = "Windows 11" // which still says that it is 10
	case v.MajorVersion == 10:
		name = "Windows 10"
	}
	return kernel, fmt.Sprintf("%s (build %d)", name, v.BuildNumber)
}
