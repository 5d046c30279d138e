#!/usr/bin/env bash
# usage: scripts/bench.sh FILE PATTERN ROUNDS [FLAGS]
#
# Runs the benchmarks of bench/internal/suite that match, writes where it ran and the
# results to FILE in the Go benchmark format, and prints their table. With IDEMLEASE=a
# checkout of github.com/repenguin22/idemlease they have rows for it.
set -euo pipefail
file=$1 pattern=$2 rounds=$3
shift 3
cd "$(dirname "$0")/../bench"
export GOWORK=off
build=()
if [ -n "${IDEMLEASE:-}" ]; then
	flags=$(../scripts/with-idemlease.sh "$IDEMLEASE" "$(dirname "$file")")
	read -ra build <<<"$flags"
fi
modules=(github.com/redis/go-redis/v9 github.com/bsm/redislock github.com/go-redsync/redsync/v4 github.com/redis/rueidis
	github.com/zeromicro/go-zero github.com/gofiber/fiber/v3 github.com/jackc/pgx/v5 github.com/go-sql-driver/mysql modernc.org/sqlite)
[ ${#build[@]} -eq 0 ] || modules+=(github.com/repenguin22/idemlease)
mkdir -p "$(dirname "$file")"
server=$("${REDIS_SERVER:-redis-server}" --version 2>/dev/null || echo no redis-server)
{
	echo "machine: $(getconf _NPROCESSORS_ONLN) cores, $(uname -srm)"
	echo "go: $(go env GOVERSION)"
	echo "server: ${server%% sha=*}"
	echo "modules: $(go list "${build[@]}" -m -f '{{.Path}} {{.Version}}' "${modules[@]}" | sed 's,github.com/,,' | paste -sd, | sed 's/,/, /g')"
	echo "rounds: medians of $rounds rounds"
	echo "commit: $(git describe --always --dirty 2>/dev/null || echo unknown), $(date +%F)"
} >"$file"
failed=0
go test "${build[@]}" -run '^$' -bench "$pattern" -benchtime 1x -timeout 24h ./internal/suite -rounds "$rounds" "$@" | tee -a "$file" || failed=1
go run "${build[@]}" . "$file"
exit $failed
