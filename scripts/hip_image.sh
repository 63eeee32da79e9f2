#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hip_image.sh COMPILER IMAGE SOURCE auto|1 ARCHITECTURES FLAG... - the kernels for AMD
#
# HIP has no code that later devices could compile for themselves, so the image has one
# piece for each architecture.  Those that the compiler does not know are left out.  What
# it cannot do at all, for want of a linker, say, ends the build only if HIP=1 insists;
# else the image is empty, and a sentence says why.  IMAGE's .archs lists what is in it.
set -u
compiler=$1 image=$2 source=$3 insist=$4 archs=$5
shift 5
list=${image%.image}.archs

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
: >"$tmp/empty.hip"

known=
for arch in $archs; do
	"$compiler" "$@" "--offload-arch=$arch" -fsyntax-only -x hip "$tmp/empty.hip" \
		2>"$tmp/why" && known="$known $arch"
done
offload=
for arch in $known; do
	offload="$offload --offload-arch=$arch"
done
# shellcheck disable=SC2086	# the words of offload are meant to be split
if [ -n "$known" ] && "$compiler" "$@" $offload -o "$image" -x hip "$source" 2>"$tmp/why"; then
	cat "$tmp/why" >&2
	printf '%s' "${known# }" >"$list"
	exit 0
fi
if [ "$insist" = 1 ]; then
	cat "$tmp/why" >&2
	exit 1
fi
echo "  no kernels for AMD: $compiler fails: $(grep -m 1 -i error "$tmp/why" ||
	tail -n 1 "$tmp/why"); HIP=1 shows all of it, HIP=0 does not try" >&2
: >"$image"
: >"$list"
