#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_wheel.sh - the wheel and the sources in DIST, installed and used (TAP)
#
# 'make check-wheel' builds both first.  The environments are new ones; h5py, numpy,
# auditwheel, twine, pipx and uv come from PyPI.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
. tests/hardened.sh

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
version=$(sed -n 's/^.define KVT_VERSION "\(.*\)"/\1/p' lib/kvt/kvt.h)
dist=${DIST:-dist}
# shellcheck disable=SC2012	# the newest
wheel=$(ls -t "$dist/kvtool-$version"-py3-none-*.whl | head -n 1)
sdist=$dist/kvtool-$version.tar.gz
data=testdata/kv/s260k/paged_bs16
# nothing but what was installed is found
unset KVTOOL KVT_BUILD KVT_PLUGIN_DIR KVTOOL_LIBRARY PYTHONPATH HDF5_PLUGIN_PATH
unset MAKEFLAGS MAKELEVEL MFLAGS

mib() { stat -c %s "$1" | awk '{ printf "%.1f MiB", $1 / 1048576 }'; }

# ---- the archive -----------------------------------------------------------------

# GPU images add what the compilers make of them.
small() {
	[ "$(stat -c %s "$wheel")" -le $((15 << 20)) ] || [ -s build/wheel/kernels/cuda.image ] ||
		[ -s build/wheel/kernels/hip.image ]
}

new_environment() { python3 -m venv "$1" && "$1/bin/python" -m pip install -q "$2"; }
with_tools() {
	python3 -m venv "$tmp/tools" && "$tmp/tools/bin/pip" install -q auditwheel twine pipx uv
}
pypi_takes() { "$tmp/tools/bin/twine" check --strict "$wheel" "$sdist"; }

