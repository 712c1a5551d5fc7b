package host

import (
	"context"
	"fmt"
	"net"
	"strings"

	"waldo/env"
)

// Dial implements env.Dialer.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch {
	case network != "tcp" && network != "unix":
		return nil, fmt.Errorf("%w: network %q; it is tcp or unix", env.ErrInvalid, network)
	case address == "" || strings.ContainsRune(address, 0):
		return nil, fmt.Errorf("%w: address %q", env.ErrInvalid, address)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.closing, func() { cancel(errClosing) })()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("dial %s %q: %w", network, address, err)
	}
	return conn, nil
}
