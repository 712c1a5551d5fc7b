//go:build !windows

package registry

import "io/fs"

// openToOthers tells whether other users may read a file.
func openToOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o044 != 0 }
