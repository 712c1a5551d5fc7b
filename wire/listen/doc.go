// Package listen opens the doors of both servers and finds the way to them: addresses, the first byte of a
// connection, TLS and pins, tokens, Origin and Host, and the client's dialing of the same addresses.
//
// # One address, every door
//
// A listener looks at the first byte of a connection. 0x00 is the native protocol, 0x16 is TLS (the next byte is
// looked at again inside), a letter is HTTP/1.1. HTTP answers /healthz and /readyz with a bare 200, upgrades /mux to a
// WebSocket whose binary messages carry the native protocol's bytes, and hands everything else to Doors.HTTP.
//
// # Before authentication
//
// Until a connection has authenticated (Peer.Authenticate for the native protocol, a bearer token for HTTP) it may be
// read from for at most 256 KiB, lives for at most 10 seconds, and there are at most 64 of its kind; one more takes
// the place of the oldest, so that slow strangers cannot shut an owner out. Nothing but refusals, /healthz and /readyz
// is answered.
//
// # Who needs no token
//
// A process of the same user on a unix socket, a client with a certificate that Options.ClientCA signed, the other end
// of stdio, and everybody on a loopback listener with Options.NoAuth. See Peer.Trusted.
//
// # What is kept in the state directory
//
//	token              the token that was made because none was given
//	certificate.pem    the certificate and key that were made because none were given
//	listeners/IP_PORT  what a live server tells local clients of its port: its URL, token and pin
//
// A file of listeners/ counts only while the server that wrote it holds its lock, so a client never hands the token to
// a stranger on a port that has become free.
package listen
