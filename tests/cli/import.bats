#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# import.bats - kvtool import: folders of stores, names of their blocks

load common
load dumps

hash=0123456789abcdef0123456789abcde

# make FILE: 2 layers, 3 blocks of 4 tokens, 2 heads of 4, with names; a model
make() {
	head -c 768 /dev/urandom >"$1.bin"
	cat >"$1.json" <<-END
		{"layout": "hicache-page-first", "dtype": "bf16", "model": "org/m",
		 "sizes": {"layers": 2, "num_blocks": 3, "block_size": 4,
		           "num_kv_heads": 2, "head_dim": 4},
		 "block_names": ["${hash}0", "${hash}1", "${hash}2"]}
	END
}

# what a folder of these pages does not say
geometry=(--from=hicache-page-first --dtype=bf16 --block-size=4 --heads=2 --head-dim=4)

@test "import writes one dump of a folder, and the folder comes back from it" {
	make a
	run -0 kvtool convert -q --format=hicache a.bin pages
	[ "$(ls pages)" = "${hash}0_org-m_0_1.bin
${hash}1_org-m_0_1.bin
${hash}2_org-m_0_1.bin" ]
	run -0 kvtool import "${geometry[@]}" --verify -o b.h5 pages
	[ "$output" = "b.h5: BKSLHD, 768 B of data, verified equal" ]
	run -0 kvtool digest --scope=blocks a.bin b.h5
	[ "${lines[0]%% *}" = "${lines[1]%% *}" ]
	run -0 kvtool convert -q --verify --format=hicache b.h5 again
	diff -r pages again
}

@test "import --to lays it out" {
	make a
	kvtool convert -q --format=hicache a.bin pages
	run -0 kvtool import "${geometry[@]}" --to=hnd -o b.npy pages
	[ "${output%%,*}" = "b.npy: LBHSC (hnd" ]
}

@test "import --dry-run writes nothing, --json says what it wrote" {
	make a
	kvtool convert -q --format=hicache a.bin pages
	run -0 kvtool import "${geometry[@]}" -n -o b.h5 pages
	[ ! -e b.h5 ]
	run -0 kvtool import "${geometry[@]}" --json -o b.h5 pages
	echo "$output" | grep -q '"output": "b.h5"'
}

@test "import refuses half a command line" {
	make a
	tells 2 'expected an output' import a.bin
	tells 2 'expected a folder or file of an engine' import -o b.h5
	tells 2 "'rank', expected KEY=VALUE" import -o b.h5 --set rank a.bin
	tells 2 '' import -o b.h5 --to=sideways a.bin
	[ ! -e b.h5 ]
}

@test "import names what a folder does not say" {
	make a
	kvtool convert -q --format=hicache a.bin pages
	run -3 --separate-stderr kvtool import -o b.h5 pages
	said "give --layout, --dtype, --layers, --block-size, --heads, --head-dim"
	tells 3 'give --dtype, --layers' import -o b.h5 --from=hicache-page-head pages
}

@test "an empty folder and a folder of something else are no dump" {
	mkdir empty
	tells 3 '' import -o b.h5 empty
	tells 3 'holds no HiCache page' import "${geometry[@]}" -o b.h5 empty
}

@test "names of blocks go where the blocks go" {
	make a
	run -0 kvtool slice -q --blocks=1:3 -o b.h5 a.bin
	run -0 kvtool convert -q --format=hicache b.h5 pages
	[ "$(ls pages)" = "${hash}1_org-m_0_1.bin
${hash}2_org-m_0_1.bin" ]
	run -0 kvtool describe --json --block-tables a.bin
	echo "$output" | grep -q "\"${hash}2\""
}

@test "blocks whose content changes lose their names" {
	make a
	run -0 kvtool reblock -q --block-size=2 -o b.h5 a.bin
	tells 4 'blocks of this dump have none' convert --format=hicache b.h5 pages
	make c
	run -0 kvtool copy-blocks -q --blocks=0:1 -o d.h5 a.bin c.bin
	tells 4 'blocks of this dump have none' convert --format=hicache d.h5 pages
	[ ! -e pages ]
}

@test "ranks whose blocks have other names do not merge" {
	make a
	for r in 0 1; do
		kvtool slice -q --tp-size=2 --tp-rank=$r -o $r.h5 a.bin
		kvtool convert -q --format=hicache $r.h5 pages$r
	done
	run -0 kvtool merge -q --verify -o all.h5 0.h5 1.h5
	mv "pages1/${hash}2_org-m_1_2.bin" "pages1/${hash}3_org-m_1_2.bin"
	for r in 0 1; do
		run -0 kvtool import -q "${geometry[@]:0:3}" --heads=1 --head-dim=4 \
			--set=total-heads=2 -o 2$r.h5 pages$r
	done
	tells 3 'names of blocks' merge -o x.h5 20.h5 21.h5
}

@test "a folder that cannot be written leaves nothing behind" {
	make a
	sed "s/${hash}2/${hash}1/" a.json >b.json
	cp a.bin b.bin
	tells 5 'exists' convert --format=hicache b.bin pages
	sed "s/${hash}2/..\\/up/" a.json >b.json
	tells 4 'cannot be used in a hicache file name' convert --format=hicache b.bin pages
	jq 'del(.model)' a.json >b.json
	tells 4 'has no model name' convert --format=offload b.bin pages
	tells 4 'has no model name' convert --format=hicache b.bin pages
	sed "s/\"g0\"/\"g1\"/; s/${hash}2/${hash}2:1/" a.json >b.json
	tells 4 'expected the hash of its file' convert --format=llmd b.bin pages
	tells 4 'cannot have layout KBSLHD' convert --format=offload b.bin pages
	[ -z "$(compgen -G 'pages*')" ]
}
