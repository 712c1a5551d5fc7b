package codex

import (
	"strconv"

	"waldo/env/rpc"
)

// count counts a call that has ended, by its answer's code.
func (c *connection) count(method string, err error) {
	outcome := rpc.OK
	if err != nil {
		outcome = strconv.Itoa(answerOf(err).Code)
	}
	c.door.server.CountCall(rpc.CodexDoor, method, outcome)
}
