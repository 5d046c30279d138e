#!/usr/bin/env bash
# usage: scripts/with-idemlease.sh CHECKOUT DIRECTORY
#
# Prints the flags with which the go command builds the bench with rows for
# github.com/repenguin22/idemlease, from a checkout of it: not every module proxy
# has that module, so the bench does not require it. The files that the flags name
# are written to DIRECTORY.
set -euo pipefail

module=github.com/repenguin22/idemlease
checkout=$(cd "$1" && pwd)
bench=$(cd "$(dirname "$0")/../bench" && pwd)
mkdir -p "$2"
to=$(cd "$2" && pwd)/with-idemlease

# The version is only what the results say.
version=$(git -C "$checkout" log -1 --abbrev=12 --date=format:%Y%m%d%H%M%S --format=v0.0.0-%cd-%h 2>/dev/null || echo v0.0.0)
cp "$bench/go.mod" "$to.mod"
cp "$bench/go.sum" "$to.sum"
go mod edit -require="$module@$version" -replace="$module=$checkout" "$to.mod"
packages=(web)
if [ -e "$checkout/pgstore/go.mod" ]; then # a module of its own, since its version 1.1
	go mod edit -require="$module/pgstore@$version" -replace="$module/pgstore=$checkout/pgstore" "$to.mod"
	packages+=(shop)
fi
for package in "${packages[@]}"; do
	printf '"%s": "%s"\n' "$bench/internal/$package/idemlease.go" "$bench/internal/$package/testdata/idemlease.go"
done | paste -sd, | sed 's/.*/{"Replace": {&}}/' >"$to.json"
echo "-mod=mod -modfile=$to.mod -overlay=$to.json"
