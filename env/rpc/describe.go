package rpc

import (
	"context"
	"encoding/json"
	"fmt"

	"waldo/env"
	"waldo/wire"
)

// Describe returns what the machine said of itself when the connection was made.
func (c *Client) Describe(ctx context.Context) (env.Info, error) {
	if ctx.Err() != nil {
		return env.Info{}, context.Cause(ctx)
	}
	if err := c.Ready(ctx); err != nil {
		return env.Info{}, err
	}
	welcome, _ := c.link.greeting()
	if len(welcome.Environment) == 0 {
		return call[env.Info](ctx, c, wire.Request{Method: methodDescribe})
	}
	var info env.Info
	if err := json.Unmarshal(welcome.Environment, &info); err != nil {
		return info, fmt.Errorf("description of the environment: %w", err)
	}
	return info, nil
}

func serveDescribe(ctx context.Context, s *session, _ none) (env.Info, error) {
	return s.server.env.Describe(ctx)
}
