#!/usr/bin/env bash
# Runs every fuzz target of the tree for the time given, one after another, and
# fails if any of them failed.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
go=${GO:-go}

# On a busy machine go test takes the end of the time itself for a failure, if a
# worker is slow to answer then. It finds no input, and says nothing but this.
ended_by_time() {
  grep -qx ' *context deadline exceeded' "$1" &&
    grep -q '^fuzz: elapsed: .*, execs: ' "$1" &&
    ! grep -vE '^(fuzz: elapsed: .*|--- FAIL: Fuzz[^ ]* \([0-9.]+s\)| *context deadline exceeded|FAIL|exit status 1|FAIL\s+\S+\s+[0-9.]+s)$' "$1" &&
    echo "(its time was up; no input failed)"
}

# go test -list prints the names of a package's targets, then a line with the
# package's path. It fails if something does not compile.
listing=$("$go" test -list '^Fuzz' ./...)
package= names=() targets=()
while read -r first second _; do
  case $first in
    Fuzz*) names+=("$first") ;;
    ok)
      package=$second
      for name in ${names[@]+"${names[@]}"}; do targets+=("$package $name"); done
      names=() ;;
  esac
done <<<"$listing"

if [ ${#targets[@]} -eq 0 ]; then
  echo "no fuzz target found" >&2
  exit 1
fi
failed=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for target in "${targets[@]}"; do
  read -r package name <<<"$target"
  echo "fuzz $package $name for $time"
  if ! "$go" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package" 2>&1 | tee "$log" &&
    ! ended_by_time "$log"; then
    failed+=("$package $name")
  fi
done
echo "${#targets[@]} fuzz targets run for $time each, ${#failed[@]} failed"
if [ ${#failed[@]} -gt 0 ]; then
  printf '  %s\n' "${failed[@]}"
  exit 1
fi
