#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_install.sh - the wheel in DIST and the Dockerfile, each in a bare Debian 12 (TAP)
#
# 'make check-install' builds the wheel first.  Nothing of these sources is beside what was
# installed.  There is no docker here: scripts/fresh_root.sh carries out the steps of the
# Dockerfile, in two roots.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
version=$(sed -n 's/^.define KVT_VERSION "\(.*\)"/\1/p' lib/kvt/kvt.h)
# shellcheck disable=SC2012	# the newest
wheel=$(ls -t "${DIST:-dist}/kvtool-$version"-py3-none-*.whl | head -n 1)

# What must work wherever the program was installed: models, a snapshot in HDF5, the plugin.
told="kvtool --version | grep -xF 'kvtool $version' && kvtool help | grep -q describe"
models='kvtool size --model=llama-3.1-70b --tp=1'
snapshot='yes kvtool | head -c 4096 >/tmp/x.bin && kvtool convert --verify --layout=nhd \
	--dtype=bfloat16 --layers=1 --blocks=2 --block-size=16 --heads=2 --head-dim=16 \
	/tmp/x.bin /tmp/x.h5 && kvtool fsck /tmp/x.h5 && test -s "$(kvtool --plugin-dir)/libh5kvtzstd.so"'

in_environment() {
	for command; do
		set -- "$@" ". /opt/v/bin/activate && $command"
		shift
	done
	scripts/fresh_root.sh --only="$wheel" \
		'apt-get -q update && apt-get -q -y install --no-install-recommends python3-venv man-db' \
		'python3 -m venv /opt/v && /opt/v/bin/pip install --no-index ./kvtool-*.whl' "$@"
}
wheel_alone() {
	in_environment "$told" "$models" "$snapshot" 'test -s "$(man -w kvtool-diff)"' \
		'python3 -c "import kvtool; print(kvtool.open(\"/tmp/x.h5\").layout)"'
}

# As a reader would: a checkout for its samples, the program from the wheel, no compiler.
stories() {
	git archive -o "$tmp/tree.tar" HEAD && tar -rf "$tmp/tree.tar" -C "$(dirname "$wheel")" \
		"$(basename "$wheel")" || return 1
	scripts/fresh_root.sh --only="$tmp/tree.tar" \
		'apt-get -q update && apt-get -q -y install --no-install-recommends python3-venv' \
		'mkdir /opt/t && tar -xf tree.tar -C /opt/t && python3 -m venv /opt/v' \
		'/opt/v/bin/pip install --no-index /opt/t/kvtool-*.whl && ! command -v gcc' \
		'cd /opt/t && KVTOOL=/opt/v/bin/kvtool python3 tests/check_docs.py README.md \
			docs/nonsense.md docs/plan.md docs/tasks.md'
}

dockerfile() {
	scripts/fresh_root.sh --dockerfile=Dockerfile "$told" "$models" "$snapshot" \
		'test "$(id -u)" = 1000 && test "$PWD" = /data' \
		'! command -v gcc'
}

ok 'the wheel alone, in a bare Debian 12'            wheel_alone
ok 'stories and README, typed with the wheel alone'  stories
ok 'the steps of the Dockerfile, in bare Debian 12'  dockerfile
done_testing
