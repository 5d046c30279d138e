#!/usr/bin/env bash
# usage: scripts/deps.sh redis-server|nutcracker|postgresql|pgbouncer|mariadb|promtool|spin|chromium|curl|npm|php|php-fpm|python3|
#        proxies|cc|go1.27.4 ...
#
# Installs the programs that the tests need in addition to Go. Missing ones come
# from apt, where that asks no question: as root, or with a sudo that needs no
# password. NO_INSTALL=1 prevents it. Another version of Go comes through the go
# command, which keeps it in its module cache.
#
# Tests without most of them are still useful, so their absence is a warning, and an error where
# CI=true. A missing C compiler is always an error.
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
	curl) command -v curl ;;
	go1.*) GOTOOLCHAIN=$1 go version 2>&1 ;; # downloads it
	mariadb) mariadb ;;
	nutcracker) PATH=$PATH:/usr/sbin command -v nutcracker ;; # as internal/testkit/redistest does
	npm) command -v npm && command -v node ;; # as example/full/internal/forms and middleware do
	pgbouncer) PATH=$PATH:/usr/sbin command -v "${PGBOUNCER:-pgbouncer}" ;; # as internal/testkit/pgtest does
	php) command -v php ;; # as docs/snippets does
	php-fpm) fpm ;;
	postgresql) postgresql ;;
	promtool) command -v promtool ;;
	proxies) proxies ;;
	python3) command -v python3 ;; # as docs/snippets does
	redis-server) command -v "${REDIS_SERVER:-redis-server}" ;; # as internal/testkit/redistest does
	spin) spin -V 2>/dev/null | grep "^Spin Version" ;; # there is another program of that name
	esac >/dev/null
}

# browser finds what example/full/internal/browser would start.
browser() {
	local name
	for name in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
		command -v "$name" && return
	done
	return 1
}

# postgresql finds the programs that internal/testkit/pgtest would start.
postgresql() {
	local initdb dir dirs
	if initdb=$(command -v initdb); then
		initdb=$(dirname "$(readlink -f "$initdb")")
	fi
	dirs=${POSTGRES_BIN:-$initdb /usr/lib/postgresql/*/bin /usr/pgsql-*/bin
		/opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin /home/linuxbrew/.linuxbrew/opt/postgresql@*/bin}
	for dir in $dirs; do
		[ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return
	done
	return 1
}

# fpm finds what middleware/caddy would start.
fpm() {
	local program
	for program in ${PHP_FPM:-/usr/sbin/php-fpm* /usr/bin/php-fpm* /opt/homebrew/sbin/php-fpm* /usr/local/sbin/php-fpm*}; do
		[ -x "$program" ] && return
	done
	return 1
}

# mariadb finds the programs that internal/testkit/mysqltest would start.
mariadb() {
	local server=${MYSQL_SERVER:-mariadbd}
	PATH=$PATH:/usr/sbin command -v "$server" || return 1
	[ "$(basename "$server")" != mariadbd ] || command -v mariadb-install-db
}

# proxies finds what example/full/internal/proxies would start.
proxies() {
	local name
	for name in nginx haproxy caddy apache2 varnishd; do
		PATH=$PATH:/usr/sbin command -v "$name" || return 1
	done
}

packages() {
	case $1 in
	cc) echo gcc libc6-dev ;;
	chromium) echo chromium fonts-dejavu-core ;; # without a font its pages are empty
	curl) echo curl ;;
	go1.*) ;;
	mariadb) echo mariadb-server ;;
	nutcracker) echo nutcracker ;;
	npm) echo npm nodejs ;;
	pgbouncer) echo pgbouncer ;;
	php) echo php-cli ;;
	php-fpm) echo php-fpm ;;
	postgresql) echo postgresql ;;
	promtool) echo prometheus ;;
	proxies) echo nginx haproxy caddy apache2-bin varnish ;;
	python3) echo python3 ;;
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
	curl)
		echo "curl is missing: what it does when its connection is cut is not shown."
		echo "Install it:"
		echo "    apt-get install curl | brew install curl | dnf install curl"
		;;
	go1.*)
		echo "$1 is missing: that the tests pass with it is not shown. The go command"
		echo "cannot download it:"
		GOTOOLCHAIN=$1 go version 2>&1 | sed 's/^/    /' || true
		echo "Let it reach its GOPROXY ($(go env GOPROXY)), or name a version of https://go.dev/dl:"
		echo "    make test-newer NEWER_GO=go1.N.M"
		;;
	mariadb)
		echo "MariaDB is missing: everything that shows how the MySQL store behaves on a real"
		echo "server is skipped. Install it:"
		echo "    apt-get install mariadb-server | brew install mariadb | dnf install mariadb-server"
		echo "or name a server that is elsewhere: MYSQL_SERVER=/path/to/mariadbd or /path/to/mysqld"
		echo "Debian's package starts one at once, which the tests do not need:"
		echo "    systemctl disable --now mariadb"
		;;
	npm)
		echo "npm or node is missing: everything that shows how forms behave with htmx and Turbo,"
		echo "that their pages are accessible, and what a gateway does with an upstream in Node,"
		echo "is skipped. Install both:"
		echo "    apt-get install npm | brew install node | dnf install npm"
		echo "and let it reach its registry."
		;;
	nutcracker)
		echo "nutcracker (twemproxy) is missing: how sets of keys behave behind a proxy that"
		echo "shares keys among several servers is not shown. Install it:"
		echo "    apt-get install nutcracker | brew install twemproxy"
		echo "Debian's package starts one at once, which the tests do not need:"
		echo "    systemctl disable --now nutcracker"
		;;
	pgbouncer)
		echo "pgbouncer is missing: everything that shows how the PostgreSQL store"
		echo "behaves behind it is skipped. Install it:"
		echo "    apt-get install pgbouncer | brew install pgbouncer | dnf install pgbouncer"
		echo "or name one that is elsewhere: PGBOUNCER=/path/to/pgbouncer"
		echo "Debian's package starts one at once, which the tests do not need:"
		echo "    systemctl disable --now pgbouncer"
		;;
	php | python3)
		echo "$1 is missing: that the upstreams of docs/gateway.md speak with their gateway"
		echo "is not shown in this language. Install it:"
		echo "    apt-get install $(packages "$1") | brew install $1 | dnf install $(packages "$1")"
		;;
	php-fpm)
		echo "php-fpm is missing: that a guard in Caddy knows the routes of a front controller"
		echo "in PHP is not shown. Install it:"
		echo "    apt-get install php-fpm | brew install php | dnf install php-fpm"
		echo "or name one that is elsewhere: PHP_FPM=/path/to/php-fpm"
		;;
	postgresql)
		echo "PostgreSQL is missing: everything that shows how the PostgreSQL store"
		echo "behaves on a real server is skipped. Install it:"
		echo "    apt-get install postgresql | brew install postgresql | dnf install postgresql-server"
		echo "or name the directory of initdb and postgres: POSTGRES_BIN=/path/to/bin"
		echo "Debian's package creates and starts a cluster at once, which the tests do not"
		echo "need. It does not with this line in a file *.conf of"
		echo "/etc/postgresql-common/createcluster.d (make that before you install):"
		echo "    create_main_cluster = false"
		;;
	promtool)
		echo "promtool is missing: that the alerts fire is not shown. It is a part of"
		echo "Prometheus:"
		echo "    apt-get install prometheus | brew install prometheus"
		;;
	proxies)
		echo "nginx, haproxy, caddy, apache2 or varnishd is missing: what they do with a request that"
		echo "gets no answer is not shown. Install them:"
		echo "    apt-get install nginx haproxy caddy apache2-bin varnish"
		echo "Debian's packages start them at once, which the tests do not need:"
		echo "    systemctl disable --now nginx haproxy caddy varnish"
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

