package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"waldo/env/rpc"
	"waldo/env/rpc/codex"
	"waldo/wire/jsonrpc"
	"waldo/wire/listen"
)

// doors are the ways in to a server of a machine. A door that is nil refuses.
func doors(ctx context.Context, server *rpc.Server, machine metered, log *slog.Logger) (listen.Doors, error) {
	web := http.NewServeMux()
	web.Handle("GET /metrics", metrics(server, machine))
	door, err := codex.NewDoor(ctx, server, machine, codex.Options{Environ: childEnviron(), Log: log})
	if err != nil {
		return listen.Doors{}, err
	}
	web.Handle("/", door)
	return listen.Doors{
		Native: func(ctx context.Context, c net.Conn, p *listen.Peer) {
			from, err := origin(p)
			if err == nil {
				err = server.Serve(ctx, c, from, p.Authenticate)
			}
			log.Info("connection ended", "remote", p.Remote, "error", err)
		},
		HTTP: web,
		Lines: func(ctx context.Context, c net.Conn, p *listen.Peer) {
			from, err := origin(p)
			if err != nil {
				log.Info("connection ended", "remote", p.Remote, "error", err)
				return
			}
			last := p.Remote == "stdio" // nobody comes a second time
			door.Serve(ctx, jsonrpc.NewLines(c, jsonrpc.Options{}), codex.ServeOptions{Remote: p.Remote, Origin: from, Last: last})
		},
	}, nil
}
