#!/usr/bin/env bash
# usage: scripts/deps.sh redis-server|promtool|spin|chromium|cc|go1.27.4 ...
#
# Installs the programs that the tests need in addition to Go. Missing ones come
# from apt, where that asks no question: as root, or with a sudo that needs no
# password. NO_INSTALL=1 prevents it. Another version of Go comes through the go
# command, which keeps it in its module cache.
#
# Tests without redis-server, spin, chromium, promtool or a second version of Go
# are still useful, so their absence is a warning, and an error where CI=true. A
# missing C compiler is always an error.
set -euo pipefail

present() {
	case $1 in
	cc)
		# The race detector links with the C compiler, except on macOS.
		local cc
		cc=$(go env CC)
		[ "$(go env GOOS)" = darwin ] || command -v "${cc%% *}"
		;;
	chromium) browser ;;
	go1.*) GOTOOLCHAIN=$1 go version 2>&1 ;; # downloads it
	promtool) command -v promtool ;;
	redis-server) command -v "${REDIS_SERVER:-redis-server}" ;; # as internal/redistest does
	spin) spin -V 2>/dev/null | grep "^Spin Version" ;; # there is another program of that name
	esac >/dev/null
}

# browser finds what example/internal/browser would start.
browser() {
	local name
	for name in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
		command -v "$name" && return
	done
	return 1
}

packages() {
	case $1 in
	cc) echo gcc libc6-dev ;;
	chromium) echo chromium fonts-dejavu-core ;; # without a font its pages are empty
	go1.*) ;;
	promtool) echo prometheus ;;
	redis-server) echo redis-server ;;
	spin) echo spin gcc libc6-dev ;; # what it makes of a model is compiled
	esac
}

how_to() {
	case $1 in
	cc)
		echo "no C compiler for the race detector. Install one:"
		echo "    apt-get install gcc libc6-dev | dnf install gcc"
		echo "or go without: make test RACE="
		;;
	chromium)
		echo "chromium is missing: everything that shows how the pages behave in a"
		echo "browser is skipped. Install it:"
		echo "    apt-get install chromium | brew install --cask chromium | dnf install chromium"
		echo "or name one that is elsewhere: CHROMIUM=/path/to/chromium"
		;;
	go1.*)
		echo "$1 is missing: that the tests pass with it is not shown. The go command"
		echo "cannot download it:"
		GOTOOLCHAIN=$1 go version 2>&1 | sed 's/^/    /' || true
		echo "Let it reach its GOPROXY ($(go env GOPROXY)), or name a version of https://go.dev/dl:"
		echo "    make test-newer NEWER_GO=go1.N.M"
		;;
	promtool)
		echo "promtool is missing: that the alerts fire is not shown. It is a part of"
		echo "Prometheus:"
		echo "    apt-get install prometheus | brew install prometheus"
		;;
	redis-server)
		echo "redis-server is missing: everything that shows how the Redis store"
		echo "behaves on a real server is skipped. Install it:"
		echo "    apt-get install redis-server | brew install redis | dnf install redis"
		echo "or name one that is elsewhere: REDIS_SERVER=/path/to/redis-server"
		;;
	spin)
		echo "the model checker spin is missing: everything that shows that the rules"
		echo "of the protocol are enough is skipped. Install it:"
		echo "    apt-get install spin gcc libc6-dev | brew install spin"
		;;
	esac
}

apt() {
	local sudo=""
	[ $# != 0 ] && [ "${NO_INSTALL:-}" = "" ] && command -v apt-get >/dev/null || return 1
	if [ "$(id -u)" != 0 ]; then
		sudo -n true 2>/dev/null || return 1
		sudo="sudo -n"
	fi
	echo "installing with apt-get: $*"
	local log
	log=$(mktemp)
	# A repository that cannot be refreshed does not matter if the others have
	# the packages, so only the installation decides.
	if {
		$sudo apt-get update || true
		$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
	} >"$log" 2>&1 </dev/null; then
		rm -f "$log"
	else
		echo "apt-get failed, see $log" >&2
		return 1
	fi
}

missing=""
for need; do
	present "$need" || missing="$missing $need"
done
[ "$missing" != "" ] || exit 0

wanted=""
for need in $missing; do
	wanted="$wanted $(packages "$need")"
done
# shellcheck disable=SC2086 # a list of names
apt $wanted || true

status=0
for need in $missing; do
	if present "$need"; then
		continue
	fi
	how_to "$need" >&2
	if [ "$need" = cc ] || [ "${CI:-}" = true ]; then
		status=1
	fi
done
exit $status
