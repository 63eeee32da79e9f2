#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deb.sh BUILD DIST: Debian packages of what git tracks, into DIST
#
# debian/ is as Debian wants it, so 'dpkg-buildpackage' does in an unpacked tarball what
# this does in a clone.  DEB_BUILD_OPTIONS=parallel=2 without nocheck runs the tests, too.
set -eu
build=${1:?usage: deb.sh BUILD DIST} dist=${2:?usage: deb.sh BUILD DIST}
cd "$(dirname "$0")/.."
version=$(sed -n 's/^#define KVT_VERSION "\(.*\)"/\1/p' lib/kvt/kvt.h)
packaged=$(dpkg-parsechangelog -S Version)
if [ "${packaged%-*}" != "$version" ]; then
	echo "deb: debian/changelog is of $packaged, lib/kvt/kvt.h says $version" >&2
	exit 1
fi
git rev-parse --git-dir >/dev/null 2>&1 || {
	echo "deb: this is no clone; in unpacked sources run: dpkg-buildpackage -us -uc" >&2
	exit 1
}
export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS-nocheck parallel=$(nproc)}"

work=$build/deb
rm -rf "$work"
mkdir -p "$work/kvtool-$version" "$dist"
git ls-files -z | tar --null -T - -cf - | tar -C "$work/kvtool-$version" -xf -
(cd "$work" && tar --exclude="kvtool-$version/debian" --sort=name --owner=0 --group=0 \
	-czf "kvtool_$version.orig.tar.gz" "kvtool-$version")
(cd "$work/kvtool-$version" && dpkg-buildpackage -us -uc >../build.log 2>&1) || {
	tail -n 30 "$work/build.log" >&2
	exit 1
}
(cd "$work" && lintian --fail-on error,warning --tag-display-limit 0 ./*.changes)
cp "$work"/*.deb "$work"/*.dsc "$work"/*.changes "$work"/*.tar.* "$dist"
ls -s -h "$dist"/*.deb
