package rpc

import (
	"context"
	"errors"
	"testing"
	"time"

	"waldo/env"
	"waldo/env/envtest"
)

// TestSuite: an environment behind a wire is one like any other.
func TestSuite(t *testing.T) {
	t.Parallel()
	envtest.Run(t, func(t *testing.T) env.Env {
		return newRig(t, ServerOptions{}).dial(t, ClientOptions{Session: "direct"})
	})
}

// TestSuiteOnFaultyNetwork: so is one behind a network that delays and cuts. It takes long.
func TestSuiteOnFaultyNetwork(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("it takes minutes under the race detector")
	}
	t.Parallel()
	envtest.Run(t, func(t *testing.T) env.Env {
		r := newRig(t, ServerOptions{})
		r.proxy.SetDelay(2 * time.Millisecond)
		client := r.dialAccepted(t, ClientOptions{})
		t.Cleanup(r.cutting(300 * time.Millisecond))
		return client
	})
}

// TestFileSuite: so are its files and watches.
func TestFileSuite(t *testing.T) {
	t.Parallel()
	envtest.RunFiles(t, func(t *testing.T) envtest.FilesMachine {
		return filesMachine(t, newRig(t, ServerOptions{}).dial(t, ClientOptions{Session: "direct"}))
	})
}

// TestFileSuiteOnFaultyNetwork: and those behind a network that delays and cuts.
func TestFileSuiteOnFaultyNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	t.Parallel()
	envtest.RunFiles(t, func(t *testing.T) envtest.FilesMachine {
		r := newRig(t, ServerOptions{})
		r.proxy.SetDelay(2 * time.Millisecond)
		client := r.dialAccepted(t, ClientOptions{})
		t.Cleanup(r.cutting(300 * time.Millisecond))
		m := filesMachine(t, client)
		m.Cut = true
		return m
	})
}

func filesMachine(t *testing.T, client *Client) envtest.FilesMachine {
	return envtest.FilesMachine{Files: client, Watcher: client, Describer: client, Scratch: uri(t, t.TempDir()), Here: true}
}

// dialAccepted dials until the server has accepted the client: that one connection must not be cut.
func (r *rig) dialAccepted(tb testing.TB, options ClientOptions) *Client {
	tb.Helper()
	for {
		client := r.dial(tb, options)
		err := client.Ready(tb.Context())
		if err == nil {
			return client
		}
		if errors.Is(err, context.Canceled) {
			tb.Fatal(err)
		}
	}
}
