#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# changed.bats - an input that changes while it is read is refused

load common

# changes COMMAND...: runs it as soon as kvtool has in.bin open; kvtool's status
changes() {
	local pid fd began
	rm -f out.h5 said
	truncate -s 512M in.bin
	"$KVTOOL" convert --threads=1 --no-sync --no-digest --layout=nhd \
		--dtype=bf16 --layers=4 --block-size=16 --heads=8 --head-dim=128 \
		in.bin out.h5 >said 2>&1 &
	pid=$!
	while kill -0 $pid 2>/dev/null; do
		for fd in /proc/$pid/fd/*; do
			[ "$(readlink "$fd")" = "$PWD/in.bin" ] || continue
			[ -n "${began:-}" ] || "$@"
			began=1
		done
		[ -z "${began:-}" ] || break
	done
	wait $pid
}

# On a busy machine it may be done before this shell has looked: again, then.
refuses() {
	local try status
	for try in 1 2 3 4 5; do
		status=0
		changes "$@" || status=$?
		[ "$status" = 0 ] || break
		rm -f out.h5
	done
	cat said
	[ "$status" = 3 ]
	[ "$(wc -l <said)" = 1 ]
	[ ! -e out.h5 ]
	[ -z "$(find . -name '*.tmp-*')" ]
}

grow() { echo more >>in.bin; }
touched() { touch -d '1 hour ago' in.bin; }

@test "an input that grows while it is read is refused, and no output appears" {
	refuses grow
	grep -q 'it changed while it was read' said
}

@test "an input that is written to while it is read is refused" {
	refuses touched
	grep -q 'changed while it was read' said
}

@test "an input that becomes shorter while it is read is refused" {
	refuses truncate -s 256M in.bin
}
