//go:build !linux

package listen

import "net"

// tune has nothing to set here.
func tune(net.Conn) {}