# no_cluster keeps Debian's postgresql from creating a cluster and starting it, now
# and at every boot: the tests make their own. One that is there stays as it is.
no_cluster() {
	local dir=/etc/postgresql-common/createcluster.d
	[ -e /etc/postgresql-common/createcluster.conf ] && return
	"$@" mkdir -p $dir
	echo "create_main_cluster = false" | "$@" tee $dir/tests-need-no-cluster.conf >/dev/null
}

# no_service keeps Debian's packages from starting their services now: two of the proxies want
# port 80. A machine that has a policy keeps it.
no_service() {
	local policy=/usr/sbin/policy-rc.d
	[ -e $policy ] && return
	# shellcheck disable=SC2064 # the words of now
	trap "$* rm -f $policy" EXIT
	printf '#!/bin/sh\nexit 101\n' | "$@" tee $policy >/dev/null
	"$@" chmod +x $policy
}

apt() {
	local sudo=""
	[ $# != 0 ] && [ "${NO_INSTALL:-}" = "" ] && command -v apt-get >/dev/null || return 1
	if [ "$(id -u)" != 0 ]; then
		sudo -n true 2>/dev/null || return 1
		sudo="sudo -n"
	fi
	echo "installing with apt-get: $*"
	# shellcheck disable=SC2086 # no word, one or two
	case " $* " in *" postgresql "*) no_cluster $sudo ;; esac
	# shellcheck disable=SC2086
	no_service $sudo
	local log service new=""
	log=$(mktemp)
	for service in nginx haproxy caddy varnish varnishncsa; do # these neither start at the next boot
		[ -e "/lib/systemd/system/$service.service" ] || new="$new $service"
	done
	# A repository that cannot be refreshed does not matter if the others have
	# the packages, so only the installation decides.
	if {
		$sudo apt-get update || true
		$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
	} >"$log" 2>&1 </dev/null; then
		rm -f "$log"
		for service in $new; do
			$sudo systemctl disable "$service" || true
		done >/dev/null 2>&1
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
