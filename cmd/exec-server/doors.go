package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"waldo/env/rpc"
	"waldo/wire/listen"
)

// doors are the ways in to a server of a machine. A door that is nil refuses.
func doors(server *rpc.Server, machine metered, log *slog.Logger) listen.Doors {
	web := http.NewServeMux()
	web.Handle("GET /metrics", metrics(server, machine))
	return listen.Doors{
		Native: func(ctx context.Context, c net.Conn, p *listen.Peer) {
			from, err := origin(p)
			if err == nil {
				err = server.Serve(ctx, c, from, p.Authenticate)
			}
			log.Info("connection ended", "remote", p.Remote, "error", err)
		},
		HTTP: web,
	}
}
