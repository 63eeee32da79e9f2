#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fresh_root.sh [WITH] COMMAND...: runs each COMMAND, a line for the shell, within a bare
# Debian 12.  Ends with the status of the first command that fails.  WITH is one of
#
#                       in a clone of this tree's HEAD; git, make and ca-certificates
#                       are there, and nothing else
#     --only=FILE       in a folder with that file alone; not even those are there
#     --dockerfile=FILE in what the steps of FILE make of bare roots, as the user and in
#                       the folder that it ends with; its context is what HEAD has
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

	debootstrap --variant=minbase ${3:+"--include=$3"} $suite "$root" "$2" >"$log" 2>&1 ||
		{ tail -n 20 "$log" >&2; die "debootstrap failed: no bare Debian 12"; }
	apt-config dump Acquire >"$root/etc/apt/apt.conf.d/90machine"
	for path in /etc/apt/auth.conf /etc/apt/auth.conf.d /usr/local/share/ca-certificates \
			/etc/ssl/certs/ca-certificates.crt /etc/resolv.conf /etc/hosts; do
		[ ! -e $path ] || { rm -rf "${root:?}$path" && mkdir -p "$root${path%/*}" &&
			cp -rL $path "$root$path"; }
	done
	# Nobody will miss a package that a power cut takes.
	echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
}

# enter ROOT: so that commands can run in it.
enter() {
	{ mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
			mount --rbind -o ro /sys "$1/sys"; } ||
		die "this machine refuses to mount /proc, /dev and /sys below $1"
	chroot "$1" true || die "this machine refuses chroot"
}

# What the process of a command has: where, as whom, with what in its environment.
root='' folder=/ user=0:0 env=()
in_root() {
	printf '== %s\n' "$1"
	chroot --userspec="$user" "$root" /usr/bin/env -i --default-signal HOME=/root TERM=dumb \
		PATH=$paths "${env[@]}" sh -c "cd '$folder' && $1" </dev/null
}

# ---- the steps of a Dockerfile -----------------------------------------------------

# Roots by the names of their stages, and the context, without what is ignored.
declare -A stages=()
context() {
	local pattern

	mkdir "$work/context"
	git archive HEAD | tar -C "$work/context" -xf -
	while read -r pattern; do
		# shellcheck disable=SC2086	# a pattern
		(cd "$work/context" && rm -rf $pattern)
	done <.dockerignore
}

# from IMAGE [AS NAME]
from() {
	[ "$1" = debian:12-slim ] || die "FROM $1: only debian:12-slim is known here"
	root=$work/stage${#stages[@]} folder=/ user=0:0
	stages[${3-last}]=$root
	cp -a "$work/bare" "$root"
	enter "$root"
}

# copy [--from=NAME] SOURCE TARGET: a folder is copied with what is in it
copy() {
	local source=$work/context target

	case $1 in --from=*) source=${stages[${1#--from=}]}; shift ;; esac
	[ $# = 2 ] || die "COPY $*: one source and one target are known here"
	source=$source/$1
	target=$(realpath -m "$root/$(case $2 in /*) echo "$2" ;; *) echo "$folder/$2" ;; esac)")
	if [ -d "$source" ]; then
		mkdir -p "$target" && cp -a "$source/." "$target"
	else
		case $2 in */) mkdir -p "$target" ;; esac
		cp -a "$source" "$target"
	fi
}

step() {
	local rest=${1#* }

	# shellcheck disable=SC2086	# words
	case $1 in
	"FROM "*) from $rest ;;
	"COPY "*) copy $rest ;;
	"RUN "*) in_root "$rest" ;;
	"WORKDIR "*) folder=$rest && mkdir -p "$root$folder" ;;
	"USER "*) user=$rest ;;
	"ENTRYPOINT "*) in_root "command -v $(echo "$rest" | tr -d '[]"')" ;;
	*) die "a step that is not known here: $1" ;;
	esac
}

# dockerfile FILE: carries out its steps, one after the other.
dockerfile() {
	local line='' part

	context
	while IFS= read -r part; do
		case $part in '#'* | '') continue ;; esac
		line+=$part
		case $part in *\\) line=${line%\\}; continue ;; esac
		step "$line"
		line=''
	done <"$1"
}

# ---- the roots ---------------------------------------------------------------------

# inside WORK MIRROR WITH COMMAND...: runs as the first process of the new namespaces.
inside() {
	local site=$2 with=$3 name
	work=$1
	shift 3

	for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
		[ -z "${!name-}" ] || env+=("$name=${!name}")
	done
	root=$work/bare folder=/project
	case $with in
	--dockerfile=*)
		bare_root "$root" "$site" ''
		dockerfile "${with#*=}" ;;
	--only=*)
		bare_root "$root" "$site" ''
		enter "$root"
		mkdir "$root/project"
		cp "${with#*=}" "$root/project" ;;
	*)
		bare_root "$root" "$site" git,make,ca-certificates
		enter "$root"
		git clone -q . "$root/project" ;;
	esac
	for name; do
		in_root "$name"
	done
}

if [ "${1-}" = --inside ]; then
	shift
	inside "$@"
	exit 0
fi

with=--clone
case ${1-} in --only=* | --dockerfile=*) with=$1; shift ;; esac
[ $# -gt 0 ] || {
	echo "usage: scripts/fresh_root.sh [--only=FILE | --dockerfile=FILE] COMMAND..." >&2
	exit 2
}
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
	"scripts/${0##*/}" --inside "$work" "$site" "$with" "$@" &
child=$!
status=0
wait $child || status=$?
child=
exit $status