# What auditwheel finds is the tag that the wheel bears.
policy() {
	tag=${wheel##*-py3-none-}
	"$tmp/tools/bin/auditwheel" show "$wheel" | tr '\n' ' ' |
		grep -F "following platform tag: \"${tag%.whl}\""
}

inside() {
	"$tmp/v/bin/python" - "$wheel" <<-'PY'
	import sys, zipfile
	names = zipfile.ZipFile(sys.argv[1]).namelist()
	stem = "-".join(sys.argv[1].rsplit("/", 1)[-1].split("-")[:2])
	for end in ["kvtool/py.typed", f"{stem}.dist-info/entry_points.txt",
	            "share/man/man1/kvtool.1", "share/man/man7/kvtool-formats.7",
	            "share/bash-completion/completions/kvtool",
	            *(f"{stem}.dist-info/licenses/{name}" for name in
	              ("LICENSE", "hdf5.txt", "jansson.txt", "libzstd.txt", "xxhash.txt",
	               "zlib.txt"))]:
	    assert any(name.endswith(end) for name in names), end
	PY
}

# ---- what it installed -------------------------------------------------------------

installed() {
	bin=$tmp/v/bin
	package=$("$bin/python" -c 'import kvtool; print(kvtool.__path__[0])') || return 1
	plugin=$package/_lib/hdf5-plugin
}

told_version() { "$bin/kvtool" --version | grep -xF "kvtool $version"; }
module_version() { [ "$("$bin/python" -c 'import kvtool; print(kvtool.__version__)')" = "$version" ]; }

round_trip() {
	"$bin/kvtool" relayout -q --to=hnd --verify "$data/packed_nhd.bf16.npy" "$tmp/hnd.npy" &&
		cmp "$tmp/hnd.npy" "$data/packed_hnd.bf16.npy" &&
		"$bin/kvtool" convert -q --verify "$tmp/hnd.npy" "$tmp/hnd.h5" &&
		"$bin/kvtool" convert -q --verify --uncompressed "$tmp/hnd.npy" "$tmp/plain.h5" &&
		"$bin/kvtool" relayout -q --to=nhd --verify "$tmp/hnd.h5" "$tmp/nhd.npy" &&
		cmp "$tmp/nhd.npy" "$data/packed_nhd.bf16.npy"
}

models() { (cd "$tmp" && "$bin/kvtool" size -m llama-3.1-70b --tp=1 >/dev/null); }
plugin_found() { [ -s "$("$bin/kvtool" --plugin-dir)/libh5kvtzstd.so" ]; }
pages() { [ -s "$tmp/v/share/man/man1/kvtool.1" ]; }
pytest_entry() { grep -qF 'kvtool = kvtool.pytest_plugin' "$package"/../kvtool-*.dist-info/entry_points.txt; }

binaries() {
	printf '%s\n' "$bin/kvtool" "$package/_lib/libkvt.so.0" "$plugin/libh5kvtzstd.so"
}

# The C library, and what it consists of.
other_libraries() {
	binaries | while read -r file; do
		ldd "$file" | grep -vE '(libc|libm|libdl|libpthread)\.so|linux-vdso|ld-linux'
	done
	return 0
}

foreign_symbols() {
	nm -D --defined-only "$package/_lib/libkvt.so.0" | awk '$3 !~ /^(kvt_|KVT_)/'
	nm -D --defined-only "$plugin/libh5kvtzstd.so" | awk '$3 !~ /^H5PLget_plugin_/'
	nm -D --defined-only "$bin/kvtool" | grep -E ' (H5|ZSTD_|json_|XXH|inflate|deflate)'
	# the plugin may use the HDF5 of its process, and must not need one
	nm -D --undefined-only "$plugin/libh5kvtzstd.so" | grep -E ' U (H5|ZSTD_)'
	return 0
}

machine_paths() { binaries | xargs grep -lF -e "$PWD" -e "${HOME:-/root}/" -e /tmp/tmp.; return 0; }

# that lack something
bare() { binaries | while read -r file; do lacks "$file" || echo "$file"; done; }

# ---- by what runs programs of wheels -----------------------------------------------

# A command of the wheel, as it was put on the PATH or is run once; it finds its models.
runs() { (cd "$tmp" && "$@" --version | grep -xF "kvtool $version" && "$@" size -m llama-3.1-70b --tp=1) >/dev/null; }
tool() {
	name=$1
	shift
	HOME=$tmp/user XDG_DATA_HOME=$tmp/user/data XDG_CACHE_HOME=$tmp/user/cache \
		UV_TOOL_BIN_DIR=$tmp/user/uv PIPX_HOME=$tmp/user/pipx PIPX_BIN_DIR=$tmp/user/bin \
		PIPX_MAN_DIR=$tmp/user/man UV_NO_CONFIG=1 "$tmp/tools/bin/$name" "$@"
}
whole=$(realpath "$wheel")
pipx_run()     { runs tool pipx run --quiet --spec "$whole" kvtool; }
pipx_install() { tool pipx install "$whole" && runs "$tmp/user/bin/kvtool" && [ -s "$tmp/user/man/man1/kvtool.1" ]; }
uvx()          { runs tool uvx --quiet --from "$whole" kvtool; }
uv_install()   { tool uv tool install "$whole" && runs "$tmp/user/uv/kvtool"; }

# ---- beside h5py -------------------------------------------------------------------

# Each HDF5 opens the same compressed file while the other has it open; h5py decodes it by
# the plugin, to what the uncompressed file has.
beside_h5py() {
	HDF5_PLUGIN_PATH=$plugin "$bin/python" - "$1" "$tmp/hnd.h5" "$tmp/plain.h5" <<-'PY'
	import sys
	order, compressed, plain = sys.argv[1:]
	for name in order.split(","):
	    __import__(name)
	kvtool, h5py = sys.modules["kvtool"], sys.modules["h5py"]

	def ours():
	    return kvtool.open(compressed)

	def theirs():
	    return h5py.File(compressed, "r")

	opened = [ours(), theirs()] if order.startswith("kvtool") else [theirs(), ours()]
	dump = next(o for o in opened if isinstance(o, kvtool.Dump))
	file = next(o for o in opened if isinstance(o, h5py.File))
	assert dump.digest() == kvtool.open(plain).digest()
	filtered = []

	def compare(name, one):
	    if isinstance(one, h5py.Dataset):
	        if one.id.get_create_plist().get_nfilters():
	            filtered.append(name)
	        assert one[()].tobytes() == other[name][()].tobytes(), name

	with h5py.File(plain, "r") as other:
	    file.visititems(compare)
	assert filtered, "no dataset has a filter"
	# errors of one are not errors of the other
	try:
	    kvtool.open(sys.argv[0] if sys.argv[0] != "-" else "/dev/null")
	except kvtool.Error:
	    pass
	try:
	    h5py.File("/dev/null", "r")
	except OSError:
	    pass
	assert dump.digest() == kvtool.open(compressed).digest()
	PY
}

# ---- the sources -------------------------------------------------------------------

# pip builds in a copy, without git; the libraries are those that were built already.
# The same sources and tools give the same bytes.
same_wheel() {
	CUDA=0 HIP=0 STATIC=1 STATIC_DIR="$PWD/build/static" "$tmp/v/bin/pip" wheel -q --no-deps \
		-w "$tmp/again" "$sdist" || return 1
	[ -s build/wheel/kernels/cuda.image ] || [ -s build/wheel/kernels/hip.image ] ||
		cmp "$wheel" "$tmp/again/${wheel##*/}"
}

from_sources() {
	new_environment "$tmp/s" "$(echo "$tmp"/again/*.whl)" &&
		"$tmp/s/bin/kvtool" --version | grep -xF "kvtool $version" &&
		"$tmp/s/bin/python" -c 'import kvtool'
}

# ---- the cache of static libraries -------------------------------------------------

# Once more, with a cache of its own: the same archives.  After that nothing can be
# unpacked, so that what is not in the cache fails.
libraries() {
	make -s DEPS=: STATIC=1 B="$tmp/b" STATIC_DIR="$tmp/libs" "$@" "$tmp/libs/versions"
}
same_libraries() { libraries && diff -r build/static "$tmp/libs"; }
nothing_to_do()  { libraries STATIC_CACHE=/none; }
cached()         { rm -rf "$tmp/libs"; libraries && diff -r build/static "$tmp/libs"; }
built() {
	libraries "$@" >"$tmp/log" 2>&1 && { echo "nothing was built"; return 1; }
	cat "$tmp/log"
	grep -q '^static_libs: failed: apt source$' "$tmp/log"
}
other_flags() { built HARDEN=0; }
other_compiler() {
	printf '#!/bin/sh\ncase $1 in -v) cc -v 2>&1 | sed "s/ version /&0/" ;; *) exec cc "$@" ;; esac\n' >"$tmp/cc"
	chmod +x "$tmp/cc"
	built CC="$tmp/cc"
}
damaged() {
	rm -rf "$tmp/libs"
	for file in "$tmp"/cache/*/lib/libz.a; do truncate -s -1 "$file"; done
	built
}
no_unpacking() {
	mkdir "$tmp/stubs"
	printf '#!/bin/sh\nexit 1\n' >"$tmp/stubs/dpkg-source"
	chmod +x "$tmp/stubs/dpkg-source"
	PATH=$tmp/stubs:$PATH
}

ok "the wheel has at most 15 MiB ($(mib "$wheel"))" small
ok 'it installs into a new environment'         new_environment "$tmp/v" "$wheel"
ok 'what it must contain is inside'             inside
ok 'tools of PyPI can be installed'             with_tools
ok 'auditwheel finds the tag that it bears'     policy
ok 'PyPI can show its description'              pypi_takes
ok 'the package is found'                       installed
installed
ok 'the program tells its version'              told_version
ok 'the module tells its version'               module_version
ok 'dumps make a round trip, verified'          round_trip
ok 'the models are found'                       models
ok 'the HDF5 plugin is found'                   plugin_found
ok 'the pages are there'                        pages
ok 'pytest is told of the plugin'               pytest_entry
ok 'pipx run --spec runs it'                    pipx_run
ok 'pipx installs it, with its pages'           pipx_install
ok 'uvx --from runs it'                         uvx
ok 'uv tool installs it'                        uv_install
none 'nothing needs more than the C library'    other_libraries
none 'no symbol of a library inside is seen'    foreign_symbols
none 'all of it is hardened'                     bare
none 'no path of this machine is inside'        machine_paths
ok 'h5py can be installed'                      "$bin/pip" install -q h5py
ok 'beside h5py, imported before it'            beside_h5py kvtool,h5py
ok 'beside h5py, imported after it'             beside_h5py h5py,kvtool
ok 'pip builds the same wheel of the sources'   same_wheel
ok 'that wheel installs, and works'             from_sources
export STATIC_CACHE="$tmp/cache"
ok 'libraries that are built again are the same' same_libraries
no_unpacking
ok 'libraries that are there are not built'     nothing_to_do
ok 'the cache has those of the same sources'    cached
ok 'with other flags they are built'            other_flags
ok 'with another compiler they are built'       other_compiler
ok 'what is damaged in the cache is not taken'  damaged
done_testing
