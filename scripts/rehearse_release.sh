#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rehearse_release.sh - the recipe in CONTRIBUTING.md, "Releasing", in a copy (TAP)
#
# Runs the blocks that name this script, in their order and in one shell, on a clone that
# has a version, a date and a release before it.  One line does less here: what was unpacked
# is built, not tested.  All three builds are quick ones, as nobody uses them: -O0, which has
# warnings that -O2 has not.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

if ! git rev-parse --git-dir >/dev/null 2>&1; then
	echo "ok 1 - the release recipe # SKIP this is no clone: there is nothing to tag"
	echo 1..1
	exit 0
fi
copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT

# Blocks of the recipe, one after the other.
recipe() {
	awk '/^```sh run-by="scripts\/rehearse_release.sh"$/ { on = 1; next }
	     /^```$/ { on = 0 }
	     on' CONTRIBUTING.md |
		sed 's/ DEPS=: WERROR=1 check$/ DEPS=: build\/kvtool/'
}

# What whoever releases has done before: a heading with a date, and a release once.
prepare() {
	local version
	git clone -q . "$copy/src" && cd "$copy/src" || return 1
	git config user.name rehearsal && git config user.email rehearsal@localhost
	git tag -a v0 -m 'the one before' || return 1
	version=$(sed -n 's/^#define KVT_VERSION "\(.*\)"/\1/p' lib/kvt/kvt.h)
	sed -i "s/^## \[Unreleased\].*/## [$version] - $(date -u +%Y-%m-%d)/" CHANGELOG.md
	git commit -qam "kvtool: $version" || return 1
	make -s DEPS=: build/libkvt.a >/dev/null
}

rehearse() {
	[ "$(recipe | grep -c .)" -ge 15 ] || { echo "the blocks are not found"; return 1; }
	{ echo 'set -eu'; recipe; } >"$copy/recipe.sh"
	(unset B; export MAKEFLAGS="-j${JOBS:-2}" CFLAGS=-O0; prepare && bash "$copy/recipe.sh") >"$copy/log" 2>&1 ||
		{ tail -n 20 "$copy/log"; return 1; }
	[ -s "$copy/src/dist/SHA256SUMS" ] && grep -q '^#### Added$' "$copy/src/build/release.md" &&
		! grep -q '^## ' "$copy/src/build/release.md"
}

ok 'the release recipe runs as it is printed' rehearse
done_testing
