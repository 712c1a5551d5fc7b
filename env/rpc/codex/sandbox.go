package codex

import (
	"encoding/json"
	"slices"
	"strings"

	"waldo/wire/jsonrpc"
)

// sandboxContext is what a call may touch, as Codex says it. There is no sandbox here yet: what asks for none is
// allowed, and everything else is refused, never ignored.
type sandboxContext struct {
	Permissions          permissions    `json:"permissions"`
	WindowsSandboxLevel  string         `json:"windowsSandboxLevel"`
	Cwd                  *pathURI       `json:"cwd"`
	WorkspaceRoots       *[]pathURI     `json:"workspaceRoots"`
	PolicyContext        *policyContext `json:"policyContext"`
	UserHomeDir          *pathURI       `json:"userHomeDir"`
	TemporaryDirectories *[]pathURI     `json:"temporaryDirectories"`
	WindowsProxyMode     *string        `json:"windowsSandboxProxySettingsMode"`
	UseLegacyLandlock    bool           `json:"useLegacyLandlock,omitempty"`
}

type policyContext struct {
	Cwd            *pathURI   `json:"cwd"`
	WorkspaceRoots *[]pathURI `json:"workspaceRoots"`
}

type permissions struct {
	Type       string           `json:"type"`
	FileSystem *fileSystemRules `json:"file_system"`
	Network    *string          `json:"network"`
}

type fileSystemRules struct {
	Type             string             `json:"type"`
	Entries          *[]fileSystemEntry `json:"entries"`
	GlobScanMaxDepth *int               `json:"glob_scan_max_depth"`
}

type fileSystemEntry struct {
	Path                fileSystemPath `json:"path"`
	Access              string         `json:"access"`
	MissingPathBehavior *string        `json:"missing_path_behavior"`
}

type fileSystemPath struct {
	Type    string        `json:"type"`
	Path    *pathURI      `json:"path"`
	Pattern *string       `json:"pattern"`
	Value   *specialPlace `json:"value"`
}

type specialPlace struct {
	Kind    string  `json:"kind"`
	Subpath *string `json:"subpath"`
	Path    *string `json:"path"`
}

// UnmarshalJSON implements [json.Unmarshaler]: what is no sandbox context is refused while decoding.
func (s *sandboxContext) UnmarshalJSON(text []byte) error {
	type plain sandboxContext
	if err := jsonrpc.Decode(json.RawMessage(text), (*plain)(s)); err != nil {
		return err
	}
	return s.check()
}

func oneOf(what, value string, of ...string) error {
	if slices.Contains(of, value) {
		return nil
	}
	return invalidParams("%s: unknown variant `%s`, expected one of `%s`", what, value, strings.Join(of, "`, `"))
}

// check refuses what means nothing.
func (s *sandboxContext) check() error {
	if err := oneOf("windowsSandboxLevel", s.WindowsSandboxLevel, "disabled", "restricted-token", "elevated", "mxc"); err != nil {
		return err
	}
	if mode := s.WindowsProxyMode; mode != nil {
		if err := oneOf("windowsSandboxProxySettingsMode", *mode, "reconcile", "preserve"); err != nil {
			return err
		}
	}
	p := s.Permissions
	if err := oneOf("permissions", p.Type, "managed", "disabled", "external"); err != nil || p.Type == "disabled" {
		return err
	}
	if p.Network == nil {
		return invalidParams("permissions: missing field `network`")
	}
	if err := oneOf("network", *p.Network, "restricted", "enabled"); err != nil || p.Type == "external" {
		return err
	}
	if p.FileSystem == nil {
		return invalidParams("permissions: missing field `file_system`")
	}
	return p.FileSystem.check(s)
}

func (f *fileSystemRules) check(s *sandboxContext) error {
	if err := oneOf("file_system", f.Type, "restricted", "unrestricted"); err != nil || f.Type == "unrestricted" {
		return err
	}
	if f.Entries == nil {
		return invalidParams("file_system: missing field `entries`")
	}
	if f.GlobScanMaxDepth != nil && *f.GlobScanMaxDepth < 1 {
		return invalidParams("glob_scan_max_depth: invalid value %d, expected a nonzero number", *f.GlobScanMaxDepth)
	}
	hasCwd := s.Cwd != nil || s.PolicyContext != nil && s.PolicyContext.Cwd != nil
	for _, entry := range *f.Entries {
		if err := oneOf("access", entry.Access, "read", "write", "deny", "none"); err != nil {
			return err
		}
		if entry.MissingPathBehavior != nil {
			if err := oneOf("missing_path_behavior", *entry.MissingPathBehavior, "skip"); err != nil {
				return err
			}
		}
		if err := entry.Path.check(hasCwd); err != nil {
			return err
		}
	}
	return nil
}

func (p *fileSystemPath) check(hasCwd bool) error {
	dynamic := false
	switch p.Type {
	case "path":
		if p.Path == nil {
			return invalidParams("path: missing field `path`")
		}
	case "glob_pattern":
		if p.Pattern == nil {
			return invalidParams("path: missing field `pattern`")
		}
		dynamic = !strings.HasPrefix(*p.Pattern, "/")
	case "special":
		if p.Value == nil {
			return invalidParams("path: missing field `value`")
		}
		if err := oneOf("kind", p.Value.Kind, "root", "minimal", "current_working_directory", "project_roots", "tmpdir", "slash_tmp", "unknown"); err != nil {
			return err
		}
		if p.Value.Kind == "unknown" && p.Value.Path == nil {
			return invalidParams("value: missing field `path`")
		}
		dynamic = p.Value.Kind == "project_roots" || p.Value.Kind == "current_working_directory"
	default:
		return oneOf("path", p.Type, "path", "glob_pattern", "special")
	}
	if dynamic && !hasCwd {
		return invalidParams("file system sandbox context with dynamic permissions requires cwd")
	}
	return nil
}

// unrestricted tells whether files may be used as if there were no sandbox.
func (s *sandboxContext) unrestricted() bool {
	if s == nil {
		return true
	}
	p := s.Permissions
	return p.Type == "disabled" || p.Type == "external" || p.FileSystem.Type == "unrestricted"
}

// readsAll tells whether every file may be read.
func (s *sandboxContext) readsAll() bool {
	if s.unrestricted() {
		return true
	}
	all := false
	for _, entry := range *s.Permissions.FileSystem.Entries {
		special := entry.Path.Value
		switch entry.Access {
		case "deny", "none":
			return false
		default:
			all = all || entry.Path.Type == "special" && special.Kind == "root" && special.Subpath == nil
		}
	}
	return all
}

const notEnforced = "this exec-server cannot enforce a sandbox yet"

// forReading and forWriting refuse a file call that would have to be confined.
func (s *sandboxContext) forReading() error {
	if s.readsAll() {
		return nil
	}
	return internal("sandboxed filesystem operation is unavailable: %s", notEnforced)
}

func (s *sandboxContext) forWriting() error {
	if s.unrestricted() {
		return nil
	}
	return internal("sandboxed filesystem operation is unavailable: %s", notEnforced)
}

// forProcess refuses a process that would have to be confined.
func (s *sandboxContext) forProcess() error {
	if s.unrestricted() && (s == nil || s.Permissions.Type != "managed" || *s.Permissions.Network == "enabled") {
		return nil
	}
	return &jsonrpc.Error{
		Code:    jsonrpc.CodeInternal,
		Message: "sandbox is unavailable: " + notEnforced,
		Data:    json.RawMessage(`{"kind":"sandboxUnavailable"}`),
	}
}
