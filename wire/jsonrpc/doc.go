// Package jsonrpc is a two-way JSON-RPC peer on a WebSocket or on lines, as Codex speaks it: the version member is
// neither sent nor asked for, ids are strings or 64-bit integers, there are no batches.
//
// # Reading
//
// A message is looked at once, whole: syntax, UTF-8, duplicate keys, nesting and the number of values. What is wrong is
// answered with CodeInvalidRequest and the message's id, or -1 where none is to be found, and the connection goes on.
// The same holds for a message over the limit, which is thrown away as it comes. Decode then gives what the params hold
// to a struct, with keys compared exactly.
//
// # Writing
//
// One goroutine writes. Replies up to 16 KiB, errors and calls go before everything that waits; notifications and
// larger replies keep their order among themselves and wait for room, so that whoever makes them is paced by the
// connection. Nothing that is being sent is cut for something small, except by pings and pongs.
package jsonrpc
