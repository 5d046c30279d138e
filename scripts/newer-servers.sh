#!/usr/bin/env bash
# usage: scripts/newer-servers.sh DIR
#
# Unpacks the newest Valkey and Redis of Debian's later suites into DIR, and prints the path of a
# program for each that starts it with the libraries of its own suite. Nothing is installed. They
# come through apt, from the Debian mirror that apt is configured with, and are checked as apt
# checks all packages.
#
# A server that cannot be had is a warning. NO_INSTALL=1 downloads nothing: what DIR has from an
# earlier call is printed.
set -euo pipefail

dir=$(mkdir -p "$1" && cd "$1" && pwd)
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
	cat >"$dir/apt.conf" <<-EOF
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
	EOF
	export APT_CONFIG=$dir/apt.conf
	apt-get update
}

# unpack makes the server NAME, of the packages NAME-server and NAME-tools.
unpack() {
	local name=$1 root=$dir/$1 version loader package
	[ -e "$dir/lists" ] || return 1
	version=$(apt-cache madison "$name-server" | awk 'NR == 1 {print $3}')
	[ "$version" != "" ] || return 1
	rm -rf "$root" "$dir"/archives/*.deb
	apt-get install --download-only "$name-server=$version" "$name-tools=$version" || return 1
	mkdir -p "$root"
	for package in "$dir"/archives/*.deb; do
		dpkg-deb -x "$package" "$root" || return 1
	done
	loader=$(find "$root" -name 'ld-linux*.so*' -print -quit)
	cat >"$root.tmp" <<-EOF
		#!/bin/sh
		exec "$loader" --library-path "$(dirname "$loader")" "$root/usr/bin/$name-server" "\$@"
	EOF
	chmod +x "$root.tmp" && "$root.tmp" --version && mv "$root.tmp" "$root/$name-server"
}

laid=""
for name in valkey redis; do
	server=$dir/$name/$name-server
	if [ ! -x "$server" ] && [ "${NO_INSTALL:-}" = "" ]; then
		{
			[ "$laid" != "" ] || lay || true
			laid=1
			unpack "$name" || true
		} >>"$log" 2>&1 </dev/null
	fi
	if [ -x "$server" ] && "$server" --version >/dev/null 2>&1; then
		echo "$server"
	else
		echo "WARNING: no newer $name-server: what it does natively is not tested (see $log)" >&2
	fi
done
