// Package wiretest breaks and slows connections on purpose: a pipe in memory, connections with faults, and a TCP
// proxy that stands for a bad network.
package wiretest
