package main

import (
	"context"
	"log/slog"
	"net"

	"waldo/env/rpc"
	"waldo/wire/listen"
)

// doors are the ways in to a server. A door that is nil refuses.
func doors(server *rpc.Server, log *slog.Logger) listen.Doors {
	return listen.Doors{
		Native: func(ctx context.Context, c net.Conn, p *listen.Peer) {
			from, err := origin(p)
			if err == nil {
				err = server.Serve(ctx, c, from, p.Authenticate)
			}
			log.Info("connection ended", "remote", p.Remote, "error", err)
		},
	}
}
