package codex

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"strings"

	"waldo/env"
	"waldo/pathuri"
)

// environmentInfo is what the machine says of itself, as Codex wants it.
type environmentInfo struct {
	Shell                shellInfo       `json:"shell"`
	ExecutorVersion      string          `json:"executorVersion"`
	ProviderID           string          `json:"providerId"`
	Cwd                  *pathuri.URI    `json:"cwd"`
	UserHomeDir          *pathuri.URI    `json:"userHomeDir"`
	PlatformOS           string          `json:"platformOs"`
	PrependPathDirs      []pathuri.URI   `json:"prependPathDirs"`
	TemporaryDirectories []pathuri.URI   `json:"temporaryDirectories"`
	TempDir              *pathuri.URI    `json:"tempDir"`
	Capabilities         map[string]bool `json:"capabilities"`
}

type shellInfo struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// capabilities are what a client may use. What is false is not done; docs/codex.md says what that means.
var capabilities = map[string]bool{
	"networkProxyLaunch":                          false,
	"networkProxyReviewDomains":                   false,
	"networkProxyTransparentTcp":                  false,
	"credentialMasking":                           false,
	"credentialMaskingCustomProviders":            false,
	"capabilityDiscoverySandbox":                  false,
	"fsWatchMissing":                              true,
	"capabilityDiscoveryV2":                       false,
	"environmentConfigRead":                       false,
	"httpHeaderEnvVars":                           true,
	"sandboxedFileStreaming":                      false,
	"fileWriteStreaming":                          true,
	"shellSnapshotV2":                             false,
	"linuxRootWritePreservesDevices":              false,
	"linuxApprovedRootWritePreservesRestrictions": false,
	"windowsMxc":                                  false,
}

// describe makes what is told to every client.
func (d *Door) describe(ctx context.Context) environmentInfo {
	about := environmentInfo{
		Shell:                d.shell(),
		ExecutorVersion:      protocolVersion,
		ProviderID:           d.providerID(ctx),
		Cwd:                  optional(d.info.Directory),
		UserHomeDir:          optional(d.info.Home),
		PlatformOS:           d.platform(),
		PrependPathDirs:      []pathuri.URI{},
		TemporaryDirectories: []pathuri.URI{},
		TempDir:              optional(d.info.Temp),
		Capabilities:         capabilities,
	}
	names := []string{"TMPDIR"}
	if d.info.Paths == pathuri.Windows {
		names = []string{"TEMP", "TMP"}
	}
	for _, entry := range d.options.Environ {
		name, value, _ := strings.Cut(entry, "=")
		for _, wanted := range names {
			if name != wanted || value == "" {
				continue
			}
			if uri, err := d.info.Directory.Join(value); err == nil {
				about.TemporaryDirectories = append(about.TemporaryDirectories, uri)
			}
		}
	}
	return about
}

func optional(uri pathuri.URI) *pathuri.URI {
	if uri.IsZero() {
		return nil
	}
	return &uri
}

// platform names the system as Codex does.
func (d *Door) platform() string {
	if d.info.OS == "darwin" {
		return "macos"
	}
	return d.info.OS
}

// shell is the user's shell, or the best one of those that Codex knows how to use.
func (d *Door) shell() shellInfo {
	known := map[string]string{"bash": "bash", "zsh": "zsh", "sh": "sh", "dash": "sh", "pwsh": "powershell", "powershell": "powershell", "cmd": "cmd"}
	for _, shell := range d.info.Shells {
		if name := known[shell.Kind]; name != "" {
			return shellInfo{name, shell.Path}
		}
	}
	if d.info.Paths == pathuri.Windows {
		return shellInfo{"cmd", "cmd.exe"}
	}
	return shellInfo{"sh", "/bin/sh"}
}

// providerID names the machine, the same at every start.
func (d *Door) providerID(ctx context.Context) string {
	sum := sha256.New()
	for _, file := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		uri, err := pathuri.FromNative(file, d.info.Paths)
		if err != nil {
			continue
		}
		if id, _, err := env.ReadFile(ctx, d.env, uri, 4096); err == nil {
			sum.Write(id)
			break
		}
	}
	sum.Write([]byte(path.Join("/", d.info.Hostname, d.info.User)))
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}
