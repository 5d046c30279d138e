#!/usr/bin/env bash
# Runs every fuzz target of the workspace for FUZZTIME, one after the other, and
# fails at the first that finds something.
set -euo pipefail

# go test -list prints the names of a package, then "ok" and the package.
targets=$(go test -list '^Fuzz' work | awk '
	/^Fuzz/ { names[++n] = $1 }
	$1 == "ok" { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }')
[ "$targets" != "" ] || { echo "no fuzz targets"; exit 1; }

while read -r package name; do
	echo "$package $name"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-60s}" "$package" </dev/null
done <<<"$targets"
