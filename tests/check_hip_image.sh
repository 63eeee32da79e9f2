#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_hip_image.sh - the build for AMD goes on without a compiler that can do it
#
# The compiler is a stand-in, which knows the architectures of $KNOWN and links unless
# $BROKEN says why not.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/hipcc" <<'END'
#!/bin/sh
link=1 out=
while [ $# -gt 0 ]; do
	case $1 in
	--offload-arch=*)
		case " $KNOWN " in
		*" ${1#*=} "*) ;;
		*) echo "clang++: error: unsupported HIP gpu architecture: ${1#*=}" >&2; exit 1 ;;
		esac ;;
	-fsyntax-only) link= ;;
	-o) out=$2; shift ;;
	esac
	shift
done
[ -n "$link" ] || exit 0
[ -z "${BROKEN-}" ] || { echo "lld: error: $BROKEN" >&2; exit 1; }
echo code >"$out"
END
chmod +x "$tmp/hipcc"

# built KNOWN INSIST ARCHS: the script's status; .archs and .image are left
built() {
	rm -f "$tmp"/k.*
	KNOWN=$1 scripts/hip_image.sh "$tmp/hipcc" "$tmp/k.image" kernels/hip/hip_kernels.hip "$2" "$3" \
		-O3 2>"$tmp/said"
}
has() { [ "$(cat "$tmp/k.archs")" = "$1" ] && [ "$(cat "$tmp/k.image")" = "$2" ]; }

all()     { built 'a b c' auto 'a b c' && has 'a b c' code && [ ! -s "$tmp/said" ]; }
some()    { built 'a c d' auto 'a b c' && has 'a c' code; }
none_of() { built 'x' auto 'a b' && has '' '' && grep -q 'no kernels for AMD.*architecture: b' "$tmp/said"; }
broken()  { BROKEN='no emulation' built 'a' auto 'a' && has '' '' && grep -q 'no emulation.*HIP=0' "$tmp/said"; }
insists() { ! BROKEN='no emulation' built 'a' 1 'a' && grep -q 'no emulation' "$tmp/said" && [ ! -e "$tmp/k.image" ]; }

export BROKEN=
ok 'all that the compiler knows are in the image'          all
ok 'those that it does not know are left out'              some
ok 'a compiler that knows none: built without, in a word'  none_of
ok 'one that cannot link: built without, in a word'        broken
ok 'HIP=1 insists'                                         insists
done_testing
