#!/usr/bin/env bash
# usage: scripts/newer-servers.sh DIR valkey|redis|mariadb|mysql|postgresql ...
#
# Unpacks the newest version of each server that Debian's later suites have into DIR,
# and prints the path of each server, which starts with the libraries of its own suite. The other
# programs of a server are where its package has them. Nothing is installed. They come through apt,
# from the Debian mirror that apt is configured with, and are checked as apt checks all packages.
#
# A server that cannot be had is a warning. NO_INSTALL=1 downloads nothing: what DIR has from an
# earlier call is printed.
set -euo pipefail

dir=$(mkdir -p "$1" && cd "$1" && pwd)
shift
chmod a+rx "$dir" "$dir/.." # servers of SQL do not run as root
log=$dir/log

# lay has apt work in DIR alone, with the later suites of the mirror. No package counts as
# installed, so that each server comes with all that it needs.
lay() {
	local mirror keys=/usr/share/keyrings/debian-archive-keyring.gpg
	command -v apt-get && command -v dpkg-deb || return 1
	# shellcheck disable=SC2016 # apt's variable
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/\?$') || return 1
	mkdir -p "$dir/lists/partial" "$dir/archives/partial"
	: >"$dir/status"
	{
		echo "Types: deb"
		echo "URIs: $mirror"
		echo "Suites: testing unstable experimental"
		echo "Components: main"
		[ ! -e $keys ] || echo "Signed-By: $keys"
	} >"$dir/later.sources"
	cat >"$dir/apt.conf" <<-EOC
		Dir::Etc::SourceList "$dir/later.sources";
		Dir::Etc::SourceParts "-";
		Dir::State::Lists "$dir/lists";
		Dir::State::Status "$dir/status";
		Dir::Cache "$dir";
		APT::Sandbox::User "";
		APT::Get::Assume-Yes "true";
		APT::Install-Recommends "false";
		Acquire::Languages "none";
		Acquire::IndexTargets { deb::DEP-11 { DefaultEnabled "false"; }; deb::Contents-deb { DefaultEnabled "false"; }; };
		Debug::NoLocking "true";
	EOC
	export APT_CONFIG=$dir/apt.conf
	apt-get update
}

# newest prints the newest version of a package as apt takes it.
newest() {
	local version
	version=$(apt-cache madison "$1" | awk 'NR == 1 {print $3}')
	[ "$version" != "" ] && echo "$1=$version"
}

# wrap has a program start with the loader and the libraries of its suite.
wrap() {
	mv "$1" "$1.elf"
	cat >"$1" <<-EOC
		#!/bin/sh
		exec "$2" --library-path "$(dirname "$2")" --argv0 "\$0" "$1.elf" "\$@"
	EOC
	chmod +x "$1"
}

# unpack lays the packages of a server into DIR/NAME.
unpack() {
	local root=$dir/$1 package loader program versions=()
	[ -e "$dir/lists" ] || return 1
	for package in "${@:2}"; do
		versions+=("$(newest "$package")") || return 1
	done
	rm -rf "$root" "$root.tmp" "$dir"/archives/*.deb
	apt-get install --download-only "${versions[@]}" || return 1
	mkdir -p "$root.tmp"
	for package in "$dir"/archives/*.deb; do
		dpkg-deb -x "$package" "$root.tmp" || return 1
	done
	mv "$root.tmp" "$root"
	loader=$(find "$root" -name 'ld-linux*.so*' -print -quit)
	for program in "$root"/usr/bin/* "$root"/usr/sbin/* "$root"/usr/lib/postgresql/*/bin/*; do
		[ "$(head -c 4 "$program" 2>/dev/null | tr -d '\0')" != $'\x7fELF' ] || [ -L "$program" ] || wrap "$program" "$loader"
	done
}

laid=""
while read -r name path packages; do
	case " $* " in *" $name "*) ;; *) continue ;; esac
	# shellcheck disable=SC2086 # a pattern in path is a version
	server() { echo "$dir/$name"/usr/$path; }
	starts() { "$(server)" --version >/dev/null 2>&1 </dev/null; }
	# shellcheck disable=SC2086 # a list of names
	if ! starts && [ "${NO_INSTALL:-}" = "" ]; then
		{
			[ "$laid" != "" ] || lay || true
			laid=1
			unpack "$name" $packages || true
		} >>"$log" 2>&1 </dev/null
	fi
	if starts; then
		server
	else
		echo "WARNING: no newer $name: how the store works there is not tested (see $log)" >&2
	fi
done <<EOF
valkey bin/valkey-server valkey-server valkey-tools
redis bin/redis-server redis-server redis-tools
mariadb sbin/mariadbd mariadb-server-core mariadb-client-core mariadb-server
mysql sbin/mysqld mysql-server-core mysql-client-core
postgresql lib/postgresql/*/bin/postgres postgresql-18
EOF
