package env

import (
	"io/fs"
	"time"
)

// FileInfo describes one file.
type FileInfo struct {
	Size     int64       `json:"size"`
	Mode     fs.FileMode `json:"mode"` // type and permission bits, as io/fs has them
	Modified time.Time   `json:"modified"`
}
