#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [SECTION...]: every benchmark there is, or those named: "kernels" is
# check_kernels --bench, "codec" is bench_codec.c, "files" bench_files.py, ...
set -eu
cd "$(dirname "$0")/.."

build=${KVT_BUILD:-build}

# section NAME PROGRAM ARG...
section() {
	name=$1
	shift
	case " $wanted " in
	"  " | *" $name "*) ;;
	*) return 0 ;;
	esac
	echo "== $name"
	"$@"
	echo
}

wanted=$*
echo "== machine"
sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sort | uniq -c | sed 's/^ *//; s/ / x /'
awk '/^MemTotal/ { printf "%.0f GiB of memory\n", $2 / 1048576 }' /proc/meminfo
echo
section kernels "$build/check_kernels" --bench
for program in "$build"/bench/bench_* bench/bench_*; do
	case $program in
	*.o | *.d | *.c | *'*') continue ;;
	esac
	name=${program##*/bench_}
	section "${name%.*}" "$program"
done
