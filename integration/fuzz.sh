#!/usr/bin/env bash
# Runs every fuzz target of the tree for the time given, one after another, and
# fails if any of them failed.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
go=${GO:-go}

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
for target in "${targets[@]}"; do
  read -r package name <<<"$target"
  echo "fuzz $package $name for $time"
  "$go" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$package" || failed+=("$package $name")
done
echo "${#targets[@]} fuzz targets run for $time each, ${#failed[@]} failed"
if [ ${#failed[@]} -gt 0 ]; then
  printf '  %s\n' "${failed[@]}"
  exit 1
fi
