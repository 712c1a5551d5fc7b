#!/usr/bin/env bash
# Installs the peer that the interoperation tests speak with (Codex, and a
# WebSocket client for scripts) into a cache directory, unless it is there, and
# prints the path of its binary. The version is pinned: facts about a protocol
# are facts about one version.
#
#   WALDO_PEER_DIR   the directory, by default waldo-peer in the user's cache
set -euo pipefail
codex=0.171.0
dir=${WALDO_PEER_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/waldo-peer}

binary() {
  find "$dir/node_modules/@openai" -type f \( -path '*/bin/codex' -o -path '*/bin/codex.exe' \) 2>/dev/null | sort | head -n 1
}
ready() {
  [ -d "$dir/node_modules/ws" ] && [ -n "$(binary)" ] &&
    grep -q "\"version\": \"$codex\"" "$dir/node_modules/@openai/codex/package.json" 2>/dev/null
}

mkdir -p "$dir"
# Tests of several packages may ask at once; one installs, the others wait.
if command -v flock >/dev/null; then
  exec 9>"$dir/.lock"
  flock 9
fi
if ! ready; then
  if ! command -v npm >/dev/null; then
    echo "peer.sh: npm is not here, so the peer cannot be installed" >&2
    exit 1
  fi
  [ -f "$dir/package.json" ] || echo '{"private":true}' >"$dir/package.json"
  npm install --prefix "$dir" --no-audit --no-fund --save-exact "@openai/codex@$codex" ws >&2 9>&-
  if ! ready; then
    echo "peer.sh: npm ended well, but there is no codex $codex below $dir" >&2
    exit 1
  fi
fi
binary
