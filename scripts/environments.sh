#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# environments.sh TEST...: runs these in what a developer's machine may be and CI's
# is not: a copy of the tree whose path has a space and that cannot be written, by
# nobody (where root starts it), with SIGHUP and SIGINT ignored, a umask that leaves
# others nothing, no HOME, a locale and a time zone that are not the usual ones, and
# a TMPDIR with a space.  'make' itself works there, too, with a few objects to link.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || { echo "usage: scripts/environments.sh TEST..." >&2; exit 2; }
b=${B:-build}
[ -x "$b/kvtool" ] || { echo "environments: no $b/kvtool here: run 'make' first" >&2; exit 2; }

outer=$(mktemp -d)
copy="$outer/a tree"
remove() {
	chmod -R u+rwX "$outer"
	rm -rf "$outer"
}
trap remove EXIT

mkdir "$copy" "$outer/a tmp"
tar -cf - --exclude=./.git --exclude='./build*' . | tar -xf - -C "$copy"
tar -cf - "$b" | tar -xf - -C "$copy"

# Variables of the make that runs this count here, too, but not its job server.
MAKEFLAGS=$(printf '%s' "${MAKEFLAGS-}" | sed 's/--jobserver-[^ ]*//g; s/ -j[0-9]*//g')
export MAKEFLAGS
make=(make --no-print-directory "-j${JOBS:-$(nproc)}" B="$b" JOBS="${JOBS:-$(nproc)}")
(
	cd "$copy"
	rm -f "$b/models" "$b/kvtool" "$b/libkvt.a"
	"${make[@]}" run-check TESTS=tests/check_corpus.sh
)
chmod -R a+rX,a-w "$copy"
chmod 755 "$outer"
chmod 1777 "$outer/a tmp"

as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
trap '' HUP INT
cd "$copy"
umask 077
# not 'env HOME=': there is none
status=0
env -u HOME -u LC_ALL LANG=de_DE.UTF-8 TZ=Asia/Kolkata TMPDIR="$outer/a tmp" "${as[@]}" \
	"${make[@]}" run-check TESTS="$*" || status=$?
left=$(find "$outer/a tmp" -mindepth 1 -maxdepth 1 | head -n 5)
[ -z "$left" ] || { printf 'environments: left behind:\n%s\n' "$left" >&2; status=1; }
exit "$status"
