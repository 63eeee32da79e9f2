#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fresh_root.sh COMMAND...: runs each COMMAND, a line for the shell, in a clone of
# this tree's HEAD within a bare Debian 12 that has git, make and ca-certificates
# and nothing else.  Ends with the status of the first command that fails.
#
# The packages come from where apt-get of this machine gets them, or from MIRROR.
# Root, debootstrap and the right to mount are needed.  What is mounted and started
# lives in namespaces of its own, so that it is gone whatever ends this script.
set -euo pipefail

suite=bookworm
paths=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

die() { printf 'fresh_root: %s\n' "$1" >&2; exit 1; }

# The first source of this machine that has the suite.
mirror() {
	apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' \
		'Created-By: Packages' 2>/dev/null |
		awk -v s=$suite '!site && $2 == s && $3 == "main" { site = $1 } END { print site }'
}

# bare_root ROOT MIRROR: what debootstrap makes, and how this machine reaches its
# packages: names, proxies, certificates, passwords.
bare_root() {
	local root=$1 log=$1.log

	debootstrap --variant=minbase --include=git,make,ca-certificates \
		$suite "$root" "$2" >"$log" 2>&1 ||
		{ tail -n 20 "$log" >&2; die "debootstrap failed: no bare Debian 12"; }
	apt-config dump Acquire >"$root/etc/apt/apt.conf.d/90machine"
	for path in /etc/apt/auth.conf /etc/apt/auth.conf.d /usr/local/share/ca-certificates \
			/etc/ssl/certs/ca-certificates.crt /etc/resolv.conf /etc/hosts; do
		[ ! -e $path ] || { rm -rf "${root:?}$path" && cp -rL $path "$root$path"; }
	done
	# Nobody will miss a package that a power cut takes.
	echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
}

# inside WORK MIRROR COMMAND...: runs as the first process of the new namespaces.
inside() {
	local work=$1 site=$2 root=$1/root keep=() name
	shift 2

	bare_root "$root" "$site"
	{ mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" &&
			mount --rbind -o ro /sys "$root/sys"; } ||
		die "this machine refuses to mount /proc, /dev and /sys below $root"
	chroot "$root" true || die "this machine refuses chroot"
	git clone -q . "$root/project"
	for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
		[ -z "${!name-}" ] || keep+=("$name=${!name}")
	done
	for command; do
		printf '== %s\n' "$command"
		chroot "$root" /usr/bin/env -i --default-signal HOME=/root TERM=dumb PATH=$paths \
			"${keep[@]}" sh -c "cd /project && $command" </dev/null
	done
}

if [ "${1-}" = --inside ]; then
	shift
	inside "$@"
	exit 0
fi

[ $# -gt 0 ] || { echo "usage: scripts/fresh_root.sh COMMAND..." >&2; exit 2; }
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || die "this mounts and calls chroot: run it as root"
for program in debootstrap unshare chroot git; do
	command -v $program >/dev/null ||
		die "no $program here; 'scripts/deps.sh check-fresh' installs what is needed"
done
site=${MIRROR:-$(mirror)}
[ -n "$site" ] ||
	die "no package source of this machine has Debian 12 ($suite): say MIRROR=URL"
unshare --mount --pid --fork true ||
	die "this machine refuses new namespaces, so nothing can be mounted"
[ -z "$(git status --porcelain)" ] ||
	echo "fresh_root: what is not committed is not tested" >&2

# A process that is being killed may still write: so this is tried again.
remove() {
	[ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
	wait
	for _ in 1 2 3 4 5; do
		rm -rf --one-file-system "$work" 2>/dev/null && return
		sleep 1
	done
	echo "fresh_root: could not remove $work" >&2
}
work=$(mktemp -d "${TMPDIR:-/tmp}/fresh-root.XXXXXX")
child=
trap remove EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
unshare --mount --pid --fork --kill-child --mount-proc \
	"scripts/${0##*/}" --inside "$work" "$site" "$@" &
child=$!
status=0
wait $child || status=$?
child=
exit $status
