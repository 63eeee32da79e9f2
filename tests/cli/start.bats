#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# start.bats - what is loaded: no HDF5, and nothing that comes with it, before it is needed

load common
load dumps

build=${KVT_BUILD:-$root/build}
opening=$build/kvtool_opening

# loaded PROGRAM ARG...: the libraries of the process, by their short names
loaded() {
	rm -f here.*
	LD_DEBUG=files LD_DEBUG_OUTPUT=here "$@" >out
	sed -n 's/.*calling init: .*\/\(lib[a-z0-9_-]*\).*/\1/p' here.* | sort -u >names
	# else nothing was seen
	grep -qx libc names
}

# Inputs whose names have no spaces, whatever the tree's name is.
inputs() {
	kvtool convert -q "$nhd" nhd.npy
	kvtool convert -q "$hnd" hnd.npy
	kvtool convert -q "$nhd" a.h5
	cp "$root/models/llama-3.1-8b.json" model.json
}

opens() { [ -e "$opening" ] || skip "built with its own libraries inside, STATIC=1"; }

# Debian's HDF5 brings these.
heavy() { grep -xE 'libhdf5.*|libcurl.*|libcrypto|libssl|libkrb5|libgssapi_krb5|libsz' names || true; }

@test "what reads no HDF5 loads none" {
	inputs
	opens
	for program in "$KVTOOL" "$opening"; do
		for words in --version help "help layouts" --list-commands "describe --list-options" \
				"describe nhd.npy" "diff nhd.npy hnd.npy" "size model.json" \
				"relayout -f -q --to=hnd -o out.npy nhd.npy"; do
			# shellcheck disable=SC2086	# words are words
			loaded "$program" $words
			[ -z "$(heavy)" ] || { echo "$program $words:"; heavy; return 1; }
		done
	done
	# it would be noticed
	loaded "$opening" describe a.h5
	grep -q '^libhdf5' names
}

@test "the program that has HDF5 inside loads none for a snapshot" {
	[ -s "$build/hdf5.libs" ] || skip "built without the archive of HDF5"
	inputs
	for words in "describe a.h5" "diff a.h5 nhd.npy" "relayout -f -q --to=hnd -o b.h5 a.h5"; do
		# shellcheck disable=SC2086	# words are words
		loaded "$KVTOOL" $words
		[ -z "$(heavy)" ]
	done
}

@test "libkvt is linked with no HDF5" {
	[ -e "$build/libkvt.so.0" ] || skip "sanitizers have no libkvt"
	run -0 readelf -d "$build/libkvt.so.0"
	[[ $output == *'[libc.so.6]'* ]]
	[[ $output != *hdf5* ]]
}

@test "HDF5 that is opened does what HDF5 that is linked does" {
	opens
	run -0 "$opening" convert -q "$nhd" a.h5
	run -0 kvtool convert -q "$nhd" b.h5
	cmp a.h5 b.h5
	run -0 kvtool describe --json a.h5
	linked=$output
	run -0 "$opening" describe --json a.h5
	[ "$output" = "$linked" ]
	run -0 "$opening" relayout -q --to=hnd --verify -o c.h5 a.h5
	run -0 kvtool diff -q c.h5 "$nhd"
	run -0 "$opening" --version
	[[ $output == *$'\n'"HDF5     $(cat "$build/hdf5.name"), opened when a file asks for it"$'\n'* ]]
}

@test "an HDF5 that is not there is told in a sentence, and only where it is needed" {
	opens
	local name
	name=$(cat "$build/hdf5.name")
	LC_ALL=C sed "s/$name/absent${name#??????}/g" "$opening" >program
	chmod +x program
	inputs
	for words in "describe a.h5" "convert nhd.npy b.h5" "diff a.h5 nhd.npy" "merge -o b.npy a.h5 a.h5"; do
		# shellcheck disable=SC2086	# words are words
		run -4 --separate-stderr ./program $words
		one_sentence
		[[ $stderr == *".h5: HDF5 cannot be loaded: absent${name#??????}: "*"; on Debian libhdf5-dev brings it" ]]
	done
	[ ! -e b.h5 ]
	[ -z "$(find . -name '*.tmp-*')" ]
	run -0 ./program describe "$nhd"
	run -0 ./program --version
	# no HDF5 at all, and it is said that it is none
	echo none >none.h5
	run -3 --separate-stderr ./program describe none.h5
}
