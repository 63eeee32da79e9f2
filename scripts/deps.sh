#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh WHAT: installs the Debian packages that 'make WHAT' needs and that are
# not there yet.  Where nothing is missing it prints nothing and needs no network.
# shellcheck disable=SC2086	# the lists of names are meant to be split
set -eu

build="gcc libc6-dev pkg-config libhdf5-dev libzstd-dev libjansson-dev libxxhash-dev
	zlib1g-dev"
# Tests run /usr/bin/python3, which finds these packages; another one in PATH would not.
check="$build g++ libcmocka-dev libucx-dev bats jq perl mandoc hdf5-tools zstd
	python3 python3-h5py python3-numpy python3-pytest python3-xxhash"
lint="$build perl mandoc mypy python3 python3-numpy python3-pytest shellcheck"
fuzz="$build clang libclang-rt-14-dev llvm"
valgrind="$build libcmocka-dev python3 python3-numpy valgrind"
faults="$build python3"
# what the packages of the engines need that are no Python
engines="$build g++ cmake ninja-build python3 python3-venv"
# STATIC=1 builds its libraries from Debian's source packages
wheel="gcc libc6-dev make binutils pkg-config cmake dpkg-dev gpgv python3 python3-venv"
deb="$check build-essential debhelper dh-python dpkg-dev lintian"
fresh="debootstrap git ca-certificates"
mpi="$check libopenmpi-dev openmpi-bin"
# the GPU kernels for AMD; nvcc is in no package of Debian, and used where it is
gpu="hipcc"

case ${1-} in
demo)           need=$build ;;
check | check-environments) need=$check ;;
bench)          need="$build hdf5-tools python3 python3-h5py python3-numpy" ;;
html)           need="$build perl mandoc python3 python3-markdown" ;;
lint)           need=$lint ;;
fuzz)           need=$fuzz ;;
check-valgrind) need=$valgrind ;;
check-faults)   need=$faults ;;
check-engines)  need=$engines ;;
wheel)          need=$wheel ;;
deb)            need=$deb ;;
check-fresh)    need=$fresh ;;
mpi)            need=$mpi ;;
ci)             need="$mpi $lint $fuzz $valgrind $fresh util-linux" ;;
# what single tests use and say so if it is not there
ci-more)        need="$gpu chromium python3-markdown" ;;
*)
	echo "usage: scripts/deps.sh demo|check|bench|html|lint|fuzz|check-valgrind|check-faults|check-engines|wheel|deb|check-fresh|mpi|ci|ci-more" >&2
	exit 2
	;;
esac
need=$(printf '%s\n' $need | sort -u)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	cat >&2 <<-TEXT
	deps: this is not a Debian system, so packages must be installed by hand.
	deps: these are their names in Debian 12:
	$(printf '%s\n' "$need" | tr '\n' ' ' | fold -s -w 70 | sed 's/^/deps:     /')
	deps: then run 'make DEPS=: $1'; DEPS=: leaves this step out.
	TEXT
	exit 1
fi

# The second letter of the status is 'i' for what is installed, held or not.
have=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' $need 2>/dev/null |
	awk 'substr($1, 2, 1) == "i" { print $NF }' || true)
missing=
for package in $need; do
	printf '%s\n' "$have" | grep -qxF "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "deps: neither root nor sudo here; as root, run:" >&2
		echo "deps:     apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	as_root=sudo
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >"$log" 2>&1
}

# A list of packages that cannot be refreshed may still do: apt-get install decides.
echo "deps: installing$missing"
apt update || tail -n 3 "$log" >&2
if ! apt install --no-install-recommends $missing; then
	tail -n 20 "$log" >&2
	echo "deps: apt-get install failed" >&2
	exit 1
fi
